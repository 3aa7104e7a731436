//! Limits of claims, their templates and device classes.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, device_status, items, names, text};

const MAX_REQUESTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIGS: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_PARAMETERS: usize = 10 * 1024;
const MAX_RESULTS: usize = 32;
const MAX_RESERVATIONS: usize = 256;

pub(super) fn check(found: &mut Findings, old: Option<&Value>, new: &Value) {
    found.immutable("spec", old.map(|old| &old["spec"]), &new["spec"]);
    spec(found, "spec", &new["spec"]);
    status(found, old.map(|old| &old["status"]), &new["status"]);
}

pub(super) fn check_template(found: &mut Findings, old: Option<&Value>, new: &Value) {
    found.immutable("spec", old.map(|old| &old["spec"]), &new["spec"]);
    spec(found, "spec.spec", &new["spec"]["spec"]);
}

pub(super) fn check_class(found: &mut Findings, class: &Value) {
    found.at_most("spec.selectors", items(&class["spec"]["selectors"]).len(), MAX_SELECTORS);
    configs(found, "spec.config", &class["spec"]["config"]);
}

fn spec(found: &mut Findings, at: &str, spec: &Value) {
    let devices = &spec["devices"];
    let requests = items(&devices["requests"]);
    let at = format!("{at}.devices");
    found.at_most(&format!("{at}.requests"), requests.len(), MAX_REQUESTS);
    found.at_most(&format!("{at}.constraints"), items(&devices["constraints"]).len(), MAX_CONSTRAINTS);
    found.unique(&format!("{at}.requests"), requests.iter().map(|request| text(&request["name"])));
    for (index, request) in requests.iter().enumerate() {
        check_request(found, &format!("{at}.requests[{index}]"), request);
    }
    configs(found, &format!("{at}.config"), &devices["config"]);
}

fn check_request(found: &mut Findings, at: &str, request: &Value) {
    found.name(&format!("{at}.name"), &request["name"], names::dns_label);
    let alternatives = items(&request["firstAvailable"]);
    if request["exactly"].is_null() == alternatives.is_empty() {
        found.add(Cause::invalid(at, "exactly one of exactly, firstAvailable must be set"));
    }
    found.at_most(&format!("{at}.firstAvailable"), alternatives.len(), MAX_ALTERNATIVES);
    if !request["exactly"].is_null() {
        ask(found, &format!("{at}.exactly"), &request["exactly"]);
    }
    for (index, alternative) in alternatives.iter().enumerate() {
        let at = format!("{at}.firstAvailable[{index}]");
        found.name(&format!("{at}.name"), &alternative["name"], names::dns_label);
        ask(found, &at, alternative);
    }
}

/// What one request or one alternative asks for.
fn ask(found: &mut Findings, at: &str, ask: &Value) {
    found.name(&format!("{at}.deviceClassName"), &ask["deviceClassName"], names::dns_subdomain);
    found.at_most(&format!("{at}.selectors"), items(&ask["selectors"]).len(), MAX_SELECTORS);
    let count = ask["count"].as_i64();
    match text(&ask["allocationMode"]) {
        "" | "ExactCount" if count.is_some_and(|count| count < 1) => {
            found.add(Cause::invalid(format!("{at}.count"), "must be greater than zero"));
        }
        "" | "ExactCount" => {}
        "All" if count.is_none_or(|count| count == 0) => {}
        "All" => found.add(Cause::invalid(format!("{at}.count"), "must be absent with allocationMode All")),
        other => {
            let message = format!("{other:?} is neither ExactCount nor All");
            found.add(Cause::invalid(format!("{at}.allocationMode"), message));
        }
    }
}

fn configs(found: &mut Findings, at: &str, configs: &Value) {
    found.at_most(at, items(configs).len(), MAX_CONFIGS);
    for (index, config) in items(configs).iter().enumerate() {
        let at = format!("{at}[{index}].opaque");
        let opaque = &config["opaque"];
        if opaque.is_null() {
            found.add(Cause::required(at, "must be set"));
            continue;
        }
        found.name(&format!("{at}.driver"), &opaque["driver"], names::driver);
        let at = format!("{at}.parameters");
        if !opaque["parameters"].is_object() {
            found.add(Cause::invalid(at, "must be a JSON object"));
        } else if opaque["parameters"].to_string().len() > MAX_PARAMETERS {
            found.add(Cause::invalid(at, "has more than 10 KiB"));
        }
    }
}

