//! Objects that a pod or a claim names and that do not exist.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::subject::{claims_of, classes_of, find, is_allocated, name_of};
use crate::finding::{Finding, Verdict};
use crate::snapshot::{ObjectName, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.pods.verdict(|pods| {
        let mut findings: Vec<Finding> = Vec::new();
        for pod in pods {
            findings.extend(claims_missing(snapshot, pod));
            findings.extend(templates_missing(snapshot, pod));
        }
        if let (Some(name), Some(claims)) = (&snapshot.claim, snapshot.claims.seen())
            && find(claims, name).is_none()
        {
            findings.push(Finding::new(
                format!("ResourceClaim {name}"),
                "it does not exist",
                "look for its name and namespace with `kubectl get resourceclaims -A`",
            ));
        }
        snapshot.classes.check(|classes| {
            let known: BTreeSet<&str> =
                classes.iter().filter_map(|class| class.metadata.name.as_deref()).collect();
            for (subject, spec) in specs(snapshot) {
                for (request, class) in classes_of(&spec) {
                    if !known.contains(class.as_str()) {
                        findings.push(no_class(&subject, &request, &class));
                    }
                }
            }
            findings
        })
    })
}

fn claims_missing(snapshot: &Snapshot, pod: &Pod) -> Vec<Finding> {
    let Some(claims) = snapshot.claims.seen() else { return Vec::new() };
    let subject = format!("Pod {}", name_of(&pod.metadata));
    let missing = claims_of(pod).into_iter().filter(|(_, name)| find(claims, name).is_none());
    missing
        .map(|(entry, name)| {
            Finding::new(
                subject.clone(),
                format!("its claim {entry:?} is ResourceClaim {name}, which does not exist"),
                "create the claim; the pod goes on by itself then",
            )
        })
        .collect()
}

fn templates_missing(snapshot: &Snapshot, pod: &Pod) -> Vec<Finding> {
    let Some(templates) = snapshot.templates.seen() else { return Vec::new() };
    let subject = format!("Pod {}", name_of(&pod.metadata));
    let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let made = claims_of(pod);
    entries
        .filter(|entry| !made.iter().any(|(name, _)| *name == entry.name))
        .filter_map(|entry| Some((&entry.name, entry.resource_claim_template_name.as_ref()?)))
        .filter(|(_, template)| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let wanted = ObjectName::new(namespace, template.as_str());
            !templates.iter().any(|template| name_of(&template.metadata) == wanted)
        })
        .map(|(entry, template)| {
            Finding::new(
                subject.clone(),
                format!("its claim {entry:?} is to be made from ResourceClaimTemplate {template:?}, which does not exist"),
                "create the template in the pod's namespace",
            )
        })
        .collect()
}

/// What is asked for by the claims of the pods, the claim that was named, and the templates of pods without a claim yet.
fn specs(snapshot: &Snapshot) -> Vec<(String, Value)> {
    let mut specs = Vec::new();
    let claims = snapshot.claims.seen().map(Vec::as_slice).unwrap_or_default();
    for claim in super::subject::claims_of_interest(snapshot, claims) {
        if !is_allocated(claim) {
            specs.push((format!("ResourceClaim {}", name_of(&claim.metadata)), json!(claim)["spec"].clone()));
        }
    }
    for pod in snapshot.pods.seen().into_iter().flatten() {
        let made = claims_of(pod);
        let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        for entry in entries.filter(|entry| !made.iter().any(|(name, _)| *name == entry.name)) {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let Some(template) = &entry.resource_claim_template_name else { continue };
            let wanted = ObjectName::new(namespace, template.as_str());
            let mut templates = snapshot.templates.seen().into_iter().flatten();
            if let Some(template) = templates.find(|template| name_of(&template.metadata) == wanted) {
                specs.push((
                    format!("ResourceClaimTemplate {wanted}"),
                    json!(template)["spec"]["spec"].clone(),
                ));
            }
        }
    }
    specs
}

fn no_class(subject: &str, request: &str, class: &str) -> Finding {
    Finding::new(
        subject,
        format!("request {request:?} asks for DeviceClass {class:?}, which does not exist"),
        "install the driver's DeviceClass, or ask for one that `kubectl get deviceclasses` shows; a claim cannot be \
         changed, so make it anew",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{claim, class, cluster, only, pod};

    #[test]
    fn what_is_there_is_healthy() {
        let objects = [class(), claim("c", &json!({})), pod("p", "c", 0)];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY);
    }

    #[test]
    fn what_does_not_exist_is_told_with_who_names_it() {
        let verdict = check(&cluster(&[class(), pod("p", "c", 0)]));
        let finding = only(&verdict);
        assert_eq!(finding.subject, "Pod ns/p");
        assert!(finding.problem.contains("ResourceClaim ns/c, which does not exist"), "{finding:?}");

        let verdict = check(&cluster(&[claim("c", &json!({})), pod("p", "c", 0)]));
        assert!(only(&verdict).problem.contains("DeviceClass \"gpu\", which does not exist"), "{verdict:?}");

        let mut from_template = pod("p", "c", 0);
        from_template["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let verdict = check(&cluster(&[class(), from_template.clone()]));
        assert!(only(&verdict).problem.contains("ResourceClaimTemplate \"t\""), "{verdict:?}");
        let spec = claim("", &json!({}))["spec"].clone();
        let template = json!({"kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": spec}});
        let verdict = check(&cluster(&[template, from_template]));
        assert_eq!(only(&verdict).subject, "ResourceClaimTemplate ns/t");

        let mut named = cluster(&[class()]);
        named.claim = Some(ObjectName::new("ns", "c"));
        assert!(only(&check(&named)).problem.contains("does not exist"));
    }
}
