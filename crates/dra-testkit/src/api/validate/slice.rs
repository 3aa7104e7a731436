//! Limits of a `ResourceSlice`.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, device, entries, items, names, node_selector, policy, text};

const MAX_DEVICES: usize = 128;
const MAX_DEVICES_WITH_EXTRAS: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;

/// What is wrong with the devices for an API server that knows no fractions in request policies.
pub(super) fn check_rounded(found: &mut Findings, new: &Value) {
    for (index, device) in items(&new["spec"]["devices"]).iter().enumerate() {
        for (name, capacity) in entries(&device["capacity"]) {
            let at = format!("spec.devices[{index}].capacity[{name}].requestPolicy");
            policy::check_rounded(found, &at, &capacity["requestPolicy"]);
        }
    }
}

pub(super) fn check(found: &mut Findings, old: Option<&Value>, new: &Value) {
    let spec = &new["spec"];
    let old = old.map(|old| &old["spec"]);
    found.name("spec.driver", &spec["driver"], names::driver);
    found.immutable("spec.driver", old.map(|old| &old["driver"]), &spec["driver"]);
    found.immutable("spec.nodeName", old.map(|old| &old["nodeName"]), &spec["nodeName"]);
    pool(found, old.map(|old| &old["pool"]), &spec["pool"]);
    placement(found, spec);
    counter_sets(found, spec);
    devices(found, spec);
    partition_type(found, spec);
    skipped_operations(found, spec);
}

fn pool(found: &mut Findings, old: Option<&Value>, pool: &Value) {
    found.name("spec.pool.name", &pool["name"], names::pool);
    found.immutable("spec.pool.name", old.map(|old| &old["name"]), &pool["name"]);
    if pool["generation"].as_i64().is_some_and(|generation| generation < 0) {
        found.add(Cause::invalid("spec.pool.generation", "must not be negative"));
    }
    if pool["resourceSliceCount"].as_i64().is_none_or(|count| count < 1) {
        found.add(Cause::invalid("spec.pool.resourceSliceCount", "must be greater than zero"));
    }
}

/// Exactly one of the fields that say where the devices are.
fn placement(found: &mut Findings, spec: &Value) {
    const FIELDS: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    let set: Vec<&str> = FIELDS.into_iter().filter(|field| !spec[*field].is_null()).collect();
    if set.len() != 1 {
        let message = format!("exactly one of {} must be set, not {}", FIELDS.join(", "), set.len());
        found.add(Cause::invalid("spec", message));
    }
    for field in set {
        let at = format!("spec.{field}");
        match &spec[field] {
            Value::Bool(false) => found.add(Cause::invalid(at, "must be true or absent")),
            node @ Value::String(_) => found.name(&at, node, names::dns_subdomain),
            selector if field == "nodeSelector" => {
                if items(&selector["nodeSelectorTerms"]).len() != 1 {
                    found.add(Cause::invalid(at.as_str(), "must have exactly one term"));
                }
                node_selector::check(found, &at, selector);
            }
            _ => {}
        }
    }
}

fn counter_sets(found: &mut Findings, spec: &Value) {
    if !spec["devices"].is_null() && !spec["sharedCounters"].is_null() {
        found.add(Cause::invalid("spec", "devices and sharedCounters cannot be in one slice"));
    }
    let sets = items(&spec["sharedCounters"]);
    found.at_most("spec.sharedCounters", sets.len(), MAX_COUNTER_SETS);
    found.unique("spec.sharedCounters", sets.iter().map(|set| text(&set["name"])));
    for (index, set) in sets.iter().enumerate() {
        let at = format!("spec.sharedCounters[{index}]");
        found.name(&format!("{at}.name"), &set["name"], names::dns_label);
        counters(found, &at, &set["counters"]);
    }
}

/// The counters of a set, or those that a device takes from it.
pub(super) fn counters(found: &mut Findings, at: &str, counters: &Value) {
    let at = format!("{at}.counters");
    let count = entries(counters).count();
    found.at_most(&at, count, MAX_COUNTERS);
    if count == 0 {
        found.add(Cause::required(at.as_str(), "must not be empty"));
    }
    for (name, _) in entries(counters) {
        found.text(&at, name, names::dns_label);
    }
}

fn devices(found: &mut Findings, spec: &Value) {
    let devices = items(&spec["devices"]);
    let extras = devices.iter().any(device::has_extras);
    let limit = if extras { MAX_DEVICES_WITH_EXTRAS } else { MAX_DEVICES };
    found.at_most("spec.devices", devices.len(), limit);
    found.unique("spec.devices", devices.iter().map(|device| text(&device["name"])));
    for (index, device) in devices.iter().enumerate() {
        let per_device = spec["perDeviceNodeSelection"] == true;
        device::check(found, &format!("spec.devices[{index}]"), device, per_device);
    }
}

