//! A plan whose slices are not made yet.
//!
//! In the types of the API, ten thousand devices take some fifty megabytes. So planning handles only names, numbers and
//! digests, and a slice is made when it is its turn to be sent.

use std::sync::Arc;

use k8s_openapi::{
    api::resource::v1::{ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{Plan, Write};
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
    /// What the API server stores of it.
    pub(super) stored: ContentDigest,
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
    pub(super) fn new(wish: PoolWish, times: TaintTimes, parts: Vec<Part>) -> Self {
        let parts = parts
            .into_iter()
            .map(|part| WishedPart { stored: stored(&wish, wish.spec(&part, &times)), part })
            .collect();
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
        // An API server that does not know them refuses a slice with lists.
        let refused = &self.wish.dropped & &Features::from([Feature::ListTypeAttributes]);
        let mut spec = features::without(self.wish.spec(part, &self.times), &refused);
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
    Step::Create(sketch(wished, position, metadata))
}

/// Makes an observed slice the wished one at `position`.
pub(super) fn update(wished: &Arc<Wished>, position: usize, metadata: ObjectMeta) -> Step {
    Step::Update(sketch(wished, position, metadata))
}

pub(super) fn delete(slice: &ObservedSlice) -> Step {
    Step::Delete {
        name: slice.name().to_owned(),
        uid: slice.metadata.uid.clone(),
        resource_version: slice.metadata.resource_version.clone(),
    }
}

fn sketch(wished: &Arc<Wished>, position: usize, metadata: ObjectMeta) -> Sketch {
    Sketch { metadata, part: wished.parts[position].part.clone(), of: Arc::clone(wished) }
}

/// What the API server stores of a spec.
fn stored(wish: &PoolWish, spec: ResourceSliceSpec) -> ContentDigest {
    if !wish.tolerated.is_empty() {
        let sent = ContentDigest::of(spec.clone());
        if let Some((_, stored)) = wish.tolerated.iter().find(|(known, _)| *known == sent) {
            return *stored;
        }
    }
    ContentDigest::of(features::without(spec, &wish.dropped))
}
