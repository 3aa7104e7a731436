//! A plan whose slices are not made yet.
//!
//! In the types of the API, ten thousand devices take some fifty megabytes. So planning handles only names, numbers and
//! digests, and a slice is made when it is its turn to be sent.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    Plan, Write,
    observed::{Observed, OfPool},
};
use crate::{
    Feature, PoolWish,
    equal::{ContentDigest, TaintTimes},
    features::{self, Features},
    layout::Part,
    observed::ObservedSlice,
    slice_name::slice_name,
};

/// [`Plan`] with slices still to be made.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) steps: Vec<Step>,
    pub(crate) generation: i64,
    pub(crate) slices: usize,
    pub(crate) needs_fresh_list: bool,
    /// Consumers see the pool whole now, and would not while the plan lasts.
    pub(crate) hides_pool: bool,
    /// The features whose fields are missing in the API, as far as the plan leaves that as it is.
    pub(crate) reduced: Features,
}

/// [`Write`] with the slice still to be made.
#[derive(Debug)]
pub(crate) enum Step {
    Create(Sketch),
    Update(Sketch),
    Delete { name: String, uid: Option<String>, resource_version: Option<String> },
}

/// A slice still to be made.
#[derive(Debug)]
pub(crate) struct Sketch {
    metadata: ObjectMeta,
    part: Part,
    of: Arc<Wished>,
    /// The features that the slice has needed until now.
    pub(crate) before: Features,
    /// Whether the content becomes another one, and not only the generation or the metadata.
    pub(crate) is_new: bool,
}

/// The slices of a pool as they shall be.
#[derive(Clone, Debug)]
pub(super) struct Wished {
    wish: PoolWish,
    times: TaintTimes,
    pub(super) parts: Vec<WishedPart>,
    generation: i64,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct WishedPart {
    part: Part,
    /// The features of it that the API server drops.
    dropped: Features,
    /// Those that are not even sent, because the API server would refuse them.
    withheld: Features,
    /// What the API server stores of it, by the features that are missing then.
    stored: Vec<(Features, ContentDigest)>,
    /// What it stores instead, if nothing explains it.
    tolerated: Option<ContentDigest>,
}

impl WishedPart {
    fn new(wish: &PoolWish, part: Part, times: &TaintTimes, observed: &[&ObservedSlice]) -> Self {
        let spec = sent(wish, &part, times);
        let full = ContentDigest::of(spec.clone());
        let tolerated = wish.tolerated.iter().find(|(known, _)| *known == full).map(|(_, stored)| *stored);
        let dropped =
            if wish.dropped.is_empty() { Features::new() } else { &features::used(&spec) & &wish.dropped };
        let lists = &wish.dropped & &Features::from([Feature::ListTypeAttributes]);
        let withheld =
            if lists.is_empty() { lists } else { &features::used(&wish.spec(&part, times)) & &lists };
        let mut part = Self { part, dropped, withheld, stored: vec![(Features::new(), full)], tolerated };
        let missing = observed.iter().map(|found| part.missing_in(found)).chain([part.dropped.clone()]);
        for missing in missing.collect::<BTreeSet<_>>().into_iter().filter(|missing| !missing.is_empty()) {
            let stored = ContentDigest::of(features::without(spec.clone(), &missing));
            part.stored.push((missing, stored));
        }
        part
    }

    /// What the API server drops if the part takes the place of this slice: it keeps what a slice has already.
    fn missing_in(&self, found: &ObservedSlice) -> Features {
        &self.dropped - &found.features
    }

    /// The features that are missing in the slice; `None` if its content is another one.
    pub(super) fn missing_if_stored(&self, found: &ObservedSlice) -> Option<Features> {
        let missing = self.missing_in(found);
        let stored = self.stored.iter().find(|(known, _)| *known == missing).map(|(_, stored)| *stored);
        [stored, self.tolerated].contains(&Some(found.content)).then(|| &missing | &self.withheld)
    }

