//! From what is wished and what is observed to the writes in between, without any I/O.
//!
//! Consumers of a pool look only at its highest generation, and use it only if it has as many slices as each of
//! them says. The writes are ordered so that after each of them consumers see the old pool whole, the new pool
//! whole, or an incomplete one; never a mix that looks whole. So a plan can be interrupted anywhere, and planning
//! again from what is there then goes on where it stopped.

mod in_place;
mod matching;
mod observed;
mod renewed;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;

use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};

use self::observed::Observed;
use crate::{
    Feature, PoolWish,
    equal::ContentDigest,
    features::{self, Features},
    layout::layout,
};

/// The writes that make a pool what is wished.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The writes, to be done in this order.
    pub writes: Vec<Write>,
    /// The pool's generation once they are done.
    pub generation: i64,
    /// How many slices the pool has once they are done.
    pub slices: usize,
    /// The plan deletes one of two slices that stand for the same part of the pool. Another publisher may be about
    /// to do so too, so the caller should list afresh and plan again before it does this.
    pub needs_fresh_list: bool,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Write {
    /// Create a slice with the name it has.
    Create(Box<ResourceSlice>),
    /// Replace a slice, if it still has the resource version that was observed.
    Update(Box<ResourceSlice>),
    /// Delete a slice, if it still has the UID and resource version that were observed.
    #[non_exhaustive]
    Delete {
        /// The slice's name.
        name: String,
        /// The UID that was observed.
        uid: Option<String>,
        /// The resource version that was observed.
        resource_version: Option<String>,
    },
}

impl Write {
    /// The name of the slice that is written.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Create(slice) | Self::Update(slice) => slice.metadata.name.as_deref().unwrap_or_default(),
            Self::Delete { name, .. } => name,
        }
    }
}

/// Finds the writes that turn the observed slices of a pool into the wished ones.
///
/// Slices of other drivers, nodes and pools among `observed` are ignored. The result depends on nothing else, and
/// is empty when nothing is to be done: nil equals empty, quantities are compared by value, and neither the names
/// of slices nor where another publisher has cut the pool are a reason to write.
///
/// ```
/// use dra_resourceslice::{Device, DriverName, NodeName, Pool, PoolName, PoolWish, Scope, Write, plan};
///
/// let node = NodeName::new("node-1")?;
/// let scope = Scope::node(DriverName::new("gpu.example.com")?, node.clone());
/// let (wish, problems) = PoolWish::new(&scope, &PoolName::from(&node), &Pool::new([Device::named("gpu-0")?]));
/// assert!(problems.is_empty());
///
/// let first = plan(&wish.expect("no problems"), &[]);
/// assert!(matches!(first.writes.as_slice(), [Write::Create(_)]));
/// assert_eq!(first.generation, 1);
/// # Ok::<(), dra_resourceslice::InvalidName>(())
/// ```
#[must_use]
pub fn plan(desired: &PoolWish, observed: &[ResourceSlice]) -> Plan {
    plan_from(desired.clone(), observed)
}

/// The same for a caller that keeps its slices elsewhere.
pub(crate) fn plan_from<'a>(
    mut wish: PoolWish,
    observed: impl IntoIterator<Item = &'a ResourceSlice>,
) -> Plan {
    let observed = Observed::of(&wish, observed);
    wish.adopt_times(&observed.taint_times());
    let slices = Wished::all(&wish, layout(&wish, &observed.specs()));
    if slices.is_empty() {
        return observed.removal();
    }
    if let Some(duplicate) = observed.duplicate(&wish) {
        return Plan {
            writes: vec![duplicate.delete()],
            generation: observed.generation,
            slices: slices.len(),
            needs_fresh_list: true,
        };
    }
    in_place::plan(&wish, &slices, &observed).unwrap_or_else(|| renewed::plan(&wish, &slices, &observed))
}

/// The writes that remove a pool. Old generations go first: nobody sees them while there is a newer one.
pub(crate) fn plan_removal(observed: &[ResourceSlice]) -> Vec<Write> {
    let mut slices: Vec<_> = observed.iter().collect();
    slices.sort_by_key(|slice| (slice.spec.pool.generation, slice.metadata.name.as_deref()));
    slices.into_iter().map(delete).collect()
}

/// A slice as it shall be.
struct Wished {
    /// What is sent, but for generation and count.
    spec: ResourceSliceSpec,
    /// What the API server stores of it.
    stored: ContentDigest,
}

impl Wished {
    fn all(wish: &PoolWish, specs: Vec<ResourceSliceSpec>) -> Vec<Self> {
        let stored = |spec: &ResourceSliceSpec| {
            let sent = ContentDigest::of(spec);
            match wish.tolerated.iter().find(|(known, _)| *known == sent) {
                Some((_, stored)) => *stored,
                None if wish.dropped.is_empty() => sent,
                None => ContentDigest::of(&features::without(spec, &wish.dropped)),
            }
        };
        // An API server that does not know them refuses a slice with lists.
        let lists = Features::from([Feature::ListTypeAttributes]);
        let refused = &wish.dropped & &lists;
        specs
            .into_iter()
            .map(|spec| Self { stored: stored(&spec), spec: features::without(&spec, &refused) })
            .collect()
    }

    /// The spec to send.
    fn at(&self, generation: i64, count: usize) -> ResourceSliceSpec {
        let mut spec = self.spec.clone();
        spec.pool.generation = generation;
        spec.pool.resource_slice_count = i64::try_from(count).unwrap_or(i64::MAX);
        spec
    }
}

fn delete(slice: &ResourceSlice) -> Write {
    Write::Delete {
        name: slice.metadata.name.clone().unwrap_or_default(),
        uid: slice.metadata.uid.clone(),
        resource_version: slice.metadata.resource_version.clone(),
    }
}
