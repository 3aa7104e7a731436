use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use serde_json::{Value, json};

use super::*;
use crate::nodes;

const DRIVER: &str = "gpu.example.com";

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of the API")
}

fn node() -> Node {
    object(json!({"metadata": {"name": "node-1", "labels": {"zone": "a"}}}))
}

fn slice(name: &str, more: &Value) -> ResourceSlice {
    let mut slice = json!({"metadata": {"name": name}, "spec": {
        "driver": DRIVER, "nodeName": "node-1", "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
    }});
    for (field, value) in more.as_object().expect("fields") {
        slice["spec"][field] = value.clone();
    }
    object(slice)
}

/// One slice with these devices.
fn devices(devices: &Value) -> Vec<ResourceSlice> {
    vec![slice("pool", &json!({"devices": devices}))]
}

/// Class `gpu` of the driver, with a configuration, and class `any`.
fn classes() -> Vec<DeviceClass> {
    let of_driver = format!("device.driver == '{DRIVER}'");
    let config = json!([{"opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}]);
    vec![
        object(
            json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": of_driver}}], "config": config}}),
        ),
        object(json!({"metadata": {"name": "any"}, "spec": {}})),
    ]
}

fn claim(spec: &Value) -> ResourceClaim {
    object(json!({"metadata": {"name": "c"}, "spec": {"devices": spec}}))
}

/// A claim with one request `a`.
fn one(exactly: &Value) -> Value {
    let mut exactly = exactly.clone();
    if exactly.get("deviceClassName").is_none() {
        exactly["deviceClassName"] = json!("gpu");
    }
    json!({"requests": [{"name": "a", "exactly": exactly}]})
}

fn run(
    slices: &[ResourceSlice],
    claims: &[ResourceClaim],
    specs: &[Value],
) -> Result<Vec<AllocationResult>, AllocationError> {
    let known = Known { slices, classes: &classes(), claims, taint_rules: &[] };
    let specs: Vec<ResourceClaim> = specs.iter().map(claim).collect();
    allocate(&known, &node(), &specs)
}

fn results(allocation: &AllocationResult) -> Vec<DeviceRequestAllocationResult> {
    allocation.devices.clone().and_then(|devices| devices.results).unwrap_or_default()
}

/// `request=device` of each result of the claim, or the error.
fn allocated(slices: &[ResourceSlice], spec: &Value) -> Result<Vec<String>, String> {
    let allocations = run(slices, &[], std::slice::from_ref(spec)).map_err(|error| error.to_string())?;
    let named = |result: DeviceRequestAllocationResult| format!("{}={}", result.request, result.device);
    Ok(results(&allocations[0]).into_iter().map(named).collect())
}

/// A claim that has these devices of the pool `pool`.
fn holder(results: &[Value]) -> ResourceClaim {
    let results: Vec<Value> = results
        .iter()
        .map(|result| {
            let mut whole = json!({"request": "a", "driver": DRIVER, "pool": "pool"});
            whole.as_object_mut().expect("an object").extend(result.as_object().expect("fields").clone());
            whole
        })
        .collect();
    object(
        json!({"metadata": {"name": "holder"}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}}),
    )
}

fn selector(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

#[test]
fn the_first_free_devices_are_taken_in_order() {
    let slices = devices(&json!([{"name": "x"}, {"name": "y"}, {"name": "z"}]));
    assert_eq!(allocated(&slices, &one(&json!({}))), Ok(vec!["a=x".into()]));
    assert_eq!(allocated(&slices, &one(&json!({"count": 2}))), Ok(vec!["a=x".into(), "a=y".into()]));
    let taken = [holder(&[json!({"device": "x"})])];
    let second = run(&slices, &taken, &[one(&json!({}))]).expect("free");
    assert_eq!(results(&second[0])[0].device, "y");
    let admin = [holder(&[json!({"device": "x", "adminAccess": true})])];
    let first = run(&slices, &admin, &[one(&json!({}))]).expect("free");
    assert_eq!(results(&first[0])[0].device, "x", "access for administrators takes nothing");
    let error = allocated(&slices, &one(&json!({"count": 4}))).expect_err("three");
    assert!(error.contains("3 of 4 devices are free"), "{error}");
}

#[test]
fn selectors_of_class_and_request_choose() {
    let model = |name: &str, model: &str| json!({"name": name, "attributes": {"model": {"string": model}}});
    let slices = devices(&json!([model("x", "T4"), model("y", "A100")]));
    let wanted = |model: &str| {
        one(&json!({"selectors": selector(&format!("device.attributes['{DRIVER}'].model == '{model}'"))}))
    };
    assert_eq!(allocated(&slices, &wanted("A100")), Ok(vec!["a=y".into()]));
    assert!(allocated(&slices, &wanted("H100")).expect_err("none").contains("0 of 1"));

    let fails = one(&json!({"selectors": selector("device.attributes['other.example.com'].x == 1")}));
    let error = allocated(&slices, &fails).expect_err("fails on the first device");
    assert!(error.contains("selector 0 on device gpu.example.com/pool/x: no such key: x"), "{error}");
    let odd = one(&json!({"selectors": selector("[1].all(i, x, true)")}));
    assert!(allocated(&slices, &odd).expect_err("not supported").contains("not supported"));
    let none = one(&json!({"deviceClassName": "none"}));
    assert!(allocated(&slices, &none).expect_err("no class").contains("does not exist"));
}

#[test]
fn a_choice_that_leads_nowhere_is_undone() {
    let numa = |name: &str, numa: i64| json!({"name": name, "attributes": {"numa": {"int": numa}}});
    let slices = devices(&json!([numa("x", 0), numa("y", 1), numa("z", 1)]));
    let mut spec = one(&json!({"count": 2}));
    spec["constraints"] = json!([{"matchAttribute": format!("{DRIVER}/numa")}]);
    assert_eq!(allocated(&slices, &spec), Ok(vec!["a=y".into(), "a=z".into()]));
    spec["constraints"] = json!([{"distinctAttribute": format!("{DRIVER}/numa")}]);
    assert_eq!(allocated(&slices, &spec), Ok(vec!["a=x".into(), "a=y".into()]));
    spec = one(&json!({"count": 3}));
    spec["constraints"] = json!([{"matchAttribute": format!("{DRIVER}/numa")}]);
    let error = allocated(&slices, &spec).expect_err("two at most");
    assert!(error.contains("not for all of them together"), "{error}");
    spec = one(&json!({"allocationMode": "All"}));
    spec["constraints"] = json!([{"matchAttribute": format!("{DRIVER}/numa")}]);
    assert!(allocated(&slices, &spec).expect_err("all").contains("a claim constraint"));
}

#[test]
fn all_means_all_that_match_and_at_least_one() {
    let slices = devices(&json!([{"name": "x"}, {"name": "y"}]));
    let all = one(&json!({"allocationMode": "All"}));
    assert_eq!(allocated(&slices, &all), Ok(vec!["a=x".into(), "a=y".into()]));
    let none = one(&json!({"allocationMode": "All", "selectors": selector("false")}));
    assert!(allocated(&slices, &none).is_err());
    let taken = [holder(&[json!({"device": "y"})])];
    assert!(run(&slices, &taken, std::slice::from_ref(&all)).is_err(), "one of them is in use");
    let two = json!({"name": "other", "generation": 1, "resourceSliceCount": 2});
    let incomplete = [slices[0].clone(), slice("other", &json!({"pool": two, "devices": [{"name": "z"}]}))];
    let error = allocated(&incomplete, &all).expect_err("not known");
    assert!(error.contains("resource pool gpu.example.com/other is currently being updated"), "{error}");
    assert_eq!(allocated(&incomplete, &one(&json!({}))), Ok(vec!["a=x".into()]), "one of another pool");
}

#[test]
fn the_first_alternative_that_fits_is_taken_and_gives_its_name() {
    let slices = devices(&json!([{"name": "x"}, {"name": "y"}]));
    let alternative =
        |name: &str, count: usize| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let spec = |alternatives: Value| json!({"requests": [{"name": "a", "firstAvailable": alternatives}]});
    assert_eq!(
        allocated(&slices, &spec(json!([alternative("big", 3), alternative("small", 1)]))),
        Ok(vec!["a/small=x".into()])
    );
    assert_eq!(
        allocated(&slices, &spec(json!([alternative("big", 2), alternative("small", 1)]))),
        Ok(vec!["a/big=x".into(), "a/big=y".into()])
    );
    let mut two = spec(json!([alternative("big", 2), alternative("small", 1)]));
    two["requests"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"name": "b", "exactly": {"deviceClassName": "gpu"}}));
    assert_eq!(allocated(&slices, &two), Ok(vec!["a/small=x".into(), "b=y".into()]), "leaves one for b");
}

#[test]
fn a_claim_has_32_results_at_most() {
    let names: Vec<Value> = (0..40).map(|number| json!({"name": format!("d{number}")})).collect();
    let slices = devices(&json!(names));
    assert_eq!(allocated(&slices, &one(&json!({"count": 32}))).map(|devices| devices.len()), Ok(32));
    assert!(allocated(&slices, &one(&json!({"count": 33}))).expect_err("33").contains("more than 32"));
    assert!(allocated(&slices, &one(&json!({"allocationMode": "All"}))).is_err());
    let alternatives = json!([{"name": "all", "deviceClassName": "gpu", "count": 33}, {"name": "one", "deviceClassName": "gpu"}]);
    let spec = json!({"requests": [{"name": "a", "firstAvailable": alternatives}]});
    assert_eq!(allocated(&slices, &spec), Ok(vec!["a/one=d0".into()]));
}

#[test]
fn counters_are_shared_with_devices_in_use() {
    let device = |name: &str, amount: &str| json!({"name": name, "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": amount}}}]});
    let of_two = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let counters = json!([{"name": "s", "counters": {"memory": {"value": "40Gi"}}}]);
    let slices = [
        slice("a", &json!({"pool": of_two, "sharedCounters": counters})),
        slice(
            "b",
            &json!({"pool": of_two, "devices": [device("whole", "40Gi"), device("half-0", "20Gi"), device("half-1", "20Gi")]}),
        ),
    ];
    assert_eq!(allocated(&slices, &one(&json!({}))), Ok(vec!["a=whole".into()]));
    assert_eq!(
        allocated(&slices, &one(&json!({"count": 2}))),
        Ok(vec!["a=half-0".into(), "a=half-1".into()])
    );
    let taken = [holder(&[json!({"device": "half-1"})])];
    let half = run(&slices, &taken, &[one(&json!({}))]).expect("a half is left");
    assert_eq!(results(&half[0])[0].device, "half-0");
}

