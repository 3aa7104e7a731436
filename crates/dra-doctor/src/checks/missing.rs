//! Objects that a pod or a claim names and that do not exist.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::subject::{claims_of, classes_of, find, is_allocated, last_word, name_of};
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{CLAIM_NOT_MADE, ObjectName, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.pods.verdict(|pods| {
        let mut findings: Vec<Finding> = Vec::new();
        for pod in pods {
            findings.extend(claims_missing(snapshot, pod));
            findings.extend(claims_not_made(snapshot, pod));
        }
        if let (Some(name), Some(claims)) = (&snapshot.claim, snapshot.claims.seen())
            && find(claims, name).is_none()
        {
            findings.push(Finding::new(
                FindingKind::ClaimMissing,
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
                FindingKind::ClaimMissing,
                subject.clone(),
                format!("its claim {entry:?} is ResourceClaim {name}, which does not exist"),
                "create the claim in the pod's namespace; the pod goes on by itself then",
            )
        })
        .collect()
}

/// Entries of the pod that are to have a claim from a template and have none: the template is not there, or the controller
/// manager says that it fails.
fn claims_not_made(snapshot: &Snapshot, pod: &Pod) -> Vec<Finding> {
    let Some(templates) = snapshot.templates.seen() else { return Vec::new() };
    let (own, made) = (name_of(&pod.metadata), claims_of(pod));
    let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let mut findings = Vec::new();
    for entry in entries.filter(|entry| !made.iter().any(|(name, _)| *name == entry.name)) {
        let Some(template) = &entry.resource_claim_template_name else { continue };
        let (subject, entry) = (format!("Pod {own}"), &entry.name);
        let wanted = ObjectName::new(own.namespace.clone(), template.as_str());
        if !templates.iter().any(|template| name_of(&template.metadata) == wanted) {
            findings.push(Finding::new(
                FindingKind::TemplateMissing,
                subject,
                format!("its claim {entry:?} is to be made from ResourceClaimTemplate {template:?}, which does not exist"),
                "create the template in the pod's namespace; the pod goes on by itself then",
            ));
        } else if let Some(note) = last_word(snapshot, &own, CLAIM_NOT_MADE) {
            findings.push(Finding::new(
                FindingKind::ClaimNotMade,
                subject,
                format!("its claim {entry:?} cannot be made from ResourceClaimTemplate {template:?}: {note}"),
                "put right what it says, mostly a ResourceQuota, or admin access in a namespace without the label \
                 `resource.kubernetes.io/admin-access: \"true\"`; the pod goes on by itself then",
            ));
        }
    }
    findings
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
        FindingKind::ClassMissing,
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
    use crate::snapshot::{Event, Looked};

    #[test]
    fn what_is_there_is_healthy() {
        let objects = [class(), claim("c", &json!({})), pod("p", "c", 0)];
        assert_eq!(check(&cluster(&objects)), Verdict::HEALTHY);
    }

    #[test]
    fn why_a_claim_is_not_made_is_repeated() {
        let mut waiting = pod("p", "c", 0);
        waiting["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let spec = claim("", &json!({}))["spec"].clone();
        let template = json!({"kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": spec}});
        let mut snapshot = cluster(&[class(), template, waiting]);
        assert_eq!(check(&snapshot), Verdict::HEALTHY, "it may be about to be made");
        let event = |reason: &str, note: &str| Event {
            about: ObjectName::new("ns", "p"),
            reason: reason.into(),
            note: note.into(),
            when: 1,
        };
        snapshot.pod_events =
            Looked::At(vec![event(CLAIM_NOT_MADE, "exceeded quota"), event("Other", "else")]);
        let verdict = check(&snapshot);
        assert_eq!(only(&verdict).kind, FindingKind::ClaimNotMade);
        assert!(only(&verdict).problem.ends_with("exceeded quota"), "{verdict:?}");
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
        assert_eq!(only(&verdict).kind, FindingKind::TemplateMissing, "{verdict:?}");
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
