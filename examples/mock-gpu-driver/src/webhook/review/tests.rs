use serde_json::json;

use super::*;
use crate::profile::DeviceProfile;

fn judge() -> Judge {
    let gpu = DeviceProfile::Gpu;
    Judge::new("gpu.example.com".parse().unwrap(), move |parameters| gpu.validate(parameters))
}

/// A request to do something with a claim or a template that has these configurations.
fn request(operation: &str, version: &str, resource: &str, configs: &Value) -> Value {
    let (kind, spec) = match resource {
        "resourceclaimtemplates" => {
            ("ResourceClaimTemplate", json!({"spec": {"devices": {"config": configs}}}))
        }
        _ => ("ResourceClaim", json!({"devices": {"config": configs}})),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "resource.k8s.io", "version": version, "kind": kind},
            "resource": {"group": "resource.k8s.io", "version": version, "resource": resource},
            "name": "one", "namespace": "default", "operation": operation,
            "userInfo": {"username": "anna"},
            "object": {
                "apiVersion": format!("resource.k8s.io/{version}"),
                "kind": kind,
                "metadata": {"name": "one", "namespace": "default"},
                "spec": spec,
            },
            "oldObject": null, "dryRun": false, "options": null,
        },
    })
}

fn config(driver: &str, interval: &str) -> Value {
    json!({"opaque": {"driver": driver, "parameters": {
        "apiVersion": "gpu.resource.example.com/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}},
    }}})
}

fn ours(interval: &str) -> Value {
    config("gpu.example.com", interval)
}

