//! Allocation by count: which devices a claim gets. Without I/O.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceClass, DeviceRequest,
    DeviceRequestAllocationResult, DeviceTaint, DeviceToleration, ExactDeviceRequest, ResourceClaim,
    ResourceSlice,
};

use super::class;
use super::error::SchedulerError;
use super::nodes;
use super::pools::{self, DeviceKey, Offer};
use crate::compat;

/// What the control plane knows when it allocates.
#[derive(Debug)]
pub(super) struct Inventory<'a> {
    pub(super) classes: &'a BTreeMap<String, DeviceClass>,
    pub(super) slices: &'a [ResourceSlice],
    pub(super) in_use: BTreeSet<DeviceKey>,
}

/// The devices that claims hold. Access for administrators holds nothing.
pub(super) fn in_use(claims: &[ResourceClaim]) -> BTreeSet<DeviceKey> {
    let results =
        claims.iter().filter_map(|claim| claim.status.as_ref()?.allocation.as_ref()).flat_map(results);
    results
        .filter(|result| result.admin_access != Some(true))
        .map(|result| (result.driver.clone(), result.pool.clone(), result.device.clone()))
        .collect()
}

fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten())
}

/// Allocates a claim for use on this node. The devices it gets are in use afterwards.
///
/// # Errors
/// If there are not enough devices, a class does not exist, or the claim asks for something that is not supported.
pub(super) fn allocate(
    claim: &ResourceClaim,
    node: &Node,
    inventory: &mut Inventory<'_>,
) -> Result<AllocationResult, SchedulerError> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let asks = compat::claim_spec(claim).and_then(|spec| spec.devices.as_ref());
    if asks.is_some_and(|asks| asks.constraints.as_ref().is_some_and(|constraints| !constraints.is_empty())) {
        return Err(unsupported(name, "spec.devices.constraints", "a constraint between devices"));
    }
    let offers = pools::offers(inventory.slices, node);
    let mut taken = Taken { in_use: &mut inventory.in_use, new: Vec::new() };
    let mut allocation = DeviceAllocationResult::default();
    let mut node_local = false;
    for request in asks.iter().flat_map(|asks| asks.requests.iter().flatten()) {
        let exactly = exactly(name, request)?;
        let class =
            inventory.classes.get(&exactly.device_class_name).ok_or_else(|| SchedulerError::Missing {
                wanted_by: format!("ResourceClaim {name:?}"),
                kind: "DeviceClass",
                name: exactly.device_class_name.clone(),
            })?;
        let chosen = choose(name, &request.name, exactly, class, &offers, &mut taken)?;
        node_local |= chosen.iter().any(|offer| offer.slice.spec.node_name.is_some());
        let results = chosen.into_iter().map(|offer| result(&request.name, exactly, offer));
        allocation.results.get_or_insert_default().extend(results);
        allocation.config.get_or_insert_default().extend(class_config(&request.name, class));
    }
    let configs = asks.iter().flat_map(|asks| asks.config.iter().flatten());
    allocation.config.get_or_insert_default().extend(configs.map(|config| DeviceAllocationConfiguration {
        opaque: config.opaque.clone(),
        requests: config.requests.clone(),
        source: "FromClaim".into(),
    }));
    taken.keep();
    let node_name = node.metadata.name.as_deref().unwrap_or_default();
    Ok(AllocationResult {
        devices: Some(allocation),
        node_selector: node_local.then(|| nodes::only(node_name)),
        ..AllocationResult::default()
    })
}

/// Devices in use; what was added is given back unless it is kept.
struct Taken<'a> {
    in_use: &'a mut BTreeSet<DeviceKey>,
    new: Vec<DeviceKey>,
}

impl Taken<'_> {
    fn take(&mut self, key: DeviceKey) -> bool {
        let is_free = self.in_use.insert(key.clone());
        if is_free {
            self.new.push(key);
        }
        is_free
    }

    fn keep(mut self) {
        self.new.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for key in &self.new {
            self.in_use.remove(key);
        }
    }
}

