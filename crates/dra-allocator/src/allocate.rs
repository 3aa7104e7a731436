//! Allocation: which devices claims get on a node. Without I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};

use crate::error::AllocationError;
use crate::model::{self, Claim, Class, Slice};
use crate::pools;
use crate::requests::{self, Wanted};
use crate::result;
use crate::search::{InUse, Search};
use crate::taints::{self, TaintRule};

/// What the scheduler knows when it allocates.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs, reason = "these are all the objects that the decision rests on")]
pub struct Known<'a> {
    /// All slices.
    pub slices: &'a [ResourceSlice],
    /// All classes.
    pub classes: &'a [DeviceClass],
    /// All claims: devices of those that are allocated are in use.
    pub claims: &'a [ResourceClaim],
    /// All DeviceTaintRules.
    pub taint_rules: &'a [TaintRule],
}

/// Allocates claims of a pod for use on this node, as the scheduler of Kubernetes 1.37 does with all its feature gates on:
/// one allocation for each claim, or an error if they cannot be had together. A pure function, but for the ids of shares.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_allocator::{Known, allocate};
/// use serde_json::{from_value, json};
///
/// let slice = from_value(json!({"metadata": {"name": "slice-1"}, "spec": {
///     "driver": "gpu.example.com", "nodeName": "node-1",
///     "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
///     "devices": [
///         {"name": "gpu-0", "attributes": {"model": {"string": "T4"}}},
///         {"name": "gpu-1", "attributes": {"model": {"string": "A100"}}},
///     ],
/// }}))?;
/// let class = from_value(json!({"metadata": {"name": "gpu"}, "spec": {}}))?;
/// let claim = from_value(json!({"metadata": {"name": "claim-1"}, "spec": {"devices": {"requests": [
///     {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [
///         {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'A100'"}},
///     ]}},
/// ]}}}))?;
/// let node = from_value(json!({"metadata": {"name": "node-1"}}))?;
///
/// let known = Known { slices: &[slice], classes: &[class], claims: &[], taint_rules: &[] };
/// let allocations = allocate(&known, &node, &[claim])?;
/// let results = allocations[0].devices.as_ref().and_then(|devices| devices.results.as_ref());
/// assert_eq!(results.ok_or("nothing")?[0].device, "gpu-1");
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the devices are not there, a class does not exist, a selector fails, or something is asked that is not supported.
pub fn allocate(
    known: &Known<'_>,
    node: &Node,
    claims: &[ResourceClaim],
) -> Result<Vec<AllocationResult>, AllocationError> {
    let objects = Objects::read(known, claims)?;
    let (wanted, in_use) = (objects.wanted()?, objects.in_use());
    let pools = pools::gather(&objects.slices, node);
    let solution = Search::new(&pools, node, &wanted, &in_use)?.run()?;
    (0..wanted.len()).map(|number| result::allocation(&wanted, number, &solution, node)).collect()
}

/// The objects that a decision rests on, read.
pub(crate) struct Objects {
    pub(crate) slices: Vec<Slice>,
    classes: BTreeMap<String, Class>,
    /// All claims that there are.
    pub(crate) known: Vec<Claim>,
    /// Those that are asked about.
    claims: Vec<Claim>,
}

impl Objects {
    /// # Errors
    /// If an object has something that no API server would have stored.
    pub(crate) fn read(known: &Known<'_>, claims: &[ResourceClaim]) -> Result<Self, AllocationError> {
        let mut slices = read_all(known.slices, "a ResourceSlice")?;
        taints::apply(known.taint_rules, &mut slices);
        let classes: Vec<Class> = read_all(known.classes, "a DeviceClass")?;
        Ok(Self {
            slices,
            classes: classes.into_iter().map(|class| (class.metadata.name.clone(), class)).collect(),
            known: read_all(known.claims, "a ResourceClaim")?,
            claims: read_all(claims, "a ResourceClaim")?,
        })
    }

    /// # Errors
    /// If a class does not exist, a selector is not valid, or something is asked that is not supported.
    pub(crate) fn wanted(&self) -> Result<Vec<Wanted<'_>>, AllocationError> {
        self.claims.iter().map(|claim| requests::wanted(claim, &self.classes)).collect()
    }

    pub(crate) fn in_use(&self) -> InUse {
        InUse::new(self.known.iter().flat_map(|claim| &claim.status.allocation.devices.results))
    }
}

fn read_all<T: serde::de::DeserializeOwned>(
    objects: &[impl serde::Serialize],
    place: &str,
) -> Result<Vec<T>, AllocationError> {
    objects.iter().map(|object| model::read(object, place)).collect()
}

#[cfg(test)]
mod tests;
