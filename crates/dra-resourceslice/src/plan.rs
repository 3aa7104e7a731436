//! From what is wished and what is observed to the writes in between, without any I/O.
//!
//! Consumers of a pool look only at its highest generation, and use it only if it has as many slices as each of
//! them says. The writes are ordered so that after each of them consumers see the old pool whole, the new pool
//! whole, or an incomplete one; never a mix that looks whole. So a plan can be interrupted anywhere, and planning
//! again from what is there then goes on where it stopped.

mod draft;
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

use k8s_openapi::api::resource::v1::ResourceSlice;

pub(crate) use self::draft::{Draft, Sketch, Step};
use self::{
    draft::{Wished, delete},
    observed::Observed,
};
use crate::{PoolWish, layout::layout, observed::ObservedSlice};

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
    let in_scope = observed.iter().filter(|slice| desired.scope.contains(slice));
    let observed: Vec<_> = in_scope.cloned().map(ObservedSlice::of).collect();
    draft(desired.clone(), &observed).plan()
}

/// The same with slices still to be made.
pub(crate) fn draft<'a>(wish: PoolWish, observed: impl IntoIterator<Item = &'a ObservedSlice>) -> Draft {
    let wish = wish.without_left_out();
    let observed = Observed::of(&wish, observed);
    let parts = layout(&wish, &observed.slices());
    if parts.is_empty() {
        return observed.removal();
    }
    if let Some(duplicate) = observed.duplicate(&wish) {
        return Draft {
            steps: vec![duplicate.delete()],
            generation: observed.generation,
            slices: parts.len(),
            needs_fresh_list: true,
            ..Draft::default()
        };
    }
    let wished = Wished::new(wish, parts, &observed);
    in_place::plan(&wished, &observed).unwrap_or_else(|| renewed::plan(&wished, &observed))
}

/// The steps that remove a pool. Old generations go first: nobody sees them while there is a newer one.
pub(crate) fn plan_removal<'a>(observed: impl IntoIterator<Item = &'a ObservedSlice>) -> Vec<Step> {
    let mut slices: Vec<_> = observed.into_iter().collect();
    slices.sort_by_key(|slice| (slice.generation, slice.name()));
    slices.into_iter().map(delete).collect()
}