/// The answer's message; empty if the object is let pass.
fn refusal(review: &Value) -> String {
    let answer = judge().answer(review.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = &answer["response"];
    assert_eq!(response["uid"], review["request"]["uid"]);
    if response["allowed"] == true {
        return String::new();
    }
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    response["status"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn mistakes_are_refused_with_the_path_of_the_field_in_all_versions() {
    for version in VERSIONS {
        for (resource, path) in [
            ("resourceclaims", "spec.devices.config[1]"),
            ("resourceclaimtemplates", "spec.spec.devices.config[1]"),
        ] {
            let good = json!([ours("Long"), ours("Short")]);
            assert_eq!(refusal(&request("CREATE", version, resource, &good)), "", "{version} {resource}");
            let bad = json!([ours("Long"), ours("Endless")]);
            let expected = format!(
                "{path}.opaque.parameters.sharing.timeSlicingConfig.interval: unknown time-slice interval \"Endless\", \
                 expected Default, Short, Medium or Long"
            );
            for operation in ["CREATE", "UPDATE"] {
                let refused = refusal(&request(operation, version, resource, &bad));
                assert_eq!(refused, expected, "{version} {resource}");
            }
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let mut unknown = ours("Long");
    unknown["opaque"]["parameters"]["sharign"] = json!({});
    let nothing = json!({"opaque": {"driver": "gpu.example.com"}});
    let refused = refusal(&request("CREATE", "v1", "resourceclaims", &json!([unknown, nothing])));
    let expected = "spec.devices.config[0].opaque.parameters.sharign: unknown field; \
                    spec.devices.config[1].opaque.parameters: must be a JSON object";
    assert_eq!(refused, expected);
}

#[test]
fn what_is_not_the_drivers_or_not_new_is_let_pass() {
    let bad = json!([ours("Endless")]);
    let create = |configs: Value| request("CREATE", "v1", "resourceclaims", &configs);
    let mut without_spec = create(json!([]));
    without_spec["request"]["object"]["spec"] = json!({});
    let mut delete = request("DELETE", "v1", "resourceclaims", &bad);
    delete["request"]["oldObject"] = delete["request"]["object"].take();
    let mut status = request("UPDATE", "v1", "resourceclaims", &bad);
    status["request"]["subResource"] = json!("status");
    // As when the last finalizer of a claim is removed that is older than the webhook.
    let mut unchanged = request("UPDATE", "v1", "resourceclaims", &bad);
    unchanged["request"]["oldObject"] = unchanged["request"]["object"].clone();
    let table = [
        ("another driver's", create(json!([config("other.example.com", "Endless")]))),
        ("not opaque", create(json!([{"later": {}}]))),
        ("no configuration", create(json!(null))),
        ("no devices", without_spec),
        ("a deletion", delete),
        ("a status", status),
        ("an old mistake", unchanged),
    ];
    for (what, review) in table {
        assert_eq!(refusal(&review), "", "{what}");
    }
    let mut one_more = request("UPDATE", "v1", "resourceclaims", &json!([ours("Endless"), ours("Never")]));
    one_more["request"]["oldObject"] =
        request("UPDATE", "v1", "resourceclaims", &bad)["request"]["object"].clone();
    let refused = refusal(&one_more);
    assert!(refused.starts_with("spec.devices.config[1]") && !refused.contains("Endless"), "{refused}");
}

#[test]
fn objects_that_it_does_not_know_are_refused_with_what_to_correct() {
    for (version, resource) in [("v1", "deviceclasses"), ("v2", "resourceclaims")] {
        let refused = refusal(&request("CREATE", version, resource, &json!([])));
        let told = format!("not {resource} of resource.k8s.io/{version}: correct the rules");
        assert!(refused.contains(&told), "{refused}");
    }
}

#[test]
fn what_is_no_review_is_an_error() {
    let mut other = request("CREATE", "v1", "resourceclaims", &json!([]));
    other["apiVersion"] = json!("admission.k8s.io/v2");
    let table = [
        ("{".to_owned(), "no AdmissionReview: "),
        (other.to_string(), "of \"admission.k8s.io/v2\", not of"),
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(), "no request"),
    ];
    for (body, expected) in table {
        let error = judge().answer(body.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// A body with this JSON in place of the parameters.
fn with_parameters(review: &Value, json: &str) -> Vec<u8> {
    review.to_string().replace(r#"{"placeholder":1}"#, json).into_bytes()
}

fn opaque(driver: &str) -> Value {
    json!({"opaque": {"driver": driver, "parameters": {"placeholder": 1}}})
}

#[test]
fn parameters_of_another_driver_are_not_read_and_a_key_of_ours_that_stands_twice_is_refused() {
    let create = |driver: &str| request("CREATE", "v1", "resourceclaims", &json!([opaque(driver)]));
    let judged = |body: &[u8]| -> Value { serde_json::from_slice(&judge().answer(body).unwrap()).unwrap() };
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for foreign in [r#"{"name":"x\ud800y"}"#, r#"{"a":1,"a":2}"#, deep.as_str()] {
        let answer = judged(&with_parameters(&create("nic.example.com"), foreign));
        assert_eq!(answer["response"]["allowed"], true, "{foreign:.40}");
    }
    let answer =
        judged(&with_parameters(&create("gpu.example.com"), r#"{"sharing":{"strategy":1,"strategy":2}}"#));
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "spec.devices.config[0].opaque.parameters.sharing.strategy: this key is written twice"
    );
}

#[test]
fn what_is_unchanged_may_be_spelled_otherwise() {
    let old = request("UPDATE", "v1", "resourceclaims", &json!([opaque("gpu.example.com")]));
    let mut review = old.clone();
    review["request"]["oldObject"] = old["request"]["object"].clone();
    let body = String::from_utf8(with_parameters(&review, r#"{"b":1,"a":2}"#)).unwrap();
    let other_order = body.replacen(r#"{"b":1,"a":2}"#, r#"{"a":2, "b":1}"#, 1);
    assert_ne!(body, other_order);
    for body in [body, other_order] {
        let answer: Value = serde_json::from_slice(&judge().answer(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(answer["response"]["allowed"], true, "{body}");
    }
}

#[test]
fn more_configurations_than_the_api_takes_are_no_review() {
    let review =
        |count: usize| request("CREATE", "v1", "resourceclaims", &Value::Array(vec![json!({}); count]));
    assert_eq!(refusal(&review(256)), "");
    let error = judge().answer(review(257).to_string().as_bytes()).unwrap_err();
    assert!(error.contains("more than 256 configurations"), "{error}");
}

#[test]
fn a_refusal_has_its_limit() {
    let mut long = opaque("gpu.example.com");
    long["opaque"]["parameters"] = json!({"apiVersion": "x".repeat(60_000)});
    let refused = refusal(&request("CREATE", "v1", "resourceclaims", &json!([long])));
    assert!(refused.len() < 9000 && refused.ends_with('…'), "{}", refused.len());
    long["opaque"]["parameters"] = json!({"apiVersion": "x".repeat(70_000)});
    let refused = refusal(&request("CREATE", "v1", "resourceclaims", &json!([long])));
    assert!(refused.contains("opaque.parameters: 7") && refused.contains("at most 65536"), "{refused}");
}

#[test]
fn bytes_that_are_no_text_are_let_pass_in_parameters_of_another_driver() {
    let review = request("CREATE", "v1", "resourceclaims", &json!([opaque("nic.example.com")]));
    let mut body = with_parameters(&review, r#"{"a":"XY"}"#);
    let at = body.windows(2).position(|two| two == b"XY").unwrap();
    body[at..at + 2].copy_from_slice(&[0xff, 0xc3]);
    let answer: Value = serde_json::from_slice(&judge().answer(&body).unwrap()).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
}
