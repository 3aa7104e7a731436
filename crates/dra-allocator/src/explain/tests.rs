use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d.example.com";

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of the API")
}

/// What is said of each device of a pool with these devices and counters, when a claim asks for `exactly` and others have
/// these results.
fn told(devices: &Value, counters: &Value, held: &[Value], spec: &Value) -> Vec<String> {
    let slice = |name: &str, field: &str, value: &Value| {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
        object(json!({"metadata": {"name": name}, "spec": {
            "driver": DRIVER, "nodeName": "n", "pool": pool, field: value,
        }}))
    };
    let slices = [slice("a", "devices", devices), slice("b", "sharedCounters", counters)];
    let class = object(json!({"metadata": {"name": "c"}, "spec": {}}));
    let holder = |(number, result): (usize, &Value)| {
        let mut result = result.clone();
        result["driver"] = json!(DRIVER);
        result["pool"] = json!("p");
        result["request"] = json!("r");
        object(json!({
            "metadata": {"name": format!("holder-{number}"), "namespace": "ns"}, "spec": {},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }))
    };
    let claims: Vec<ResourceClaim> = held.iter().enumerate().map(holder).collect();
    let claim = object(json!({"metadata": {"name": "x"}, "spec": {"devices": spec}}));
    let node = object(json!({"metadata": {"name": "n"}}));
    let known = Known { slices: &slices, classes: &[class], claims: &claims, taint_rules: &[] };
    let explanation = explain(&known, &node, &[claim]).expect("an explanation");
    let devices: Vec<String> = explanation.requests[0]
        .devices
        .iter()
        .map(|device| {
            let obstacles: Vec<String> = device.obstacles.iter().map(ToString::to_string).collect();
            format!("{}: {}", device.device, obstacles.join("; "))
        })
        .collect();
    assert_eq!(
        explanation.error.is_none(),
        explanation.requests[0].free() > 0,
        "the search says the same: {devices:?} {:?}",
        explanation.error
    );
    devices
}

fn ask(more: &Value) -> Value {
    let mut exactly = json!({"deviceClassName": "c"});
    for (field, value) in more.as_object().expect("fields") {
        exactly[field] = value.clone();
    }
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

#[test]
fn each_device_is_told_with_what_keeps_it_away() {
    let none = json!([]);
    let attribute = json!([
        {"name": "a", "attributes": {"model": {"string": "T4"}}},
        {"name": "b", "attributes": {"model": {"string": "A100"}}},
    ]);
    let wants_h100 = json!([{"cel": {"expression": "device.attributes['d.example.com'].model == 'H100'"}}]);
    assert_eq!(
        told(&attribute, &none, &[], &ask(&json!({"selectors": wants_h100}))),
        [
            "a: ResourceClaim \"x\", request \"r\", selector 0: device.attributes['d.example.com'].model == 'H100' \
             is false: device.attributes['d.example.com'].model is 'T4'",
            "b: ResourceClaim \"x\", request \"r\", selector 0: device.attributes['d.example.com'].model == 'H100' \
             is false: device.attributes['d.example.com'].model is 'A100'",
        ]
    );

    let tainted = json!([
        {"name": "a", "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
        {"name": "b", "taints": [{"key": "k", "effect": "None"}]},
    ]);
    let held = [json!({"device": "b"})];
    let request = ask(&json!({}));
    assert_eq!(
        told(&tainted, &none, &held, &request),
        ["a: taint k=v:NoExecute is not tolerated", "b: held by claim ns/holder-0"]
    );
    assert_eq!(told(&tainted, &none, &[], &request), ["a: taint k=v:NoExecute is not tolerated", "b: "]);
    let admin = told(&tainted, &none, &held, &ask(&json!({"adminAccess": true})));
    assert_eq!(admin[1], "b: ", "access for administrators is not kept away by holders");
}

#[test]
fn what_is_left_of_counters_and_capacity_is_told() {
    let consumes = |amount: &str| json!([{"counterSet": "s", "counters": {"memory": {"value": amount}}}]);
    let devices = json!([
        {"name": "whole", "consumesCounters": consumes("80Gi")},
        {"name": "half", "consumesCounters": consumes("40Gi")},
        {"name": "quarter", "consumesCounters": consumes("20Gi")},
    ]);
    let counters = json!([{"name": "s", "counters": {"memory": {"value": "80Gi"}}}]);
    assert_eq!(
        told(&devices, &counters, &[json!({"device": "half"})], &ask(&json!({}))),
        [
            "whole: needs 80Gi of counter memory of set s, of which 40Gi of 80Gi are left; \
             devices of the pool are held by claim ns/holder-0",
            "half: held by claim ns/holder-0",
            "quarter: ",
        ]
    );

    let shared = json!([{
        "name": "a", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "80Gi"}},
    }]);
    let share = json!({
        "device": "a", "shareID": "3d32cc74-9f74-4a35-9e17-5d0ea9f7a1b3", "consumedCapacity": {"memory": "50Gi"},
    });
    let asks = |name: &str, amount: &str| ask(&json!({"capacity": {"requests": {name: amount}}}));
    let none = json!([]);
    assert_eq!(told(&shared, &none, std::slice::from_ref(&share), &asks("memory", "30Gi")), ["a: "]);
    assert_eq!(
        told(&shared, &none, std::slice::from_ref(&share), &asks("memory", "40Gi")),
        [
            "a: 40Gi of capacity memory are needed, 30Gi of 80Gi are left; shares are held by claim ns/holder-0"
        ]
    );
    assert_eq!(told(&shared, &none, &[], &asks("cores", "1")), ["a: has no capacity cores"]);
}

#[test]
fn a_device_without_the_attribute_of_a_constraint_is_told() {
    let devices = json!([{"name": "a"}]);
    let mut spec = ask(&json!({}));
    spec["constraints"] = json!([{"matchAttribute": "d.example.com/numa"}]);
    assert_eq!(
        told(&devices, &json!([]), &[], &spec),
        ["a: has no attribute d.example.com/numa, which a constraint of the claim compares"]
    );
}
