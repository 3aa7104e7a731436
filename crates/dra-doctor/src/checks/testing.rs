//! Objects for the tests of checks.

use dra_allocator::TaintRule;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::finding::{Finding, Verdict};
use crate::snapshot::{Looked, Snapshot};

/// An object of the API.
pub(crate) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of the API")
}

/// A snapshot of a cluster with these objects.
pub(crate) fn cluster(objects: &[Value]) -> Snapshot {
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind).cloned();
    Snapshot {
        versions: Looked::At(vec!["v1".into()]),
        slices: Looked::At(of("ResourceSlice").map(object).collect()),
        classes: Looked::At(of("DeviceClass").map(object).collect()),
        taint_rules: Looked::At(of("DeviceTaintRule").map(|object| rule(&object)).collect()),
        claims: Looked::At(of("ResourceClaim").map(object).collect()),
        templates: Looked::At(of("ResourceClaimTemplate").map(object).collect()),
        nodes: Looked::At(of("Node").map(object).collect()),
        pods: Looked::At(of("Pod").map(object).collect()),
        holders: Looked::At(of("Holder").map(pod_that_holds).collect()),
        node_events: Looked::At(Vec::new()),
        pod_events: Looked::At(Vec::new()),
        ..Snapshot::default()
    }
}

fn rule(rule: &Value) -> TaintRule {
    TaintRule::read(rule).expect("a rule")
}

/// The tests call these otherwise, to tell them from the pods that are examined.
fn pod_that_holds(mut pod: Value) -> Pod {
    pod["kind"] = json!("Pod");
    object(pod)
}

pub(crate) fn node() -> Value {
    json!({"kind": "Node", "metadata": {"name": "node-1"}})
}

pub(crate) fn slice(name: &str, generation: i64, count: i64, devices: &Value) -> Value {
    json!({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
        "driver": "gpu.example.com", "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": generation, "resourceSliceCount": count},
        "devices": devices,
    }})
}

pub(crate) fn class() -> Value {
    json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
}

pub(crate) fn claim(name: &str, status: &Value) -> Value {
    json!({"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "ns"}, "spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu"}},
    ]}}, "status": status})
}

/// The status of a claim that has a device, for a pod.
pub(crate) fn held(device: &str, pod: &str) -> Value {
    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": device});
    let nodes = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["node-1"]},
    ]}]});
    json!({
        "allocation": {"devices": {"results": [result]}, "nodeSelector": nodes},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("uid-{pod}")}],
    })
}

/// A pod that waits, with a claim of this name.
pub(crate) fn pod(name: &str, claim: &str, priority: i32) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")}, "spec": {
        "containers": [], "priority": priority,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }, "status": {"phase": "Pending"}})
}

/// The only finding.
pub(crate) fn only(verdict: &Verdict) -> &Finding {
    match verdict.findings() {
        [finding] => finding,
        other => panic!("not one finding: {other:?} of {verdict:?}"),
    }
}
