//! Fields that the API server has dropped, because a feature gate of it is off.
//!
//! It says nothing of that: the object is stored without them. What was meant is in the annotation of `kubectl apply`.

use serde::Serialize;
use serde_json::Value;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::subject::name_of;
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields that come with a feature gate.
const GATES: [(&str, &str); 11] = [
    ("adminAccess", "DRAAdminAccess"),
    ("firstAvailable", "DRAPrioritizedList"),
    ("tolerations", "DRADeviceTaints"),
    ("taints", "DRADeviceTaints"),
    ("capacity", "DRAConsumableCapacity"),
    ("allowMultipleAllocations", "DRAConsumableCapacity"),
    ("distinctAttribute", "DRAConsumableCapacity"),
    ("sharedCounters", "DRAPartitionableDevices"),
    ("consumesCounters", "DRAPartitionableDevices"),
    ("bindingConditions", "DRADeviceBindingConditions"),
    ("extendedResourceName", "DRAExtendedResource"),
];

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.templates.verdict(|templates| {
        snapshot.claims.verdict(|claims| {
            snapshot.classes.check(|classes| {
                let claims = super::subject::claims_of_interest(snapshot, claims);
                let templates = templates.iter();
                let templates =
                    templates.filter_map(|it| stripped("ResourceClaimTemplate", &it.metadata, it));
                let claims = claims.into_iter().filter_map(|it| stripped("ResourceClaim", &it.metadata, it));
                let classes = classes.iter().filter_map(|it| stripped("DeviceClass", &it.metadata, it));
                templates.chain(claims).chain(classes).collect()
            })
        })
    })
}

fn stripped(kind: &str, metadata: &ObjectMeta, object: &impl Serialize) -> Option<Finding> {
    let applied = metadata.annotations.as_ref()?.get(ANNOTATION)?;
    let applied: Value = serde_json::from_str(applied).ok()?;
    let stored = serde_json::to_value(object).ok()?;
    // Older versions have other fields, which are stored under new names.
    if applied["apiVersion"] != "resource.k8s.io/v1" {
        return None;
    }
    let mut lost = Vec::new();
    add_lost("spec", &applied["spec"], &stored["spec"], &mut lost);
    if lost.is_empty() {
        return None;
    }
    let name = name_of(metadata);
    let name = if name.namespace.is_empty() { name.name } else { name.to_string() };
    let gates: Vec<String> = lost.iter().filter_map(|path| gate_of(path)).map(str::to_owned).collect();
    let advice = if gates.is_empty() {
        "turn the feature gate of these fields on at the API server, or correct their names; then delete it and apply it again".into()
    } else {
        format!(
            "turn feature gate {} on at the API server and the scheduler, then delete it and apply it again",
            gates.join(", ")
        )
    };
    let problem = format!("the API server has dropped fields that were applied: {}", lost.join(", "));
    Some(Finding::new(FindingKind::FieldsDropped, format!("{kind} {name}"), problem, advice))
}

/// The paths of what was applied and is not stored. Values may be spelled otherwise, so they are not compared.
fn add_lost(path: &str, applied: &Value, stored: &Value, lost: &mut Vec<String>) {
    match applied {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| says_something(value)) {
                let path = format!("{path}.{name}");
                match stored.get(name) {
                    None | Some(Value::Null) => lost.push(path),
                    // What a driver's configuration says is not the API server's business.
                    Some(_) if name == "parameters" => {}
                    Some(stored) => add_lost(&path, value, stored, lost),
                }
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                add_lost(&format!("{path}[{index}]"), element, &stored[index], lost);
            }
        }
        _ => {}
    }
}

/// Whether a value is more than what is left out when it is stored.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn gate_of(path: &str) -> Option<&'static str> {
    let field = path.rsplit('.').next()?;
    GATES.iter().find(|(name, _)| *name == field).map(|(_, gate)| *gate)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{cluster, only};

    fn template(applied: &Value, stored: &Value, version: &str) -> Value {
        let applied =
            json!({"apiVersion": version, "kind": "ResourceClaimTemplate", "spec": {"spec": applied}});
        json!({"kind": "ResourceClaimTemplate", "metadata": {
            "name": "t", "namespace": "ns", "annotations": {ANNOTATION: applied.to_string()},
        }, "spec": {"spec": stored}})
    }

    fn request(more: &Value) -> Value {
        let mut exactly = json!({"deviceClassName": "gpu"});
        for (field, value) in more.as_object().expect("fields") {
            exactly[field] = value.clone();
        }
        json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
    }

    #[test]
    fn fields_that_were_dropped_are_told_with_their_gate() {
        let applied = request(&json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
        let verdict = check(&cluster(&[template(&applied, &request(&json!({})), "resource.k8s.io/v1")]));
        let finding = only(&verdict);
        assert_eq!(finding.subject, "ResourceClaimTemplate ns/t");
        assert!(
            finding.problem.ends_with("spec.spec.devices.requests[0].exactly.tolerations"),
            "{finding:?}"
        );
        assert!(finding.advice.contains("DRADeviceTaints"), "{finding:?}");
    }

    #[test]
    fn other_spellings_defaults_and_other_versions_are_no_loss() {
        let stored = request(&json!({"count": 1, "capacity": {"requests": {"memory": "1Gi"}}}));
        for (applied, version) in [
            (request(&json!({"capacity": {"requests": {"memory": "1024Mi"}}})), "resource.k8s.io/v1"),
            (request(&json!({"adminAccess": false, "selectors": []})), "resource.k8s.io/v1"),
            (
                json!({"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}),
                "resource.k8s.io/v1beta1",
            ),
        ] {
            assert_eq!(
                check(&cluster(&[template(&applied, &stored, version)])),
                Verdict::HEALTHY,
                "{applied}"
            );
        }
    }
}