#[test]
fn capacity_is_shared_out_until_it_is_used_up() {
    let policy = json!({"default": "1", "validRange": {"min": "1", "max": "10", "step": "1"}});
    let slices = devices(&json!([{"name": "x", "allowMultipleAllocations": true,
        "capacity": {"lanes": {"value": "10", "requestPolicy": policy}}}]));
    let lanes = |lanes: &str| one(&json!({"capacity": {"requests": {"lanes": lanes}}}));
    let both = run(&slices, &[], &[lanes("4"), lanes("5500m")]).expect("10 in all");
    let shares: Vec<_> = both.iter().flat_map(results).collect();
    let consumed: Vec<_> = shares
        .iter()
        .map(|result| result.consumed_capacity.as_ref().expect("a share")["lanes"].0.clone())
        .collect();
    assert_eq!(consumed, ["4", "6"]);
    assert!(shares[0].share_id.is_some() && shares[0].share_id != shares[1].share_id);
    assert_eq!(shares[0].share_id.as_ref().map(String::len), Some(36));

    let share = |lanes: &str| json!({"device": "x", "shareID": "i", "consumedCapacity": {"lanes": lanes}});
    let taken = [holder(&[share("7")])];
    assert!(run(&slices, &taken, &[lanes("3")]).is_ok());
    assert!(run(&slices, &taken, &[lanes("4")]).is_err());
    assert!(run(&slices, &[], &[lanes("11")]).is_err(), "more than the policy allows");
    let other = one(&json!({"capacity": {"requests": {"other": "1"}}}));
    assert!(run(&slices, &[], &[other]).is_err(), "no such capacity");
}

