//! The claim of a pod that is made from a template.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::compat;

/// Annotation that names the claim in the pod.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// The claim for the entry `entry` of the pod, as the claim controller makes it.
pub(super) fn claim(pod: &Pod, entry: &str, template: &ResourceClaimTemplate) -> ResourceClaim {
    let spec = compat::template_spec(template);
    let asked = spec.and_then(|spec| spec.metadata.clone()).unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = asked.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.into(), entry.to_owned());
    let pod_name = pod.metadata.name.clone().unwrap_or_default();
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{pod_name}-{entry}-")),
            namespace: pod.metadata.namespace.clone(),
            labels: asked.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                name: pod_name,
                uid: pod.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: spec.map(|spec| spec.spec.clone()).unwrap_or_default(),
        status: None,
    }
}

/// Notes in the pod's status which claim was made for the entry.
pub(super) fn record(pod: &mut Pod, entry: &str, claim: &ResourceClaim) {
    let statuses = pod.status.get_or_insert_default().resource_claim_statuses.get_or_insert_default();
    statuses.retain(|status| status.name != entry);
    statuses.push(PodResourceClaimStatus {
        name: entry.to_owned(),
        resource_claim_name: claim.metadata.name.clone(),
    });
}

/// Whether the claim was made for the entry `entry` of the pod, which may not say so yet.
pub(super) fn is_for(claim: &ResourceClaim, pod: &Pod, entry: &str) -> bool {
    let noted = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(POD_CLAIM_NAME));
    owner(claim) == pod.metadata.uid.as_deref() && noted.is_some_and(|noted| noted == entry)
}

/// UID of the pod that owns a claim made from a template.
pub(super) fn owner(claim: &ResourceClaim) -> Option<&str> {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners
        .filter(|owner| owner.kind == "Pod" && owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
        .next()
}
