//! The API server's version and feature gates, and the fields of slices that it drops without a word when one is off.
//!
//! Source: `pkg/features` and `pkg/registry/resource/resourceslice` of Kubernetes 1.37. A field that an older version does
//! not know is dropped like one whose gate is off.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The 37 of Kubernetes 1.37.
pub(crate) const NEWEST: u32 = 37;

/// A gate that fields of slices depend on.
struct Gate {
    name: &'static str,
    /// The version in which it came.
    since: u32,
    /// The version since which it is on by default.
    on_since: Option<u32>,
    drop: fn(&mut Value),
}

const GATES: [Gate; 10] = [
    Gate { name: "DRADeviceTaints", since: 33, on_since: Some(36), drop: taints },
    Gate { name: "DRAPartitionableDevices", since: 33, on_since: Some(36), drop: partitions },
    Gate { name: "DRADeviceBindingConditions", since: 34, on_since: Some(36), drop: binding_conditions },
    Gate { name: "DRAConsumableCapacity", since: 34, on_since: Some(36), drop: consumable_capacity },
    Gate { name: "DRAListTypeAttributes", since: 36, on_since: None, drop: list_attributes },
    // Came in 1.36 with another field, which is gone.
    Gate { name: "DRANodeAllocatableResources", since: 37, on_since: None, drop: node_allocatable },
    Gate { name: "DRAPartitionableDevicesType", since: 37, on_since: None, drop: partition_type },
    Gate { name: "DRAOptionalNodeOperations", since: 37, on_since: None, drop: skipped_operations },
    Gate { name: "DRADeviceCompatibilityGroups", since: 37, on_since: None, drop: compatibility_groups },
    // Drops nothing; it lets ranges of request policies have fractions. Off until a cluster cannot go back to 1.36.
    Gate { name: "DRAFractionalCapacityRange", since: 37, on_since: None, drop: |_| {} },
];

/// The version, and the gates that are on.
#[derive(Debug, Clone)]
pub(crate) struct Gates {
    pub(crate) minor: u32,
    on: BTreeSet<&'static str>,
}

impl Gates {
    /// The newest version with all gates on.
    pub(crate) fn all_on() -> Self {
        Self { minor: NEWEST, on: GATES.iter().map(|gate| gate.name).collect() }
    }

    /// What a version has without configuration.
    pub(crate) fn of_version(minor: u32) -> Self {
        let on = GATES.iter().filter(|gate| gate.on_since.is_some_and(|since| since <= minor));
        Self { minor, on: on.map(|gate| gate.name).collect() }
    }

    /// Switches a gate; `None` if this version has none of that name.
    pub(crate) fn set(&mut self, name: &str, on: bool) -> Option<()> {
        let gate = GATES.iter().find(|gate| gate.name == name && gate.since <= self.minor)?;
        if on {
            self.on.insert(gate.name);
        } else {
            self.on.remove(gate.name);
        }
        Some(())
    }

    /// The gates that are on.
    pub(crate) fn on(&self) -> impl Iterator<Item = &'static str> {
        self.on.iter().copied()
    }

    /// Whether ranges and values of request policies may be fractions.
    pub(crate) fn has_fractions(&self) -> bool {
        self.on.contains("DRAFractionalCapacityRange")
    }

    /// Whether fields can be selected by the pool's name.
    pub(crate) fn selects_by_pool(&self) -> bool {
        self.minor >= 37
    }

    /// Drops the fields of gates that are off from a new `spec`, except those that the old one uses already.
    pub(crate) fn drop_disabled(&self, old: Option<&Value>, spec: &mut Value) {
        for gate in GATES.iter().filter(|gate| !self.on.contains(gate.name)) {
            let in_use = old.is_some_and(|old| {
                let mut without = old.clone();
                (gate.drop)(&mut without);
                without != *old
            });
            if !in_use {
                (gate.drop)(spec);
            }
        }
    }
}

fn taints(spec: &mut Value) {
    devices(spec).for_each(|device| remove(device, &["taints"]));
}

