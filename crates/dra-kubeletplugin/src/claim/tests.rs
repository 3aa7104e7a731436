use serde_json::json;

use super::*;

const UID: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

fn wanted() -> ClaimRef {
    ClaimRef::new("default", "one", UID.parse().unwrap())
}

#[expect(clippy::needless_pass_by_value, clippy::unwrap_in_result, reason = "reads better in the tests")]
fn parse(status: serde_json::Value) -> Result<AllocatedClaim, ClaimError> {
    let object = json!({"metadata": {"namespace": "default", "name": "one", "uid": UID}, "spec": {}, "status": status});
    let driver = "gpu.example.com".parse().unwrap();
    AllocatedClaim::parse(&driver, &wanted(), serde_json::from_value(object).unwrap())
}

fn result(driver: &str, device: &str) -> serde_json::Value {
    json!({"request": "gpu", "driver": driver, "pool": "node-1", "device": device})
}

fn allocated(results: &[serde_json::Value]) -> serde_json::Value {
    json!({"allocation": {"devices": {"results": results}}})
}

#[test]
fn only_results_of_this_driver_are_kept() {
    let status = allocated(&[result("nic.example.com", "nic-0"), result("gpu.example.com", "gpu-3")]);
    let claim = parse(status).unwrap();
    let names: Vec<_> = claim.devices().iter().map(|d| d.device().as_str()).collect();
    assert_eq!(names, ["gpu-3"]);
}

#[test]
fn a_claim_without_our_devices_is_no_error() {
    assert!(parse(allocated(&[result("nic.example.com", "nic-0")])).unwrap().devices().is_empty());
    assert!(parse(json!({"allocation": {}})).unwrap().devices().is_empty());
}

#[test]
fn a_replaced_claim_is_told_before_its_missing_allocation() {
    let object = json!({"metadata": {"uid": "other"}, "spec": {}});
    let driver = "gpu.example.com".parse().unwrap();
    let error =
        AllocatedClaim::parse(&driver, &wanted(), serde_json::from_value(object).unwrap()).unwrap_err();
    assert_eq!(error, ClaimError::Replaced { found: "other".into() });
    assert_eq!(parse(json!({})).unwrap_err(), ClaimError::NotAllocated);
}

#[test]
fn bad_results_name_their_position_and_field() {
    let status = allocated(&[result("nic.example.com", "nic-0"), result("gpu.example.com", "GPU 1")]);
    let text = parse(status).unwrap_err().to_string();
    assert!(text.starts_with("allocation result 1, field device: "), "{text}");
    let mut shared = result("gpu.example.com", "gpu-1");
    shared["shareID"] = json!("../../x");
    assert!(parse(allocated(&[shared])).unwrap_err().to_string().contains("shareID"));
}

#[test]
fn a_device_may_stand_twice_only_as_different_shares() {
    let twice = [result("gpu.example.com", "gpu-1"), result("gpu.example.com", "gpu-1")];
    assert!(matches!(parse(allocated(&twice)), Err(ClaimError::DuplicateDevice { .. })));
    let [mut one, mut two] = twice;
    one["shareID"] = json!("0b0e26a7-0000-4000-8000-000000000001");
    two["shareID"] = json!("0b0e26a7-0000-4000-8000-000000000002");
    assert_eq!(parse(allocated(&[one, two])).unwrap().devices().len(), 2);
}

#[test]
fn requests_split_into_base_and_alternative() {
    let mut chosen = result("gpu.example.com", "gpu-1");
    chosen["request"] = json!("gpu/large");
    let claim = parse(allocated(&[chosen, result("gpu.example.com", "gpu-2")])).unwrap();
    let parts: Vec<_> = claim.devices().iter().map(|d| (d.base_request(), d.subrequest())).collect();
    assert_eq!(parts, [("gpu", Some("large")), ("gpu", None)]);
}

#[test]
fn configs_apply_by_full_name_by_base_and_to_all() {
    let mut chosen = result("gpu.example.com", "gpu-1");
    chosen["request"] = json!("a/b");
    let config = |requests: &[&str], driver: &str| json!({"source": "FromClaim", "requests": requests, "opaque": {"driver": driver, "parameters": {"kind": "X"}}});
    let configs = [
        config(&[], "gpu.example.com"),
        config(&["a"], "gpu.example.com"),
        config(&["a/b"], "gpu.example.com"),
        config(&["x"], "gpu.example.com"),
        config(&[], "nic.example.com"),
    ];
    let status = json!({"allocation": {"devices": {"results": [chosen], "config": configs}}});
    let claim = parse(status).unwrap();
    let device = &claim.devices()[0];
    let applies: Vec<_> = claim.configs().iter().map(|c| c.applies_to(device)).collect();
    assert_eq!(applies, [true, true, true, false], "the config of the other driver is not even listed");
}

#[test]
fn tolerations_and_binding_conditions_are_those_of_the_device() {
    let mut ours = result("gpu.example.com", "gpu-3");
    ours["tolerations"] = json!([{"key": "gpu.example.com/hot", "operator": "Exists"}]);
    ours["bindingConditions"] = json!(["attached"]);
    ours["bindingFailureConditions"] = json!(["broken"]);
    let foreign = result("nic.example.com", "nic-0");
    let claim = parse(allocated(&[foreign, ours, result("gpu.example.com", "gpu-4")])).unwrap();
    let [with, without] = claim.devices() else { panic!("two devices of this driver") };
    let keys: Vec<_> = claim.tolerations(with).iter().map(|toleration| toleration.key.as_deref()).collect();
    assert_eq!(keys, [Some("gpu.example.com/hot")]);
    assert_eq!(claim.binding_conditions(with), ["attached"]);
    assert_eq!(claim.binding_failure_conditions(with), ["broken"]);
    assert!(claim.tolerations(without).is_empty());
    assert!(claim.binding_conditions(without).is_empty());
    assert!(claim.binding_failure_conditions(without).is_empty());
}
