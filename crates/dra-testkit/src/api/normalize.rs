//! What the real server does to an object before it stores it: typed reading, defaults, one spelling.

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::status::ApiStatus;
use dra_allocator::quantity;

/// Fields that hold quantities, as paths in which `*` stands for each item or each map value.
fn quantity_paths(kind: &str) -> &'static [&'static str] {
    match kind {
        "ResourceSlice" => &[
            "spec.devices.*.capacity.*.value",
            "spec.devices.*.capacity.*.requestPolicy.default",
            "spec.devices.*.capacity.*.requestPolicy.validValues.*",
            "spec.devices.*.capacity.*.requestPolicy.validRange.*",
            "spec.devices.*.consumesCounters.*.counters.*.value",
            "spec.devices.*.nodeAllocatableResources.*.mapping.deviceMultiplier",
            "spec.devices.*.nodeAllocatableResources.*.mapping.capacityMultiplier",
            "spec.devices.*.nodeAllocatableResources.*.overhead.*",
            "spec.sharedCounters.*.counters.*.value",
        ],
        "ResourceClaim" => &[
            "spec.devices.requests.*.exactly.capacity.requests.*",
            "spec.devices.requests.*.firstAvailable.*.capacity.requests.*",
            "status.allocation.devices.results.*.consumedCapacity.*",
        ],
        "ResourceClaimTemplate" => &[
            "spec.spec.devices.requests.*.exactly.capacity.requests.*",
            "spec.spec.devices.requests.*.firstAvailable.*.capacity.requests.*",
        ],
        "Node" => &["status.capacity.*", "status.allocatable.*"],
        "Pod" => &["spec.containers.*.resources.limits.*", "spec.containers.*.resources.requests.*"],
        _ => &[],
    }
}

/// Reads `object` as its kind, fills defaults and spells quantities as the server does.
///
/// `now` is the time in RFC 3339 with whole seconds.
pub(crate) fn normalize(kind: &Kind, object: Value, now: &str) -> Result<Value, ApiStatus> {
    let mut object = (kind.retype)(object).map_err(|error| {
        ApiStatus::bad_request(format!("the object cannot be read as a {}: {error}", kind.kind))
    })?;
    for path in quantity_paths(kind.kind) {
        each(&mut object, path, &mut |value| {
            let text = value.as_str().unwrap_or_default();
            let stored = quantity::canonical(text).ok_or_else(|| {
                ApiStatus::bad_request(format!("{path} of the {} is no quantity: {text:?}", kind.kind))
            })?;
            // The validation of request policies sees that a number was capped and refuses it (1.37).
            let capped = quantity::uncapped_nanos(text) != quantity::nanos(text);
            if !(capped && path.contains("requestPolicy")) {
                *value = stored.into();
            }
            Ok(())
        })?;
    }
    set_defaults(kind.kind, &mut object, now)?;
    Ok(object)
}

/// Leaves out what the server's encoding leaves out: nulls, empty lists and empty maps.
pub(crate) fn drop_empty(object: &mut Value) {
    match object {
        Value::Object(map) => {
            map.retain(|key, value| {
                let free_form = matches!(key.as_str(), "parameters" | "data" | "fieldsV1");
                if !free_form {
                    drop_empty(value);
                }
                match value {
                    Value::Null => false,
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(map) => !map.is_empty() || !is_map(key),
                    _ => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Whether the field is a map, which disappears when empty; an empty struct such as `spec` stays.
fn is_map(field: &str) -> bool {
    matches!(
        field,
        "labels"
            | "annotations"
            | "attributes"
            | "capacity"
            | "counters"
            | "allocatable"
            | "nodeAllocatableResources"
    )
}

fn set_defaults(kind: &str, object: &mut Value, now: &str) -> Result<(), ApiStatus> {
    match kind {
        "ResourceSlice" => each(object, "spec.devices.*.taints.*", &mut |taint| {
            if let Value::Object(taint) = taint {
                taint.entry("timeAdded").or_insert_with(|| now.into());
            }
            Ok(())
        }),
        "ResourceClaim" => each(object, "spec.devices.requests.*.exactly", &mut default_request),
        "ResourceClaimTemplate" => each(object, "spec.spec.devices.requests.*.exactly", &mut default_request),
        "Pod" => {
            if object["status"]["phase"].is_null() {
                object["status"]["phase"] = json!("Pending");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "has the shape that `each` calls")]
fn default_request(request: &mut Value) -> Result<(), ApiStatus> {
    if let Value::Object(request) = request {
        let mode = request.entry("allocationMode").or_insert_with(|| json!("ExactCount"));
        if mode == "ExactCount" {
            request.entry("count").or_insert_with(|| json!(1));
        }
    }
    Ok(())
}

/// Calls `change` for each value at `path`; what does not exist is skipped.
fn each(
    value: &mut Value,
    path: &str,
    change: &mut dyn FnMut(&mut Value) -> Result<(), ApiStatus>,
) -> Result<(), ApiStatus> {
    if path.is_empty() {
        return change(value);
    }
    let (field, rest) = path.split_once('.').unwrap_or((path, ""));
    match (field, value) {
        ("*", Value::Array(items)) => items.iter_mut().try_for_each(|item| each(item, rest, change)),
        ("*", Value::Object(map)) => map.values_mut().try_for_each(|item| each(item, rest, change)),
        (field, Value::Object(map)) => existing(map, field).map_or(Ok(()), |value| each(value, rest, change)),
        _ => Ok(()),
    }
}

fn existing<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Value> {
    map.get_mut(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::by_plural;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn slice(devices: &Value) -> Result<Value, ApiStatus> {
        let kind = by_plural("resource.k8s.io", "resourceslices").expect("served");
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices},
        });
        normalize(kind, object, NOW)
    }

    #[test]
    fn quantities_get_the_stored_spelling() {
        let device = json!([{"name": "a", "capacity": {"memory": {"value": "1024Mi"}}}]);
        let object = slice(&device).expect("valid");
        assert_eq!(object["spec"]["devices"][0]["capacity"]["memory"]["value"], "1Gi");
    }

    #[test]
    fn bad_quantities_and_types_are_bad_requests() {
        let quantity = json!([{"name": "a", "capacity": {"memory": {"value": "much"}}}]);
        assert_eq!(slice(&quantity).expect_err("no quantity").code, 400);
        assert_eq!(slice(&json!([{"name": 5}])).expect_err("no string").code, 400);
    }

    #[test]
    fn taints_without_a_time_get_one() {
        let kept = "2020-01-01T00:00:00Z";
        let taints = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute", "timeAdded": kept}]);
        let object = slice(&json!([{"name": "a", "taints": taints}])).expect("valid");
        assert_eq!(object["spec"]["devices"][0]["taints"][0]["timeAdded"], NOW);
        assert_eq!(object["spec"]["devices"][0]["taints"][1]["timeAdded"], kept);
    }

    #[test]
    fn unknown_fields_are_dropped() {
        let object = slice(&json!([{"name": "a", "colour": "red"}])).expect("valid");
        assert_eq!(object["spec"]["devices"][0], json!({"name": "a"}));
    }

    #[test]
    fn empty_lists_and_maps_disappear_but_opaque_content_stays() {
        let mut object = json!({
            "metadata": {"labels": {}}, "spec": {},
            "config": [{"opaque": {"driver": "d", "parameters": {"list": [], "none": null}}}], "taints": [],
        });
        drop_empty(&mut object);
        let expected = json!({
            "metadata": {}, "spec": {},
            "config": [{"opaque": {"driver": "d", "parameters": {"list": [], "none": null}}}],
        });
        assert_eq!(object, expected);
    }
}
