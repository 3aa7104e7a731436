//! Limits of one device of a slice.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, entries, items, names, node_allocatable, node_selector, policy, slice, text};

const MAX_ATTRIBUTES_AND_CAPACITY: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_TEXT: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_COUNTER_CONSUMPTIONS: usize = 2;
const MAX_BINDING_CONDITIONS: usize = 4;
const MAX_COMPATIBILITY_GROUPS: usize = 2;

const SCALARS: [&str; 4] = ["bool", "int", "string", "version"];
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Whether the device uses a feature that halves the number of devices in a slice.
pub(super) fn has_extras(device: &Value) -> bool {
    let has_list = |attribute: &Value| LISTS.iter().any(|list| !attribute[*list].is_null());
    !items(&device["taints"]).is_empty()
        || !items(&device["consumesCounters"]).is_empty()
        || entries(&device["attributes"]).any(|(_, attribute)| has_list(attribute))
}

/// Checks a device of a slice whose devices choose their nodes, or of another.
pub(super) fn check(found: &mut Findings, at: &str, device: &Value, per_device: bool) {
    found.name(&format!("{at}.name"), &device["name"], names::dns_label);
    attributes(found, at, device);
    for (index, taint) in items(&device["taints"]).iter().enumerate() {
        check_taint(found, &format!("{at}.taints[{index}]"), taint);
    }
    found.at_most(&format!("{at}.taints"), items(&device["taints"]).len(), MAX_TAINTS);
    consumed_counters(found, at, &device["consumesCounters"]);
    binding_conditions(found, at, device);
    placement(found, at, device, per_device);
    let shared = device["allowMultipleAllocations"] == true;
    for (name, capacity) in entries(&device["capacity"]) {
        policy::check(found, &format!("{at}.capacity[{name}]"), capacity, shared);
    }
    node_allocatable::check(found, at, device);
}

fn placement(found: &mut Findings, at: &str, device: &Value, per_device: bool) {
    let set = ["nodeName", "nodeSelector", "allNodes"].into_iter().filter(|field| !device[*field].is_null());
    let (set, wanted) = (set.count(), usize::from(per_device));
    if set != wanted {
        let message = format!("{wanted} of nodeName, nodeSelector, allNodes must be set, not {set}");
        found.add(Cause::invalid(at, message));
    }
    if device["allNodes"] == false {
        found.add(Cause::invalid(format!("{at}.allNodes"), "must be true or absent"));
    }
    if !device["nodeName"].is_null() {
        found.name(&format!("{at}.nodeName"), &device["nodeName"], names::dns_subdomain);
    }
    if !device["nodeSelector"].is_null() {
        node_selector::check(found, &format!("{at}.nodeSelector"), &device["nodeSelector"]);
    }
}

fn attributes(found: &mut Findings, at: &str, device: &Value) {
    let (attributes, capacity) = (&device["attributes"], &device["capacity"]);
    let count = entries(attributes).count() + entries(capacity).count();
    found.at_most(&format!("{at}.attributes"), count, MAX_ATTRIBUTES_AND_CAPACITY);
    for (name, _) in entries(capacity) {
        found.text(&format!("{at}.capacity"), name, names::qualified);
    }
    let mut values = 0;
    for (name, attribute) in entries(attributes) {
        found.text(&format!("{at}.attributes"), name, names::qualified);
        values += check_attribute(found, &format!("{at}.attributes[{name}]"), attribute);
    }
    found.at_most(&format!("{at}.attributes"), values, MAX_ATTRIBUTE_VALUES);
}

/// Checks one attribute and returns how many values it has.
fn check_attribute(found: &mut Findings, at: &str, attribute: &Value) -> usize {
    let is_set = |field: &&&str| !attribute[**field].is_null();
    let set = SCALARS.iter().filter(is_set).count() + LISTS.iter().filter(is_set).count();
    if set != 1 {
        found.add(Cause::invalid(at, format!("exactly one value must be set, not {set}")));
    }
    let lists = LISTS.iter().filter(is_set);
    let length: usize = lists.clone().map(|list| items(&attribute[*list]).len()).sum();
    if length == 0 && lists.count() > 0 {
        found.add(Cause::required(at, "a list must not be empty"));
    }
    for value in attribute["string"].as_str().into_iter().chain(items(&attribute["strings"]).iter().map(text))
    {
        found.text(&format!("{at}.string"), value, |value| names::limit(value, MAX_TEXT));
    }
    for value in
        attribute["version"].as_str().into_iter().chain(items(&attribute["versions"]).iter().map(text))
    {
        found.text(&format!("{at}.version"), value, names::semver);
    }
    SCALARS.iter().filter(is_set).count() + length
}

