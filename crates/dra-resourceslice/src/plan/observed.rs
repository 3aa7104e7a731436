//! The observed slices of one pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{Draft, Step, in_place::looks_whole};
use crate::{
    PoolWish,
    equal::TaintTimes,
    observed::ObservedSlice,
    slice_name::{index_of, slice_name},
};

/// All slices of the pool, oldest generation first.
pub(super) struct Observed<'a> {
    pub(super) slices: Vec<OfPool<'a>>,
    /// The highest generation, which is the one that consumers look at; 0 without slices.
    pub(super) generation: i64,
}

/// One slice of the pool.
pub(super) struct OfPool<'a> {
    pub(super) slice: &'a ObservedSlice,
    /// Whether it has the pool's highest generation.
    pub(super) current: bool,
}

impl<'a> Observed<'a> {
    pub(super) fn of(wish: &PoolWish, observed: impl IntoIterator<Item = &'a ObservedSlice>) -> Self {
        let of_pool =
            |slice: &&ObservedSlice| wish.scope.contains_observed(slice) && slice.pool == wish.pool.as_str();
        let mut slices: Vec<_> = observed.into_iter().filter(of_pool).collect();
        slices.sort_by_key(|slice| (slice.generation, slice.name()));
        let generation = slices.last().map_or(0, |slice| slice.generation);
        let slices =
            slices.into_iter().map(|slice| OfPool { slice, current: slice.generation == generation });
        Self { slices: slices.collect(), generation }
    }

    /// The plan for a pool without slices.
    pub(super) fn removal(&self) -> Draft {
        let steps = super::plan_removal(self.slices.iter().map(|of_pool| of_pool.slice));
        Draft { generation: self.generation, ..Draft::of(steps) }
    }

    /// Whether consumers can use the pool as it is.
    pub(super) fn looks_whole(&self) -> bool {
        let current = self.slices.iter().filter(|slice| slice.current);
        looks_whole(&current.map(OfPool::count).collect::<Vec<_>>())
    }

    pub(super) fn slices(&self) -> Vec<&'a ObservedSlice> {
        self.slices.iter().map(|of_pool| of_pool.slice).collect()
    }

    pub(super) fn taint_times(&self) -> TaintTimes {
        let mut times = TaintTimes::default();
        times.extend(self.slices.iter().map(|of_pool| &of_pool.slice.taint_times));
        times
    }

    /// A slice that has to go because another one stands for the same part of the pool. The one that has our name
    /// goes first: a publisher that also writes this pool would create its own again.
    pub(super) fn duplicate(&self, wish: &PoolWish) -> Option<&OfPool<'a>> {
        let current: Vec<_> = self.slices.iter().filter(|slice| slice.current).collect();
        let count =
            current.iter().map(|slice| slice.count()).max().and_then(|count| usize::try_from(count).ok())?;
        if current.len() <= count {
            return None;
        }
        let mut by_index: BTreeMap<usize, Vec<&OfPool<'a>>> = BTreeMap::new();
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

impl OfPool<'_> {
    pub(super) fn name(&self) -> &str {
        self.slice.name()
    }

    pub(super) fn count(&self) -> i64 {
        self.slice.count
    }

    pub(super) fn delete(&self) -> Step {
        super::delete(self.slice)
    }

    /// The slice's metadata with the owner made right.
    pub(super) fn metadata(&self, wish: &PoolWish) -> ObjectMeta {
        let mut metadata = self.slice.metadata.clone();
        if let Some(owner) = wish.owner.as_ref().filter(|_| !self.has_owner(wish)) {
            let owners = metadata.owner_references.get_or_insert_default();
            owners.retain(|other| other.kind != owner.kind);
            owners.push(owner.clone());
        }
        metadata
    }

    /// Whether the slice has the owner wished for; another publisher may have set more fields of it.
    pub(super) fn has_owner(&self, wish: &PoolWish) -> bool {
        let Some(owner) = &wish.owner else { return true };
        let same = |other: &OwnerReference| {
            (&other.kind, &other.name, &other.uid) == (&owner.kind, &owner.name, &owner.uid)
        };
        self.slice.metadata.owner_references.iter().flatten().any(same)
    }
}
