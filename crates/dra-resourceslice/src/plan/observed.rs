//! The observed slices of one pool.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use super::{Plan, Write};
use crate::{
    PoolWish,
    equal::{ContentDigest, TaintTimes},
    slice_name::{index_of, slice_name},
};

/// All slices of the pool, oldest generation first.
pub(super) struct Observed<'a> {
    pub(super) slices: Vec<ObservedSlice<'a>>,
    /// The highest generation, which is the one that consumers look at; 0 without slices.
    pub(super) generation: i64,
}

/// One slice of the pool.
pub(super) struct ObservedSlice<'a> {
    pub(super) object: &'a ResourceSlice,
    pub(super) content: ContentDigest,
    /// Whether it has the pool's highest generation.
    pub(super) current: bool,
}

impl<'a> Observed<'a> {
    pub(super) fn of(wish: &PoolWish, observed: impl IntoIterator<Item = &'a ResourceSlice>) -> Self {
        let of_pool =
            |slice: &&ResourceSlice| wish.scope.contains(slice) && slice.spec.pool.name == wish.pool.as_str();
        let mut objects: Vec<_> = observed.into_iter().filter(of_pool).collect();
        objects.sort_by_key(|slice| (slice.spec.pool.generation, slice.metadata.name.as_deref()));
        let generation = objects.last().map_or(0, |slice| slice.spec.pool.generation);
        let slices = objects.into_iter().map(|object| ObservedSlice {
            object,
            content: ContentDigest::of(&object.spec),
            current: object.spec.pool.generation == generation,
        });
        Self { slices: slices.collect(), generation }
    }

    /// The plan for a pool without slices.
    pub(super) fn removal(&self) -> Plan {
        let slices: Vec<_> = self.slices.iter().map(|slice| slice.object.clone()).collect();
        Plan { writes: super::plan_removal(&slices), generation: self.generation, ..Plan::default() }
    }

    pub(super) fn specs(&self) -> Vec<&'a ResourceSliceSpec> {
        self.slices.iter().map(|slice| &slice.object.spec).collect()
    }

    pub(super) fn taint_times(&self) -> TaintTimes<'a> {
        TaintTimes::of(self.specs())
    }

    /// A slice that has to go because another one stands for the same part of the pool. The one that has our name
    /// goes first: a publisher that also writes this pool would create its own again.
    pub(super) fn duplicate(&self, wish: &PoolWish) -> Option<&ObservedSlice<'a>> {
        let current: Vec<_> = self.slices.iter().filter(|slice| slice.current).collect();
        let count =
            current.iter().map(|slice| slice.count()).max().and_then(|count| usize::try_from(count).ok())?;
        if current.len() <= count {
            return None;
        }
        let mut by_index: BTreeMap<usize, Vec<&ObservedSlice<'a>>> = BTreeMap::new();
        for slice in current {
            if let Some(index) = index_of(slice.name(), count) {
                by_index.entry(index).or_default().push(slice);
            }
        }
        let (index, twins) = by_index.into_iter().find(|(_, twins)| twins.len() > 1)?;
        let ours = slice_name(&wish.scope, &wish.pool, index, count, wish.salt);
        twins.iter().find(|twin| twin.name() == ours).or_else(|| twins.last()).copied()
    }
}

impl ObservedSlice<'_> {
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn count(&self) -> i64 {
        self.object.spec.pool.resource_slice_count
    }

    pub(super) fn delete(&self) -> Write {
        super::delete(self.object)
    }

    /// Replaces the spec, and makes the owner right.
    pub(super) fn update(&self, wish: &PoolWish, spec: ResourceSliceSpec) -> Write {
        let mut object = ResourceSlice { metadata: self.object.metadata.clone(), spec };
        if let Some(owner) = wish.owner.as_ref().filter(|_| !self.has_owner(wish)) {
            let owners = object.metadata.owner_references.get_or_insert_default();
            owners.retain(|other| other.kind != owner.kind);
            owners.push(owner.clone());
        }
        Write::Update(Box::new(object))
    }

    /// Whether the slice has the owner wished for; another publisher may have set more fields of it.
    pub(super) fn has_owner(&self, wish: &PoolWish) -> bool {
        let Some(owner) = &wish.owner else { return true };
        let same = |other: &OwnerReference| {
            (&other.kind, &other.name, &other.uid) == (&owner.kind, &owner.name, &owner.uid)
        };
        self.object.metadata.owner_references.iter().flatten().any(same)
    }
}
