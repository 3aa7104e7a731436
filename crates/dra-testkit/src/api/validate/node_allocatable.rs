//! Limits of `nodeAllocatableResources`.

use serde_json::Value;

use dra_allocator::quantity::nanos;

use super::super::status::Cause;
use super::{Findings, entries};

pub(super) fn check(found: &mut Findings, at: &str, device: &Value) {
    for (resource, value) in entries(&device["nodeAllocatableResources"]) {
        let at = format!("{at}.nodeAllocatableResources[{resource}]");
        if !matches!(resource.as_str(), "cpu" | "memory") && !resource.starts_with("hugepages-") {
            found.add(Cause::invalid(at.as_str(), "is none of cpu, memory, hugepages-…"));
        }
        if value["mapping"].is_null() && value["overhead"].is_null() {
            found.add(Cause::required(at.as_str(), "needs a mapping or an overhead"));
        }
        mapping(found, &format!("{at}.mapping"), &value["mapping"], &device["capacity"]);
        overhead(found, &format!("{at}.overhead"), &value["overhead"]);
    }
}

fn mapping(found: &mut Findings, at: &str, mapping: &Value, capacity: &Value) {
    let (key, multiplier) = (&mapping["capacityKey"], &mapping["capacityMultiplier"]);
    if key.is_null() != multiplier.is_null() {
        found.add(Cause::required(at, "capacityKey and capacityMultiplier need each other"));
    }
    if key.as_str().is_some_and(|key| capacity[key].is_null()) {
        found.add(Cause::invalid(format!("{at}.capacityKey"), "is no capacity of the device"));
    }
    for field in ["capacityMultiplier", "deviceMultiplier"] {
        if mapping[field].as_str().and_then(nanos).is_some_and(|value| value <= 0) {
            found.add(Cause::invalid(format!("{at}.{field}"), "must be above zero"));
        }
    }
}

fn overhead(found: &mut Findings, at: &str, overhead: &Value) {
    let fields = ["perPod", "perContainer"];
    if !overhead.is_null() && fields.iter().all(|field| overhead[*field].is_null()) {
        found.add(Cause::invalid(at, "needs perPod or perContainer"));
    }
    for field in fields {
        if overhead[field].as_str().and_then(nanos).is_some_and(|value| value < 0) {
            found.add(Cause::invalid(format!("{at}.{field}"), "must not be negative"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(resources: &Value) -> Vec<String> {
        let device = json!({"capacity": {"c": {"value": "1"}}, "nodeAllocatableResources": resources});
        let mut found = Findings::default();
        check(&mut found, "d", &device);
        let prefix = "d.nodeAllocatableResources";
        found.causes.into_iter().map(|cause| cause.field.trim_start_matches(prefix).to_owned()).collect()
    }

    #[test]
    fn each_rule_names_its_field() {
        for (resources, field) in [
            (json!({"cpu": {"mapping": {"capacityKey": "c", "capacityMultiplier": "1"}}}), None),
            (json!({"hugepages-2Mi": {"overhead": {"perPod": "0"}}}), None),
            (json!({"pods": {"mapping": {"deviceMultiplier": "1"}}}), Some("[pods]")),
            (json!({"cpu": {}}), Some("[cpu]")),
            (json!({"cpu": {"mapping": {"capacityKey": "c"}}}), Some("[cpu].mapping")),
            (json!({"cpu": {"mapping": {"deviceMultiplier": "0"}}}), Some("[cpu].mapping.deviceMultiplier")),
            (json!({"cpu": {"overhead": {}}}), Some("[cpu].overhead")),
            (json!({"cpu": {"overhead": {"perPod": "-1"}}}), Some("[cpu].overhead.perPod")),
        ] {
            assert_eq!(fields(&resources), Vec::from_iter(field.map(str::to_owned)), "{resources}");
        }
    }
}
