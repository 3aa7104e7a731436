//! The claim that the scheduler makes for extended resources of a pod that a class of devices serves.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::error::AllocationError;
use crate::{model, quantity};

/// Name of the claim as long as it is not allocated, as the scheduler has it; no object can be called so.
const NAME: &str = "<extended-resources>";
/// Each class serves the resource with this prefix and its name.
const OF_CLASS: &str = "deviceclass.resource.kubernetes.io/";
const NANOS: i128 = 1_000_000_000;

/// The claim that the scheduler allocates for the extended resources of a pod on this node: none if no class serves them,
/// or a device plugin of the node does. The API server has it only after it is allocated.
///
/// Source: `extendeddynamicresources.go` of the scheduler of Kubernetes 1.37.
///
/// # Errors
/// If a class has something that no API server would have stored.
pub fn implicit_claim(
    pod: &Pod,
    classes: &[DeviceClass],
    node: &Node,
) -> Result<Option<ResourceClaim>, AllocationError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let init_containers = spec.init_containers.unwrap_or_default();
    let mut containers: Vec<Used<'_>> =
        init_containers.iter().map(|container| Used::new(container, true)).collect();
    containers.extend(spec.containers.iter().map(|container| Used::new(container, false)));
    let names: BTreeSet<&str> = containers.iter().flat_map(|used| used.amounts.keys().copied()).collect();
    let mut requests: BTreeMap<String, Value> = BTreeMap::new();
    for resource in names.into_iter().filter(|name| is_extended(name)) {
        let Some(class) = class_for(resource, classes)? else { continue };
        if is_allocatable(resource, node) {
            continue;
        }
        for (name, count) in counts(resource, &containers) {
            let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
            requests.insert(name.clone(), json!({"name": name, "exactly": exactly}));
        }
    }
    if requests.is_empty() {
        return Ok(None);
    }
    let requests: Vec<Value> = requests.into_values().collect();
    let metadata = json!({"name": NAME, "namespace": pod.metadata.namespace});
    let claim = json!({"metadata": metadata, "spec": {"devices": {"requests": requests}}});
    model::read(&claim, "a claim of extended resources").map(Some)
}

/// Whether a container asks for a resource that a class of devices may serve.
#[must_use]
pub fn asks_for_extended_resources(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut containers = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    containers.any(|container| Used::new(container, false).amounts.keys().any(|name| is_extended(name)))
}

/// What a container asks for.
struct Used<'a> {
    /// Its devices are free again when the next container starts.
    is_short_lived: bool,
    /// All requests, by resource.
    amounts: BTreeMap<&'a str, &'a Quantity>,
}

impl<'a> Used<'a> {
    fn new(container: &'a Container, is_init: bool) -> Self {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let requests = container.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
        Self {
            is_short_lived: is_init && !is_sidecar,
            amounts: requests.map(|(name, amount)| (name.as_str(), amount)).collect(),
        }
    }

    /// Whole devices, or none.
    fn count(&self, resource: &str) -> Option<i128> {
        let nanos = quantity::nanos(&self.amounts.get(resource)?.0)?;
        (nanos > 0 && nanos % NANOS == 0).then_some(nanos / NANOS)
    }

    fn request(&self, index: usize, resource: &str) -> String {
        let position = self.amounts.keys().position(|name| *name == resource).unwrap_or_default();
        format!("container-{index}-request-{position}")
    }
}

/// The requests for a resource, by name: one for each container that lives as long as the pod does, and one for the init
/// container that needs most beside what the later ones leave it.
fn counts(resource: &str, containers: &[Used<'_>]) -> Vec<(String, i128)> {
    let long_lived = |used: &Used<'_>| if used.is_short_lived { None } else { used.count(resource) };
    let mut requests: Vec<(String, i128)> = Vec::new();
    let mut most: Option<(String, i128)> = None;
    for (index, used) in containers.iter().enumerate() {
        let Some(count) = used.count(resource) else { continue };
        let name = used.request(index, resource);
        if !used.is_short_lived {
            requests.push((name, count));
            continue;
        }
        let later: i128 = containers[index..].iter().filter_map(long_lived).sum();
        let missing = count - later;
        if missing > 0 && most.as_ref().is_none_or(|(_, most)| *most < missing) {
            most = Some((name, missing));
        }
    }
    requests.extend(most);
    requests
}

fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(OF_CLASS) || !is_native && !name.starts_with("requests.")
}