fn exactly<'a>(claim: &str, request: &'a DeviceRequest) -> Result<&'a ExactDeviceRequest, SchedulerError> {
    let place = format!("request {:?}", request.name);
    let Some(exactly) = &request.exactly else {
        return Err(unsupported(claim, &place, "firstAvailable"));
    };
    if exactly.selectors.as_ref().is_some_and(|selectors| !selectors.is_empty()) {
        return Err(unsupported(claim, &place, "a selector of the request"));
    }
    if exactly.capacity.is_some() {
        return Err(unsupported(claim, &place, "a share of a device's capacity"));
    }
    match exactly.allocation_mode.as_deref() {
        None | Some("" | "ExactCount") => Ok(exactly),
        Some(mode) => Err(unsupported(claim, &place, &format!("allocationMode {mode}"))),
    }
}

fn choose<'a>(
    claim: &str,
    request: &str,
    exactly: &ExactDeviceRequest,
    class: &DeviceClass,
    offers: &[Offer<'a>],
    taken: &mut Taken<'_>,
) -> Result<Vec<Offer<'a>>, SchedulerError> {
    let driver = class::driver(class)?;
    let tolerations = exactly.tolerations.as_deref().unwrap_or_default();
    let wanted = usize::try_from(exactly.count.unwrap_or(1)).unwrap_or(0);
    let is_admin = exactly.admin_access == Some(true);
    let suits = |offer: &&Offer<'_>| {
        driver.as_ref().is_none_or(|driver| *driver == offer.slice.spec.driver)
            && offer.device.taints.iter().flatten().all(|taint| is_tolerated(taint, tolerations))
    };
    let free = offers.iter().filter(suits).filter(|offer| is_admin || taken.take(offer.key()));
    let chosen: Vec<Offer<'a>> = free.take(wanted).copied().collect();
    if chosen.len() < wanted {
        let (claim, request) = (claim.to_owned(), request.to_owned());
        return Err(SchedulerError::NotEnough { claim, request, wanted, found: chosen.len() });
    }
    Ok(chosen)
}

fn is_tolerated(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> bool {
    let tolerates = |toleration: &DeviceToleration| {
        let any_effect =
            toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
        let any_key = toleration.key.as_deref().is_none_or(|key| key.is_empty() || key == taint.key);
        let exists = toleration.operator.as_deref() == Some("Exists");
        any_effect
            && any_key
            && (exists || toleration.value.as_deref() == Some(taint.value.as_deref().unwrap_or_default()))
    };
    !matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") || tolerations.iter().any(tolerates)
}

fn result(request: &str, exactly: &ExactDeviceRequest, offer: Offer<'_>) -> DeviceRequestAllocationResult {
    let (driver, pool, device) = offer.key();
    DeviceRequestAllocationResult {
        request: request.to_owned(),
        driver,
        pool,
        device,
        admin_access: exactly.admin_access,
        tolerations: exactly.tolerations.clone(),
        ..DeviceRequestAllocationResult::default()
    }
}

fn class_config(request: &str, class: &DeviceClass) -> Vec<DeviceAllocationConfiguration> {
    let configs = compat::class_spec(class).into_iter().flat_map(|spec| spec.config.iter().flatten());
    configs
        .map(|config| DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: Some(vec![request.to_owned()]),
            source: "FromClass".into(),
        })
        .collect()
}