fn partitions(spec: &mut Value) {
    const FIELDS: [&str; 4] = ["consumesCounters", "nodeName", "nodeSelector", "allNodes"];
    devices(spec).for_each(|device| remove(device, &FIELDS));
    remove(spec, &["sharedCounters", "perDeviceNodeSelection"]);
}

fn binding_conditions(spec: &mut Value) {
    const FIELDS: [&str; 3] = ["bindingConditions", "bindingFailureConditions", "bindsToNode"];
    devices(spec).for_each(|device| remove(device, &FIELDS));
}

fn consumable_capacity(spec: &mut Value) {
    for device in devices(spec) {
        values(device, "capacity").for_each(|capacity| remove(capacity, &["requestPolicy"]));
        remove(device, &["allowMultipleAllocations"]);
    }
}

/// What is left of the attribute has no value, and is refused.
fn list_attributes(spec: &mut Value) {
    const FIELDS: [&str; 4] = ["bools", "ints", "strings", "versions"];
    for device in devices(spec) {
        values(device, "attributes").for_each(|attribute| remove(attribute, &FIELDS));
    }
}

fn node_allocatable(spec: &mut Value) {
    devices(spec).for_each(|device| remove(device, &["nodeAllocatableResources"]));
}

fn partition_type(spec: &mut Value) {
    remove(spec, &["partitionTypeAttribute"]);
}

fn skipped_operations(spec: &mut Value) {
    remove(spec, &["skipNodeOperations"]);
}

fn compatibility_groups(spec: &mut Value) {
    for device in devices(spec) {
        items(device, "consumesCounters")
            .for_each(|consumption| remove(consumption, &["compatibilityGroups"]));
    }
}

fn devices(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    items(spec, "devices")
}

fn items<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn values<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
}

fn remove(object: &mut Value, fields: &[&str]) {
    if let Value::Object(map) = object {
        map.retain(|field, _| !fields.contains(&field.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({
            "skipNodeOperations": ["*"],
            "devices": [{
                "name": "d", "taints": [{"key": "k"}],
                "attributes": {"a": {"ints": [1]}, "b": {"int": 1}},
                "capacity": {"c": {"value": "1", "requestPolicy": {"default": "1"}}},
            }],
        })
    }

    fn dropped(gates: &Gates, old: Option<&Value>) -> Value {
        let mut spec = spec();
        gates.drop_disabled(old, &mut spec);
        spec
    }

    #[test]
    fn with_all_gates_on_nothing_is_dropped() {
        assert_eq!(dropped(&Gates::all_on(), None), spec());
    }

    #[test]
    fn versions_differ_in_what_they_store() {
        let mut expected = spec();
        remove(&mut expected, &["skipNodeOperations"]);
        remove(&mut expected["devices"][0]["attributes"]["a"], &["ints"]);
        assert_eq!(dropped(&Gates::of_version(37), None), expected);
        remove(&mut expected["devices"][0], &["taints"]);
        remove(&mut expected["devices"][0]["capacity"]["c"], &["requestPolicy"]);
        assert_eq!(dropped(&Gates::of_version(34), None), expected);
    }

    #[test]
    fn fields_that_are_in_use_stay() {
        let mut gates = Gates::all_on();
        gates.set("DRADeviceTaints", false).expect("a gate");
        let tainted = json!({"devices": [{"name": "other", "taints": [{"key": "k"}]}]});
        assert_eq!(dropped(&gates, Some(&tainted)), spec());
        let plain = json!({"devices": [{"name": "other"}]});
        assert_eq!(dropped(&gates, Some(&plain))["devices"][0]["taints"], json!(null));
    }

    #[test]
    fn a_version_has_only_its_own_gates() {
        assert!(Gates::of_version(34).set("DRAListTypeAttributes", true).is_none());
        assert!(Gates::of_version(36).set("DRAListTypeAttributes", true).is_some());
        assert!(Gates::all_on().set("NoSuchGate", true).is_none());
    }
}
