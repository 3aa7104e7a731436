//! What the checks ask of pods and claims.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::snapshot::{ObjectName, Snapshot};

/// Namespace and name of an object.
pub(super) fn name_of(metadata: &ObjectMeta) -> ObjectName {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    ObjectName::new(text(&metadata.namespace), text(&metadata.name))
}

/// The claims that a pod names, or that were made for it or its PodGroup: entry of the pod and name of the claim. The one
/// of its extended resources is there once it is allocated.
pub(crate) fn claims_of(pod: &Pod) -> Vec<(String, ObjectName)> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let made: Vec<_> = made.collect();
    let entries = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let named = entries.filter_map(|entry| {
        let made = made.iter().find(|status| status.name == entry.name);
        let made = made.and_then(|status| status.resource_claim_name.clone());
        let name = entry.resource_claim_name.clone().or(made)?;
        Some((entry.name.clone(), ObjectName::new(namespace.clone(), name)))
    });
    let mut claims: Vec<(String, ObjectName)> = named.collect();
    let status = serde_json::to_value(&pod.status).unwrap_or_default();
    if let Some(name) = status["extendedResourceClaimStatus"]["resourceClaimName"].as_str() {
        claims.push(("extended resources".to_owned(), ObjectName::new(namespace, name)));
    }
    claims
}

/// The PodGroup that a pod is in. Versions of the API before 1.36 have none.
pub(super) fn group_of(pod: &Pod) -> Option<ObjectName> {
    let spec = serde_json::to_value(&pod.spec).ok()?;
    let name = spec["schedulingGroup"]["podGroupName"].as_str()?;
    Some(ObjectName::new(pod.metadata.namespace.clone().unwrap_or_default(), name))
}

/// Whether the scheduler has found no node for the pod yet.
pub(super) fn waits_for_a_node(pod: &Pod) -> bool {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !is_bound && pod.metadata.deletion_timestamp.is_none() && matches!(phase, None | Some("Pending"))
}

/// The claim of this name.
pub(super) fn find<'a>(claims: &'a [ResourceClaim], name: &ObjectName) -> Option<&'a ResourceClaim> {
    claims.iter().find(|claim| name_of(&claim.metadata) == *name)
}

/// The classes that the spec of a claim asks for, each with the request or `request/alternative`.
pub(super) fn classes_of(spec: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let requests = spec["devices"]["requests"].as_array().into_iter().flatten();
    requests
        .flat_map(|request| {
            let name = text(&request["name"]);
            let exactly = request["exactly"]
                .as_object()
                .map(|_| (name.clone(), text(&request["exactly"]["deviceClassName"])));
            let alternatives = request["firstAvailable"].as_array().into_iter().flatten();
            let alternatives = alternatives.map(|alternative| {
                (format!("{name}/{}", text(&alternative["name"])), text(&alternative["deviceClassName"]))
            });
            exactly.into_iter().chain(alternatives.collect::<Vec<_>>()).collect::<Vec<_>>()
        })
        .collect()
}

pub(super) fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// The pods that a claim is reserved for.
pub(crate) fn reserved_for(claim: &ResourceClaim) -> Vec<ObjectName> {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    consumers
        .filter(|consumer| consumer.resource == "pods")
        .map(|consumer| ObjectName::new(namespace.clone(), consumer.name.clone()))
        .collect()
}

/// All that a claim is reserved for, for people: pods by namespace and name, and PodGroups, whose pods share the claim.
pub(super) fn consumers(claim: &ResourceClaim) -> Vec<String> {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let consumers = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    consumers
        .map(|consumer| {
            let name = ObjectName::new(namespace.clone(), consumer.name.clone());
            match consumer.resource.as_str() {
                "pods" => name.to_string(),
                "podgroups" => podgroup(&name),
                other => format!("{other} {name}"),
            }
        })
        .collect()
}

/// A PodGroup, for people.
pub(super) fn podgroup(name: &ObjectName) -> String {
    format!("PodGroup {name}")
}

/// The claims that are of interest: those of the pods that are examined, and the one that was named.
pub(super) fn claims_of_interest<'a>(
    snapshot: &Snapshot,
    claims: &'a [ResourceClaim],
) -> Vec<&'a ResourceClaim> {
    let pods = snapshot.pods.seen().into_iter().flatten();
    let mut names: Vec<ObjectName> = pods.flat_map(claims_of).map(|(_, name)| name).collect();
    names.extend(snapshot.claim.clone());
    claims.iter().filter(|claim| names.contains(&name_of(&claim.metadata))).collect()
}

/// What was last said of a pod in an Event with this reason.
pub(super) fn last_word<'a>(snapshot: &'a Snapshot, pod: &ObjectName, reason: &str) -> Option<&'a str> {
    let events = snapshot.pod_events.seen()?.iter();
    let about = events.filter(|event| event.about == *pod && event.reason == reason);
    about.max_by_key(|event| event.when).map(|event| event.note.as_str())
}

/// Names for people, cut where there are many.
pub(super) fn listed<T: ToString>(names: &[T]) -> String {
    const MOST: usize = 8;
    let mut text: Vec<String> = names.iter().take(MOST).map(ToString::to_string).collect();
    if names.len() > MOST {
        text.push(format!("{} more", names.len() - MOST));
    }
    text.join(", ")
}
