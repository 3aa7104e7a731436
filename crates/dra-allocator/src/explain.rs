//! Why claims get no devices: what keeps each one away. Without I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::allocate::{Known, Objects};
use crate::capacity;
use crate::constraints;
use crate::counters::Counters;
use crate::error::AllocationError;
use crate::model::{Claim, Device, DeviceKey, Slice};
use crate::obstacle::Obstacle;
use crate::pools::{self, Pool, PoolState};
use crate::requests::{self, Alternative, Wanted};
use crate::search::{InUse, Search};
use crate::taints;

/// What was found out about claims on one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explanation {
    /// Why the claims cannot be allocated, or nothing if they can.
    pub error: Option<AllocationError>,
    /// What each request, or each alternative of it, asks for, and what is to be said of the devices.
    pub requests: Vec<RequestExplanation>,
    /// Pools with devices for the node of which none is used, and why: driver and name of the pool.
    pub unusable_pools: Vec<(String, String)>,
}

/// What was found out about a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestExplanation {
    /// Name of the claim.
    pub claim: String,
    /// Name of the request, or `request/alternative`.
    pub request: String,
    /// How many devices are asked for, or nothing for all of them.
    pub wanted: Option<usize>,
    /// The devices of the usable pools.
    pub devices: Vec<DeviceExplanation>,
}

/// What was found out about a device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceExplanation {
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// All that keeps it away. Empty if the request could have it, if it asked for nothing else.
    pub obstacles: Vec<Obstacle>,
}

impl RequestExplanation {
    /// How many devices the request could have, each by itself.
    #[must_use]
    pub fn free(&self) -> usize {
        self.devices.iter().filter(|device| device.obstacles.is_empty()).count()
    }
}

/// Says of each device for this node what keeps it from claims that are not allocated, by the rules of
/// [`allocate`](crate::allocate).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_allocator::{Known, explain};
/// use serde_json::{from_value, json};
///
/// let slice = from_value(json!({"metadata": {"name": "slice-1"}, "spec": {
///     "driver": "gpu.example.com", "nodeName": "node-1",
///     "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
///     "devices": [{"name": "gpu-0", "taints": [{"key": "broken", "effect": "NoSchedule"}]}],
/// }}))?;
/// let class = from_value(json!({"metadata": {"name": "gpu"}, "spec": {}}))?;
/// let claim = from_value(json!({"metadata": {"name": "claim-1"}, "spec": {"devices": {"requests": [
///     {"name": "gpu", "exactly": {"deviceClassName": "gpu"}},
/// ]}}}))?;
/// let node = from_value(json!({"metadata": {"name": "node-1"}}))?;
///
/// let known = Known { slices: &[slice], classes: &[class], claims: &[], taint_rules: &[] };
/// let explanation = explain(&known, &node, &[claim])?;
/// let device = &explanation.requests[0].devices[0];
/// assert_eq!(device.obstacles[0].to_string(), "taint broken:NoSchedule is not tolerated");
/// # Ok(()) }
/// ```
///
/// # Errors
/// If a class does not exist, a selector does not parse, something is asked that is not supported, or an object has
/// something that no API server would have stored.
pub fn explain(
    known: &Known<'_>,
    node: &Node,
    claims: &[ResourceClaim],
) -> Result<Explanation, AllocationError> {
    let objects = Objects::read(known, claims)?;
    let (wanted, in_use) = (objects.wanted()?, objects.in_use());
    let pools = pools::gather(&objects.slices, node);
    let error = Search::new(&pools, node, &wanted, &in_use).and_then(Search::run).err();
    let look = Look { node, in_use: &in_use, holders: holders(&objects.known), pools: &pools };
    let requests: Result<_, _> = wanted.iter().flat_map(|claim| look.at_claim(claim)).collect();
    Ok(Explanation {
        error,
        requests: requests?,
        unusable_pools: pools.iter().filter_map(unusable).collect(),
    })
}

/// Who holds each device, by namespace and name of the claim.
fn holders(claims: &[Claim]) -> BTreeMap<DeviceKey, Vec<String>> {
    let mut holders: BTreeMap<DeviceKey, Vec<String>> = BTreeMap::new();
    for claim in claims {
        let results = claim.status.allocation.devices.results.iter();
        for result in results.filter(|result| !result.admin_access) {
            let key = (result.driver.clone(), result.pool.clone(), result.device.clone());
            let name = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
            let names = holders.entry(key).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    holders
}

fn unusable(pool: &Pool<'_>) -> Option<(String, String)> {
    let name = format!("{}/{}", pool.key.0, pool.key.1);
    match &pool.state {
        PoolState::Usable => None,
        PoolState::Incomplete => Some((name, "some of its ResourceSlices are missing".into())),
        PoolState::Invalid(reason) => Some((name, reason.clone())),
    }
}

struct Look<'a> {
    node: &'a Node,
    in_use: &'a InUse,
    holders: BTreeMap<DeviceKey, Vec<String>>,
    pools: &'a [Pool<'a>],
}