    pub(super) fn is_stored_as(&self, found: &ObservedSlice) -> bool {
        self.missing_if_stored(found).is_some()
    }
}

impl Draft {
    /// These steps and nothing more.
    pub(crate) fn of(steps: Vec<Step>) -> Self {
        Self { steps, ..Self::default() }
    }

    /// The plan with all slices made.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            writes: self.steps.iter().map(Step::write).collect(),
            generation: self.generation,
            slices: self.slices,
            needs_fresh_list: self.needs_fresh_list,
        }
    }
}

impl Step {
    pub(crate) fn is_create(&self) -> bool {
        matches!(self, Self::Create(_))
    }

    /// The write, with the slice made.
    pub(crate) fn write(&self) -> Write {
        match self {
            Self::Create(sketch) => Write::Create(Box::new(sketch.slice())),
            Self::Update(sketch) => Write::Update(Box::new(sketch.slice())),
            Self::Delete { name, uid, resource_version } => Write::Delete {
                name: name.clone(),
                uid: uid.clone(),
                resource_version: resource_version.clone(),
            },
        }
    }
}

impl Sketch {
    /// Makes the slice.
    pub(crate) fn slice(&self) -> ResourceSlice {
        ResourceSlice { metadata: self.metadata.clone(), spec: self.of.spec(&self.part) }
    }
}

impl Wished {
    pub(super) fn new(wish: PoolWish, parts: Vec<Part>, observed: &Observed<'_>) -> Self {
        let (times, slices) = (observed.taint_times(), observed.slices());
        let parts = parts.into_iter().map(|part| WishedPart::new(&wish, part, &times, &slices)).collect();
        Self { wish, times, parts, generation: 0 }
    }

    /// The same in this generation.
    pub(super) fn at(&self, generation: i64) -> Arc<Self> {
        Arc::new(Self { generation, ..self.clone() })
    }

    pub(super) fn wish(&self) -> &PoolWish {
        &self.wish
    }

    /// The spec to send.
    fn spec(&self, part: &Part) -> ResourceSliceSpec {
        let mut spec = sent(&self.wish, part, &self.times);
        spec.pool.generation = self.generation;
        spec.pool.resource_slice_count = i64::try_from(self.parts.len()).unwrap_or(i64::MAX);
        spec
    }
}

/// Creates the wished slice at `position` under the name of slice `index`.
pub(super) fn create(wished: &Arc<Wished>, position: usize, index: usize) -> Step {
    let wish = &wished.wish;
    let metadata = ObjectMeta {
        name: Some(slice_name(&wish.scope, &wish.pool, index, wished.parts.len(), wish.salt)),
        owner_references: wish.owner.clone().map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Step::Create(Sketch {
        metadata,
        part: wished.parts[position].part.clone(),
        of: Arc::clone(wished),
        before: Features::new(),
        is_new: true,
    })
}

/// Makes an observed slice the wished one at `position`.
pub(super) fn update(wished: &Arc<Wished>, position: usize, found: &OfPool<'_>) -> Step {
    let part = &wished.parts[position];
    Step::Update(Sketch {
        metadata: found.metadata(&wished.wish),
        part: part.part.clone(),
        of: Arc::clone(wished),
        before: found.slice.features.clone(),
        is_new: !part.is_stored_as(found.slice),
    })
}

pub(super) fn delete(slice: &ObservedSlice) -> Step {
    Step::Delete {
        name: slice.name().to_owned(),
        uid: slice.metadata.uid.clone(),
        resource_version: slice.metadata.resource_version.clone(),
    }
}

/// What is sent of a part. An API server that does not know lists refuses a slice with them.
fn sent(wish: &PoolWish, part: &Part, times: &TaintTimes) -> ResourceSliceSpec {
    features::without(
        wish.spec(part, times),
        &(&wish.dropped & &Features::from([Feature::ListTypeAttributes])),
    )
}