/// The class that serves a resource: of several the newest, and of these the first by name.
fn class_for(resource: &str, classes: &[DeviceClass]) -> Result<Option<String>, AllocationError> {
    let mut best: Option<(Value, String)> = None;
    for class in classes {
        let name = class.metadata.name.clone().unwrap_or_default();
        if resource.strip_prefix(OF_CLASS) == Some(name.as_str()) {
            return Ok(Some(name));
        }
        // Versions of the API before 1.34 have no such field.
        let spec: Value = model::read(&class.spec, "a DeviceClass")?;
        if spec["extendedResourceName"] != resource {
            continue;
        }
        let made = json!(class.metadata.creation_timestamp);
        let is_better = best.as_ref().is_none_or(|(best_made, best_name)| {
            let order = made.as_str().cmp(&best_made.as_str());
            order.is_gt() || order.is_eq() && name < *best_name
        });
        if is_better {
            best = Some((made, name));
        }
    }
    Ok(best.map(|(_, name)| name))
}

/// Whether the node gives the resource itself, through a device plugin.
fn is_allocatable(resource: &str, node: &Node) -> bool {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amount = allocatable.and_then(|allocatable| allocatable.get(resource));
    amount.and_then(|amount| quantity::nanos(&amount.0)).is_some_and(|nanos| nanos > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object of the API")
    }

    fn container(requests: &Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    /// `request: class x count` of each request of the implicit claim.
    fn claimed(init: &Value, containers: &Value, node: &Value) -> Vec<String> {
        let pod: Pod = object(
            json!({"metadata": {"namespace": "ns"}, "spec": {"initContainers": init, "containers": containers}}),
        );
        let class = |name: &str, made: &str| {
            object(
                json!({"metadata": {"name": name, "creationTimestamp": made}, "spec": {"extendedResourceName": "example.com/gpu"}}),
            )
        };
        let classes = [
            class("older", "2026-01-01T00:00:00Z"),
            class("y", "2026-01-02T00:00:00Z"),
            class("x", "2026-01-02T00:00:00Z"),
        ];
        let node = object(json!({"metadata": {"name": "n"}, "status": node}));
        let Some(claim) = implicit_claim(&pod, &classes, &node).expect("good classes") else {
            return Vec::new();
        };
        let devices = claim.spec.and_then(|spec| spec.devices);
        let requests = devices.and_then(|devices| devices.requests).unwrap_or_default();
        let told = |request: k8s_openapi::api::resource::v1::DeviceRequest| {
            let exactly = request.exactly.unwrap_or_default();
            let count = exactly.count.unwrap_or_default();
            format!("{}: {} x {count}", request.name, exactly.device_class_name)
        };
        requests.into_iter().map(told).collect()
    }

    #[test]
    fn containers_get_devices_of_the_newest_class_of_the_resource() {
        let two = container(&json!({"cpu": "1", "example.com/gpu": "2"}));
        let by_class = container(&json!({"deviceclass.resource.kubernetes.io/older": "1"}));
        assert_eq!(
            claimed(&json!([]), &json!([two, by_class]), &json!({})),
            ["container-0-request-1: x x 2", "container-1-request-0: older x 1"]
        );
        for other in [json!({"cpu": "1"}), json!({"example.com/other": "1"}), json!({"example.com/gpu": "0"})]
        {
            assert!(claimed(&json!([]), &json!([container(&other)]), &json!({})).is_empty());
        }
    }

    #[test]
    fn what_a_device_plugin_gives_is_not_claimed() {
        let pod = json!([container(&json!({"example.com/gpu": "1"}))]);
        let allocatable = |amount: &str| json!({"allocatable": {"example.com/gpu": amount}});
        assert!(claimed(&json!([]), &pod, &allocatable("4")).is_empty());
        assert_eq!(claimed(&json!([]), &pod, &allocatable("0")).len(), 1);
    }

    #[test]
    fn init_containers_use_what_later_containers_have() {
        let gpus = |count: &str| container(&json!({"example.com/gpu": count}));
        assert_eq!(
            claimed(&json!([gpus("1"), gpus("5"), gpus("3")]), &json!([gpus("2")]), &json!({})),
            ["container-1-request-0: x x 3", "container-3-request-0: x x 2"]
        );
        let mut sidecar = gpus("1");
        sidecar["restartPolicy"] = json!("Always");
        assert_eq!(
            claimed(&json!([sidecar, gpus("1")]), &json!([gpus("1")]), &json!({})),
            ["container-0-request-0: x x 1", "container-2-request-0: x x 1"]
        );
    }
}