impl Look<'_> {
    fn at_claim(&self, claim: &Wanted<'_>) -> Vec<Result<RequestExplanation, AllocationError>> {
        let alternatives = claim.requests.iter().flat_map(|request| {
            request.alternatives.iter().map(move |alternative| (request.name, alternative))
        });
        let explain = |(request, asked): (&str, &Alternative<'_>)| {
            Ok(RequestExplanation {
                claim: claim.claim.metadata.name.clone(),
                request: asked.name.clone(),
                wanted: asked.count,
                devices: self.at_devices(claim, request, asked)?,
            })
        };
        alternatives.map(explain).collect()
    }

    fn at_devices(
        &self,
        claim: &Wanted<'_>,
        request: &str,
        asked: &Alternative<'_>,
    ) -> Result<Vec<DeviceExplanation>, AllocationError> {
        let mut found = Vec::new();
        for pool in self.pools.iter().filter(|pool| pool.state == PoolState::Usable) {
            let devices = pool.slices.iter().chain(&pool.elsewhere).flat_map(|slice| &slice.spec.devices);
            let counters = Counters::in_use(devices.filter(|device| self.in_use.has(&pool.key_of(device))));
            for slice in &pool.slices {
                for device in &slice.spec.devices {
                    let (driver, name, device_name) = pool.key_of(device);
                    let mut obstacles = self.at_device(pool, slice, device, &counters, asked)?;
                    obstacles.extend(
                        constraints::lacking(
                            &claim.claim.spec.devices.constraints,
                            &driver,
                            device,
                            request,
                            &asked.name,
                        )
                        .map(|attribute| Obstacle::NoAttribute { attribute }),
                    );
                    found.push(DeviceExplanation { driver, pool: name, device: device_name, obstacles });
                }
            }
        }
        Ok(found)
    }

    fn at_device(
        &self,
        pool: &Pool<'_>,
        slice: &Slice,
        device: &Device,
        counters: &Counters,
        asked: &Alternative<'_>,
    ) -> Result<Vec<Obstacle>, AllocationError> {
        let key = pool.key_of(device);
        let mut obstacles = by_selectors(slice, device, &key, asked)?;
        if slice.spec.per_device_node_selection && !pools::includes(&device.place, self.node) {
            obstacles.push(Obstacle::OtherNode);
        }
        obstacles.extend(
            taints::forbidding(device, &asked.tolerations)
                .map(|taint| Obstacle::Taint { taint: taint.to_string(), rule: taint.rule.clone() }),
        );
        if asked.is_admin {
            return Ok(obstacles);
        }
        let by = self.holders.get(&key).cloned().unwrap_or_default();
        if self.in_use.holds_whole(&key) {
            obstacles.push(Obstacle::Held { by });
            return Ok(obstacles);
        }
        let is_further_share = device.allow_multiple_allocations && self.in_use.has(&key);
        if !is_further_share && let Some(shortage) = counters.shortage(pool, device) {
            obstacles.push(Obstacle::Counters { shortage, by: self.holders_in(pool) });
        }
        let consumed = self.in_use.consumed(&key);
        let lacks = capacity::lacks(device, &asked.ask.capacity.requests, &consumed);
        obstacles.extend(lacks.into_iter().map(|lack| Obstacle::Capacity { lack, by: by.clone() }));
        Ok(obstacles)
    }

    /// The claims that hold devices of a pool.
    fn holders_in(&self, pool: &Pool<'_>) -> Vec<String> {
        let of_pool =
            self.holders.iter().filter(|((driver, name, _), _)| (driver, name) == (&pool.key.0, &pool.key.1));
        let mut names: Vec<String> = of_pool.flat_map(|(_, names)| names.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn by_selectors(
    slice: &Slice,
    device: &Device,
    (driver, pool, name): &DeviceKey,
    asked: &Alternative<'_>,
) -> Result<Vec<Obstacle>, AllocationError> {
    if asked.selectors.is_empty() {
        return Ok(Vec::new());
    }
    let subject = device.subject(&slice.spec.driver).map_err(|error| {
        requests::selector_error("ResourceSlice", &format!("{driver}/{pool}/{name}"), error)
    })?;
    let unmet = asked.selectors.iter().flat_map(|(place, selector)| {
        let unmet = selector.explain(&subject).into_iter();
        unmet.map(|unmet| Obstacle::Selector { place: place.clone(), unmet })
    });
    Ok(unmet.collect())
}

#[cfg(test)]
mod tests;