/// The attribute that tells the kind of each partition.
fn partition_type(found: &mut Findings, spec: &Value) {
    const AT: &str = "spec.partitionTypeAttribute";
    let Some(name) = spec["partitionTypeAttribute"].as_str() else { return };
    found.text(AT, name, names::qualified);
    if !name.contains('/') {
        found.add(Cause::invalid(AT, "must have a domain in front"));
    }
    // In the driver's own domain, devices may leave the domain out.
    let own = name.strip_prefix(text(&spec["driver"])).and_then(|rest| rest.strip_prefix('/'));
    let devices = items(&spec["devices"]).iter().enumerate();
    let partitions: Vec<_> =
        devices.filter(|(_, device)| !items(&device["consumesCounters"]).is_empty()).collect();
    if partitions.is_empty() {
        found.add(Cause::invalid(AT, "no device consumes counters"));
    }
    for (index, device) in partitions {
        let named = [Some(name), own].into_iter().flatten().map(|name| &device["attributes"][name]);
        if named.into_iter().find(|value| !value.is_null()).is_none_or(|value| value["string"].is_null()) {
            let at = format!("spec.devices[{index}].attributes[{name}]");
            found.add(Cause::required(at, "must be a string, since it is the partition type"));
        }
    }
}

fn skipped_operations(found: &mut Findings, spec: &Value) {
    const AT: &str = "spec.skipNodeOperations";
    const PREPARE: &str = "NodePrepareResources";
    const UNPREPARE: &str = "NodeUnprepareResources";
    let operations = || items(&spec["skipNodeOperations"]).iter().map(text);
    found.unique(AT, operations());
    for operation in operations().filter(|operation| ![PREPARE, UNPREPARE, "*"].contains(operation)) {
        found.add(Cause::invalid(AT, format!("{operation:?} is no operation")));
    }
    let has = |wanted| operations().any(|operation| operation == wanted);
    if has(PREPARE) && !has(UNPREPARE) && !has("*") {
        found.add(Cause::invalid(AT, "prepare cannot be skipped without unprepare"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice() -> Value {
        json!({"spec": {
            "driver": "gpu.example.com", "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        }})
    }

    fn fields(old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut found = Findings::default();
        check(&mut found, old, new);
        found.causes.into_iter().map(|cause| cause.field).collect()
    }

    /// The fields refused after `pointer` of a valid slice has become `value`.
    fn refused(pointer: &str, value: Value) -> Vec<String> {
        let mut slice = slice();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        slice.pointer_mut(parent).expect("exists")[field] = value;
        fields(None, &slice)
    }

    fn many(count: usize) -> Vec<Value> {
        (0..count).map(|index| json!({"name": format!("gpu-{index}")})).collect()
    }

    #[test]
    fn a_sound_slice_passes() {
        assert_eq!(fields(None, &slice()), Vec::<String>::new());
        assert_eq!(fields(Some(&slice()), &slice()), Vec::<String>::new());
    }

    #[test]
    fn each_limit_names_its_field() {
        for (pointer, value, field) in [
            ("/spec/driver", json!(""), "spec.driver"),
            ("/spec/driver", json!("gpu_driver"), "spec.driver"),
            ("/spec/pool/name", json!("a//b"), "spec.pool.name"),
            ("/spec/pool/generation", json!(-1), "spec.pool.generation"),
            ("/spec/pool/resourceSliceCount", json!(0), "spec.pool.resourceSliceCount"),
            ("/spec/nodeName", json!(null), "spec"),
            ("/spec/nodeName", json!(""), "spec.nodeName"),
            ("/spec/allNodes", json!(true), "spec"),
            ("/spec/sharedCounters", json!([{"name": "a", "counters": {"b": {"value": "1"}}}]), "spec"),
            ("/spec/devices", json!(many(129)), "spec.devices"),
            ("/spec/devices", json!([{"name": "a"}, {"name": "a"}]), "spec.devices"),
            ("/spec/partitionTypeAttribute", json!("example.com/kind"), "spec.partitionTypeAttribute"),
            ("/spec/skipNodeOperations", json!(["NodePrepareResources"]), "spec.skipNodeOperations"),
            ("/spec/skipNodeOperations", json!(["*", "*"]), "spec.skipNodeOperations"),
            ("/spec/skipNodeOperations", json!(["Other"]), "spec.skipNodeOperations"),
        ] {
            assert_eq!(refused(pointer, value), [field], "{pointer}");
        }
    }

    #[test]
    fn a_taint_counter_or_list_halves_the_number_of_devices() {
        for (field, value) in [
            ("taints", json!([{"key": "a", "effect": "NoSchedule"}])),
            ("consumesCounters", json!([{"counterSet": "a", "counters": {"b": {"value": "1"}}}])),
            ("attributes", json!({"a": {"strings": ["b"]}})),
        ] {
            let mut devices = many(65);
            devices[3][field] = value;
            assert_eq!(refused("/spec/devices", json!(devices)), ["spec.devices"], "{field}");
        }
        assert_eq!(refused("/spec/devices", json!(many(128))), Vec::<String>::new());
    }

    #[test]
    fn identity_cannot_change() {
        for (pointer, value, field) in [
            ("/spec/driver", json!("nic.example.com"), "spec.driver"),
            ("/spec/nodeName", json!("node-2"), "spec.nodeName"),
            ("/spec/pool/name", json!("other"), "spec.pool.name"),
        ] {
            let mut new = slice();
            *new.pointer_mut(pointer).expect("exists") = value;
            assert_eq!(fields(Some(&slice()), &new), [field]);
        }
    }
}