#[test]
fn taints_admin_access_and_binding_conditions_show_in_the_result() {
    let taint = json!([{"key": "broken", "effect": "NoSchedule"}]);
    let slices = [
        slice(
            "a-binding",
            &json!({"devices": [{"name": "x", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"], "bindsToNode": true}]}),
        ),
        slice("b", &json!({"devices": [{"name": "y", "taints": taint}]})),
    ];
    let tolerant = one(&json!({"tolerations": [{"operator": "Exists"}]}));
    assert_eq!(allocated(&slices, &tolerant), Ok(vec!["a=y".into()]), "binding conditions come last");
    let bound = run(&slices, &[], &[one(&json!({}))]).expect("the other one");
    let result = &results(&bound[0])[0];
    assert_eq!(result.binding_conditions, Some(vec!["ready".to_owned()]));
    assert_eq!(result.binding_failure_conditions, Some(vec!["failed".to_owned()]));
    let taken = [holder(&[json!({"device": "y", "pool": "b"}), json!({"device": "x", "pool": "a-binding"})])];
    let admin = one(&json!({"adminAccess": true}));
    let watched = run(&slices, &taken, &[admin]).expect("in use, but for an administrator");
    assert_eq!(results(&watched[0])[0].admin_access, Some(true));
}

#[test]
fn a_device_that_a_rule_taints_is_for_those_who_tolerate_it() {
    let slices = devices(&json!([{"name": "x"}, {"name": "y"}]));
    let selector = json!({"driver": DRIVER, "pool": "pool", "device": "x"});
    let taint = json!({"key": "maintenance", "effect": "NoSchedule"});
    let rule = json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}});
    let rules = [TaintRule::read(&rule).expect("a rule")];
    let known = Known { slices: &slices, classes: &classes(), claims: &[], taint_rules: &rules };
    let device = |exactly: &Value| {
        let allocations = allocate(&known, &node(), &[claim(&one(exactly))]).expect("free");
        results(&allocations[0])[0].device.clone()
    };
    assert_eq!(device(&json!({})), "y");
    assert_eq!(device(&json!({"tolerations": [{"key": "maintenance", "operator": "Exists"}]})), "x");
}

#[test]
fn an_invalid_pool_is_told_only_if_nothing_else_fits() {
    let twice = slice("invalid", &json!({"devices": [{"name": "x"}, {"name": "x"}]}));
    let good = slice("z", &json!({"devices": [{"name": "y"}]}));
    assert_eq!(allocated(&[twice.clone(), good], &one(&json!({}))), Ok(vec!["a=y".into()]));
    let error = allocated(&[twice], &one(&json!({}))).expect_err("nothing else");
    assert!(
        error.contains(
            "invalid resource pools were encountered: gpu.example.com/invalid: duplicate device name x"
        ),
        "{error}"
    );
}

#[test]
fn the_node_selector_says_from_where_all_devices_can_be_used() {
    let term = |key: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]});
    let placed = |place: &Value, device: &Value| {
        let mut fields = place.clone();
        fields["devices"] = json!([device]);
        let mut slice = serde_json::to_value(slice("pool", &fields)).expect("JSON");
        if place.get("nodeName").is_none() {
            slice["spec"].as_object_mut().expect("an object").remove("nodeName");
        }
        let allocations = run(&[object(slice)], &[], &[one(&json!({}))]).expect("free");
        allocations[0].node_selector.clone()
    };
    let zone: NodeSelector = object(term("zone"));
    let device = json!({"name": "x"});
    for (place, device, expected) in [
        (json!({"nodeName": "node-1"}), &device, Some(nodes::only("node-1"))),
        (json!({"allNodes": true}), &device, None),
        (json!({"allNodes": true}), &json!({"name": "x", "bindsToNode": true}), Some(nodes::only("node-1"))),
        (json!({"nodeSelector": term("zone")}), &device, Some(zone.clone())),
        (
            json!({"perDeviceNodeSelection": true}),
            &json!({"name": "x", "nodeSelector": term("zone")}),
            Some(zone),
        ),
    ] {
        assert_eq!(placed(&place, device), expected, "{place} {device}");
    }
}

#[test]
fn configurations_of_classes_and_the_claim_go_to_the_requests_that_they_concern() {
    let slices = devices(&json!([{"name": "x"}, {"name": "y"}]));
    let exactly = |class: &str| json!({"deviceClassName": class});
    let alternatives = json!([{"name": "only", "deviceClassName": "any"}]);
    let config =
        |requests: Value| json!({"requests": requests, "opaque": {"driver": DRIVER, "parameters": {}}});
    let spec = json!({
        "requests": [{"name": "a", "exactly": exactly("gpu")}, {"name": "b", "firstAvailable": alternatives}],
        "config": [config(json!(["a", "b/only"])), config(json!(["b"])), config(json!(["b/other"])), config(json!([]))],
    });
    let allocation = run(&slices, &[], &[spec]).expect("free").remove(0);
    let configs = allocation.devices.and_then(|devices| devices.config).unwrap_or_default();
    let told: Vec<(&str, Option<Vec<String>>)> =
        configs.iter().map(|config| (config.source.as_str(), config.requests.clone())).collect();
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
    let expected = [
        ("FromClass", names(&["a"])),
        ("FromClaim", None),
        ("FromClaim", names(&["b"])),
        ("FromClaim", None),
    ];
    assert_eq!(told, expected);
}