fn unsupported(claim: &str, place: &str, what: &str) -> SchedulerError {
    SchedulerError::Unsupported { place: format!("ResourceClaim {claim:?}, {place}"), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "node-1"}})).expect("a node")
    }

    fn slices() -> Vec<ResourceSlice> {
        let slice = |driver: &str, devices: Value| {
            let pool = json!({"name": "node-1", "generation": 1, "resourceSliceCount": 1});
            let spec = json!({"driver": driver, "nodeName": "node-1", "pool": pool, "devices": devices});
            serde_json::from_value(json!({"metadata": {"name": driver}, "spec": spec})).expect("a slice")
        };
        let taint = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
        vec![
            slice(
                "gpu.example.com",
                json!([{"name": "gpu-0"}, {"name": "gpu-1"}, {"name": "gpu-2", "taints": taint}]),
            ),
            slice("nic.example.com", json!([{"name": "nic-0"}])),
        ]
    }

    fn classes() -> BTreeMap<String, DeviceClass> {
        let class = |name: &str, spec: Value| {
            let class = json!({"metadata": {"name": name}, "spec": spec});
            (name.to_owned(), serde_json::from_value(class).expect("a class"))
        };
        let of_driver =
            |driver: &str| json!([{"cel": {"expression": format!("device.driver == '{driver}'")}}]);
        let config = json!([{"opaque": {"driver": "gpu.example.com", "parameters": {"from": "class"}}}]);
        BTreeMap::from([
            class("gpu", json!({"selectors": of_driver("gpu.example.com"), "config": config})),
            class("any", json!({})),
            class("odd", json!({"selectors": [{"cel": {"expression": "true"}}]})),
        ])
    }

    fn claim(requests: &Value) -> ResourceClaim {
        let config = json!([{"requests": ["a"], "opaque": {"driver": "gpu.example.com", "parameters": {}}}]);
        let spec = json!({"devices": {"requests": requests, "config": config}});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).expect("a claim")
    }

    fn request(exactly: &Value) -> Value {
        json!([{"name": "a", "exactly": exactly}])
    }

    /// Names of the devices, or the error, with these devices in use before.
    fn allocated(requests: &Value, in_use: &[&str]) -> Result<Vec<String>, String> {
        let (classes, slices) = (classes(), slices());
        let key = |device: &&str| ("gpu.example.com".into(), "node-1".into(), (*device).to_owned());
        let mut inventory =
            Inventory { classes: &classes, slices: &slices, in_use: in_use.iter().map(key).collect() };
        let before = inventory.in_use.len();
        let allocation = allocate(&claim(requests), &node(), &mut inventory);
        let names = allocation
            .map_err(|error| error.to_string())
            .map(|a| results(&a).map(|r| r.device.clone()).collect());
        if names.is_err() {
            assert_eq!(inventory.in_use.len(), before, "a failed allocation takes nothing");
        }
        names
    }

    #[test]
    fn free_devices_are_taken_in_order() {
        let gpus = |count: i64| request(&json!({"deviceClassName": "gpu", "count": count}));
        assert_eq!(allocated(&gpus(1), &[]).expect("free"), ["gpu-0"]);
        assert_eq!(allocated(&gpus(1), &["gpu-0"]).expect("free"), ["gpu-1"]);
        assert_eq!(allocated(&gpus(2), &[]).expect("free"), ["gpu-0", "gpu-1"]);
        let error = allocated(&gpus(2), &["gpu-0"]).expect_err("one is left");
        assert!(error.contains("1 of 2"), "{error}");
        let any = request(&json!({"deviceClassName": "any", "count": 3}));
        assert_eq!(allocated(&any, &[]).expect("free"), ["gpu-0", "gpu-1", "nic-0"]);
    }

    #[test]
    fn tainted_devices_need_a_toleration_and_admin_access_takes_nothing() {
        let tolerant = json!({"deviceClassName": "gpu", "count": 3, "tolerations": [{"operator": "Exists"}]});
        assert_eq!(allocated(&request(&tolerant), &[]).expect("free"), ["gpu-0", "gpu-1", "gpu-2"]);
        let admin = json!({"deviceClassName": "gpu", "adminAccess": true});
        assert_eq!(allocated(&request(&admin), &["gpu-0", "gpu-1"]).expect("shared"), ["gpu-0"]);
    }

    #[test]
    fn what_is_not_supported_says_so() {
        for (requests, what) in [
            (request(&json!({"deviceClassName": "odd"})), "the selector"),
            (request(&json!({"deviceClassName": "gpu", "allocationMode": "All"})), "allocationMode All"),
            (
                request(&json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}]})),
                "selector",
            ),
            (
                json!([{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "gpu"}]}]),
                "firstAvailable",
            ),
        ] {
            let error = allocated(&requests, &[]).expect_err("not supported");
            assert!(error.contains(what) && error.contains("not supported by the stand-in"), "{error}");
        }
        let error = allocated(&request(&json!({"deviceClassName": "none"})), &[]).expect_err("no such class");
        assert!(error.contains("does not exist"), "{error}");
    }

    #[test]
    fn the_result_has_configs_of_class_and_claim_and_the_node() {
        let (classes, slices) = (classes(), slices());
        let mut inventory = Inventory { classes: &classes, slices: &slices, in_use: BTreeSet::new() };
        let allocation =
            allocate(&claim(&request(&json!({"deviceClassName": "gpu"}))), &node(), &mut inventory)
                .expect("free");
        assert_eq!(allocation.node_selector, Some(nodes::only("node-1")));
        let config = allocation.devices.and_then(|devices| devices.config).expect("configs");
        let sources: Vec<&str> = config.iter().map(|config| config.source.as_str()).collect();
        assert_eq!(sources, ["FromClass", "FromClaim"]);
        assert_eq!(config[0].requests, Some(vec!["a".to_owned()]));
    }
}