fn check_taint(found: &mut Findings, at: &str, taint: &Value) {
    found.name(&format!("{at}.key"), &taint["key"], names::label_key);
    found.text(&format!("{at}.value"), text(&taint["value"]), names::label_value);
    let effect = text(&taint["effect"]);
    if !matches!(effect, "None" | "NoSchedule" | "NoExecute") {
        let message = format!("{effect:?} is none of None, NoSchedule, NoExecute");
        found.add(Cause::invalid(format!("{at}.effect"), message));
    }
}

fn consumed_counters(found: &mut Findings, at: &str, consumptions: &Value) {
    let at = format!("{at}.consumesCounters");
    let consumptions = items(consumptions);
    found.at_most(&at, consumptions.len(), MAX_COUNTER_CONSUMPTIONS);
    found.unique(&at, consumptions.iter().map(|consumption| text(&consumption["counterSet"])));
    for (index, consumption) in consumptions.iter().enumerate() {
        let at = format!("{at}[{index}]");
        found.name(&format!("{at}.counterSet"), &consumption["counterSet"], names::dns_label);
        slice::counters(found, &at, &consumption["counters"]);
        let groups = items(&consumption["compatibilityGroups"]);
        let at = format!("{at}.compatibilityGroups");
        found.at_most(&at, groups.len(), MAX_COMPATIBILITY_GROUPS);
        found.unique(&at, groups.iter().map(text));
        for group in groups {
            found.name(&at, group, names::dns_label);
        }
    }
}

fn binding_conditions(found: &mut Findings, at: &str, device: &Value) {
    let success = items(&device["bindingConditions"]);
    let failure = items(&device["bindingFailureConditions"]);
    if success.is_empty() != failure.is_empty() {
        let message = "bindingConditions and bindingFailureConditions need each other";
        found.add(Cause::invalid(at, message));
    }
    found.at_most(&format!("{at}.bindingConditions"), success.len(), MAX_BINDING_CONDITIONS);
    found.at_most(&format!("{at}.bindingFailureConditions"), failure.len(), MAX_BINDING_CONDITIONS);
    let both = success.iter().chain(failure).map(text);
    found.unique(&format!("{at}.bindingConditions"), both.clone());
    for condition in both {
        found.text(&format!("{at}.bindingConditions"), condition, names::label_key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn fields(mut device: Value) -> Vec<String> {
        device["name"] = json!("gpu-0");
        let mut found = Findings::default();
        check(&mut found, "d", &device, false);
        found.causes.into_iter().map(|cause| cause.field).collect()
    }

    fn attributes(count: usize, value: &Value) -> Value {
        let map: Map<String, Value> = (0..count).map(|i| (format!("a{i}"), value.clone())).collect();
        json!({"attributes": map})
    }

    #[test]
    fn a_device_within_all_limits_passes() {
        let device = json!({
            "attributes": {"gpu.example.com/model": {"string": "x"}, "driverVersion": {"version": "1.0.0"}},
            "capacity": {"memory": {"value": "80Gi"}},
            "taints": [{"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}],
            "consumesCounters": [{"counterSet": "set-0", "counters": {"memory": {"value": "1"}}}],
            "bindingConditions": ["a"], "bindingFailureConditions": ["b"],
        });
        assert_eq!(fields(device), Vec::<String>::new());
        assert_eq!(fields(attributes(32, &json!({"int": 1}))), Vec::<String>::new());
    }

    #[test]
    fn each_limit_names_its_field() {
        for (device, field) in [
            (attributes(33, &json!({"int": 1})), "d.attributes"),
            (attributes(7, &json!({"ints": [1, 2, 3, 4, 5, 6, 7]})), "d.attributes"),
            (json!({"attributes": {"a-b": {"int": 1}}}), "d.attributes"),
            (json!({"attributes": {"a": {"int": 1, "bool": true}}}), "d.attributes[a]"),
            (json!({"attributes": {"a": {}}}), "d.attributes[a]"),
            (json!({"attributes": {"a": {"ints": []}}}), "d.attributes[a]"),
            (json!({"attributes": {"a": {"string": "ä".repeat(33)}}}), "d.attributes[a].string"),
            (json!({"attributes": {"a": {"version": "550.127.08"}}}), "d.attributes[a].version"),
            (json!({"capacity": {"a b": {"value": "1"}}}), "d.capacity"),
            (json!({"taints": [{"key": "a", "effect": "Never"}]}), "d.taints[0].effect"),
            (json!({"taints": [{"key": "", "effect": "None"}]}), "d.taints[0].key"),
            (
                json!({"consumesCounters": [{"counterSet": "a", "counters": {}}]}),
                "d.consumesCounters[0].counters",
            ),
            (json!({"nodeName": "n"}), "d"),
            (json!({"bindingConditions": ["a"]}), "d"),
            (json!({"bindingConditions": ["a"], "bindingFailureConditions": ["a"]}), "d.bindingConditions"),
        ] {
            assert_eq!(fields(device.clone()), [field], "{device}");
        }
    }
}