fn status(found: &mut Findings, old: Option<&Value>, status: &Value) {
    let allocation = &status["allocation"];
    let was = old.map(|old| &old["allocation"]).filter(|old| !old.is_null());
    if !allocation.is_null() {
        found.immutable("status.allocation", was, allocation);
    }
    let results = items(&allocation["devices"]["results"]);
    found.at_most("status.allocation.devices.results", results.len(), MAX_RESULTS);
    for (index, result) in results.iter().enumerate() {
        check_result(found, &format!("status.allocation.devices.results[{index}]"), result);
    }
    let reserved = items(&status["reservedFor"]);
    found.at_most("status.reservedFor", reserved.len(), MAX_RESERVATIONS);
    found.unique("status.reservedFor", reserved.iter().map(|consumer| text(&consumer["uid"])));
    if allocation.is_null() && !reserved.is_empty() {
        found.add(Cause::invalid("status.reservedFor", "a claim without an allocation cannot be reserved"));
    }
    device_status::check(found, results, items(&status["devices"]));
}

fn check_result(found: &mut Findings, at: &str, result: &Value) {
    found.name(&format!("{at}.driver"), &result["driver"], names::driver);
    found.name(&format!("{at}.pool"), &result["pool"], names::pool);
    found.name(&format!("{at}.device"), &result["device"], names::dns_label);
    if !result["shareID"].is_null() {
        found.name(&format!("{at}.shareID"), &result["shareID"], names::uuid);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Value {
        json!({
            "spec": {"devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
            }},
            "status": {
                "allocation": {"devices": {"results": [
                    {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
                ]}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
                "devices": [{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}],
            },
        })
    }

    fn fields(old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut found = Findings::default();
        check(&mut found, old, new);
        found.causes.into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn a_sound_claim_passes() {
        assert_eq!(fields(None, &claim()), Vec::<String>::new());
        assert_eq!(fields(Some(&claim()), &claim()), Vec::<String>::new());
    }

    #[test]
    fn each_limit_names_its_field() {
        for (pointer, value, field) in [
            ("/spec/devices/requests/0/name", json!("a/b"), "spec.devices.requests[0].name"),
            ("/spec/devices/requests/0/exactly", json!(null), "spec.devices.requests[0]"),
            (
                "/spec/devices/requests/0/exactly/deviceClassName",
                json!(""),
                "spec.devices.requests[0].exactly.deviceClassName",
            ),
            ("/spec/devices/requests/0/exactly/count", json!(0), "spec.devices.requests[0].exactly.count"),
            (
                "/spec/devices/config/0/opaque/parameters",
                json!([]),
                "spec.devices.config[0].opaque.parameters",
            ),
            (
                "/status/allocation/devices/results/0/device",
                json!("GPU"),
                "status.allocation.devices.results[0].device",
            ),
            ("/status/devices/0/device", json!("gpu-1"), "status.devices[0]"),
        ] {
            let mut claim = claim();
            *claim.pointer_mut(pointer).expect("exists") = value;
            assert!(
                fields(None, &claim).iter().any(|found| found == field),
                "{pointer}: {:?}",
                fields(None, &claim)
            );
        }
    }

    #[test]
    fn the_spec_and_the_allocation_cannot_change() {
        let mut other = claim();
        other["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(2);
        assert_eq!(fields(Some(&claim()), &other), ["spec"]);
        let mut moved = claim();
        moved["status"]["allocation"]["devices"]["results"][0]["pool"] = json!("node-2");
        moved["status"]["devices"] = json!([]);
        assert_eq!(fields(Some(&claim()), &moved), ["status.allocation"]);
    }

    #[test]
    fn a_reserved_claim_keeps_its_allocation() {
        let mut freed = claim();
        freed["status"] = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]});
        assert_eq!(fields(Some(&claim()), &freed), ["status.reservedFor"]);
        freed["status"] = json!({});
        assert_eq!(fields(Some(&claim()), &freed), Vec::<String>::new());
    }
}
