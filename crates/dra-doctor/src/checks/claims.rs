//! Claims that cannot be used, because somebody uses them already or they are on their way out.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::subject::{
    claims_of, claims_of_interest, consumers, find, group_of, is_allocated, listed, name_of, podgroup,
    waits_for_a_node,
};
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

/// Keeps an allocated claim from disappearing.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Most pods that a claim can be reserved for.
const MOST_CONSUMERS: usize = 256;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.claims.check(|claims| {
        let of_interest = claims_of_interest(snapshot, claims);
        let mut findings: Vec<Finding> =
            of_interest.into_iter().filter(|claim| is_leaving(claim)).map(leaving).collect();
        let pods = snapshot.pods.seen().into_iter().flatten();
        for pod in pods.filter(|pod| waits_for_a_node(pod)) {
            for (_, claim) in claims_of(pod) {
                let claim = find(claims, &claim).filter(|claim| is_allocated(claim) && !is_leaving(claim));
                findings.extend(claim.and_then(|claim| in_use(pod, claim)));
            }
        }
        findings
    })
}

fn is_leaving(claim: &ResourceClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

fn leaving(claim: &ResourceClaim) -> Finding {
    let consumers = consumers(claim);
    let is_protected = claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let subject = format!("ResourceClaim {}", name_of(&claim.metadata));
    if !consumers.is_empty() {
        return Finding::new(
            FindingKind::ClaimProtected,
            subject,
            format!(
                "it is being deleted, but is protected as long as it is reserved for {}",
                listed(&consumers)
            ),
            "delete these; no new pod can use the claim",
        );
    }
    if is_protected {
        return Finding::new(
            FindingKind::ClaimHeldBack,
            subject,
            format!("it is being deleted, but finalizer {FINALIZER} is still on it though no pod uses it"),
            "see that the controller manager runs; it takes the finalizer off",
        );
    }
    let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    Finding::new(
        FindingKind::ClaimHeldBack,
        subject,
        format!("it is being deleted, but is held back by finalizers: {}", listed(&finalizers)),
        "see that the program that has put each of them there runs; it takes its finalizer off",
    )
}

/// Why a claim that is allocated keeps a pod waiting.
fn in_use(pod: &Pod, claim: &ResourceClaim) -> Option<Finding> {
    let (own, group) = (name_of(&pod.metadata).to_string(), group_of(pod).map(|group| podgroup(&group)));
    let consumers = consumers(claim);
    let is_reserved = consumers.iter().any(|consumer| *consumer == own || Some(consumer) == group.as_ref());
    let others: Vec<String> = consumers.into_iter().filter(|other| *other != own).collect();
    if others.is_empty() {
        return None;
    }
    let subject = format!("ResourceClaim {}", name_of(&claim.metadata));
    if others.len() >= MOST_CONSUMERS && !is_reserved {
        return Some(Finding::new(
            FindingKind::ClaimFull,
            subject,
            format!(
                "it is reserved for {} others, which is the most that can be, so {own} cannot use it",
                others.len()
            ),
            "give the pod another claim",
        ));
    }
    let nodes = nodes_of(claim);
    Some(Finding::new(
        FindingKind::ClaimUsedElsewhere,
        subject,
        format!(
            "pod {own} waits, and the claim is in use by {} {}: the pod can run {} only",
            listed(&others),
            if nodes.is_empty() { "already".to_owned() } else { format!("on {}", listed(&nodes)) },
            if nodes.is_empty() { "where the devices can be reached".to_owned() } else { "there".to_owned() },
        ),
        "make room for the pod there, or give it a claim of its own with a ResourceClaimTemplate",
    ))
}

/// The nodes that the claim's devices can be used from, if they are told by name.
fn nodes_of(claim: &ResourceClaim) -> Vec<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    let terms = selector.into_iter().flat_map(|selector| &selector.node_selector_terms);
    let fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    fields
        .filter(|field| field.key == "metadata.name")
        .flat_map(|field| field.values.clone().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{claim, cluster, held, only, pod};

    #[test]
    fn a_claim_that_nobody_else_uses_is_healthy() {
        let mut running = pod("p", "c", 0);
        running["spec"]["nodeName"] = json!("node-1");
        assert_eq!(check(&cluster(&[claim("c", &held("gpu-0", "p")), running])), Verdict::HEALTHY);
        let waiting = pod("p", "c", 0);
        assert_eq!(check(&cluster(&[claim("c", &held("gpu-0", "p")), waiting])), Verdict::HEALTHY);
        let stranger = claim("other", &held("gpu-0", "q"));
        assert_eq!(check(&cluster(&[stranger])), Verdict::HEALTHY, "nobody asked about it");
    }

    #[test]
    fn who_uses_a_claim_is_told_to_who_waits_for_it() {
        let verdict = check(&cluster(&[claim("c", &held("gpu-0", "first")), pod("second", "c", 0)]));
        let finding = only(&verdict);
        assert!(finding.problem.contains("in use by ns/first on node-1"), "{finding:?}");
    }

    #[test]
    fn a_claim_that_a_pod_group_shares_is_in_use_by_the_group() {
        let group =
            json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}]);
        let mut shared = claim("c", &held("gpu-0", "first"));
        shared["status"]["reservedFor"] = group;
        let mut member = pod("second", "c", 0);
        member["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
        let verdict = check(&cluster(&[shared.clone(), member.clone()]));
        assert!(only(&verdict).problem.contains("in use by PodGroup ns/g on node-1"), "{verdict:?}");

        shared["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        shared["metadata"]["finalizers"] = json!([FINALIZER]);
        let verdict = check(&cluster(&[shared.clone(), member.clone()]));
        assert!(only(&verdict).problem.contains("reserved for PodGroup ns/g"), "{verdict:?}");

        shared["metadata"] = json!({"name": "c", "namespace": "ns"});
        let consumers = shared["status"]["reservedFor"].as_array_mut().expect("a list");
        for number in 0..MOST_CONSUMERS {
            consumers.push(json!({"resource": "pods", "name": format!("p{number}"), "uid": "u"}));
        }
        let verdict = check(&cluster(&[shared.clone(), member]));
        assert_eq!(
            only(&verdict).kind,
            FindingKind::ClaimUsedElsewhere,
            "its group has a place: {verdict:?}"
        );
        let verdict = check(&cluster(&[shared, pod("stranger", "c", 0)]));
        assert_eq!(only(&verdict).kind, FindingKind::ClaimFull, "{verdict:?}");
    }

    #[test]
    fn a_claim_that_is_being_deleted_says_who_holds_it() {
        let mut leaving = claim("c", &held("gpu-0", "first"));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        leaving["metadata"]["finalizers"] = json!([FINALIZER]);
        let verdict = check(&cluster(&[leaving.clone(), pod("second", "c", 0)]));
        assert!(
            only(&verdict).problem.contains("protected as long as it is reserved for ns/first"),
            "{verdict:?}"
        );
        leaving["status"]["reservedFor"] = json!([]);
        let verdict = check(&cluster(&[leaving.clone(), pod("second", "c", 0)]));
        assert!(only(&verdict).problem.contains("though no pod uses it"), "{verdict:?}");
        leaving["metadata"]["finalizers"] = json!(["example.com/keep"]);
        let verdict = check(&cluster(&[leaving, pod("second", "c", 0)]));
        assert!(only(&verdict).problem.ends_with("by finalizers: example.com/keep"), "{verdict:?}");
    }
}
