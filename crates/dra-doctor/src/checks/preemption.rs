//! Pods that wait for devices of less important pods: the scheduler does not preempt for devices.

use dra_allocator::Obstacle;
use k8s_openapi::api::core::v1::Pod;

use super::pending::waiting;
use super::subject::{find, listed, name_of, reserved_for};
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{ObjectName, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.holders.verdict(|holders| {
        waiting(snapshot, |cluster| {
            let may_matter = |pod: &Pod| holders.iter().any(|holder| priority(holder) < priority(pod));
            let found =
                cluster.waiting.iter().filter(|(pod, _)| may_matter(pod)).filter_map(|(pod, claims)| {
                    let explanations = cluster.explain(pod, claims).ok()??;
                    let requests = explanations.iter().flat_map(|explanation| &explanation.requests);
                    let devices = requests.flat_map(|request| &request.devices);
                    let held_only = devices.filter_map(|device| match device.obstacles.as_slice() {
                        [
                            Obstacle::Held { by }
                            | Obstacle::Counters { by, .. }
                            | Obstacle::Capacity { by, .. },
                        ] => Some(by),
                        _ => None,
                    });
                    let mut less: Vec<ObjectName> = held_only
                        .flatten()
                        .filter_map(|claim| find(snapshot.claims.seen()?, &claim.parse().ok()?))
                        .flat_map(reserved_for)
                        .filter(|holder| {
                            holders.iter().any(|pod_of| {
                                name_of(&pod_of.metadata) == *holder && priority(pod_of) < priority(pod)
                            })
                        })
                        .collect();
                    less.sort();
                    less.dedup();
                    (!less.is_empty()).then(|| finding(pod, &less))
                });
            found.collect()
        })
    })
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
}

fn finding(pod: &Pod, less: &[ObjectName]) -> Finding {
    Finding::new(
        FindingKind::NotPreempted,
        format!("Pod {}", name_of(&pod.metadata)),
        format!(
            "it has priority {}, and pods of lower priority hold devices that it could have: {}. The scheduler does not \
             preempt pods for devices",
            priority(pod),
            listed(less)
        ),
        "delete one of these pods by hand, or keep devices free for important pods",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{claim, class, cluster, held, node, only, pod, slice};

    fn objects(waiting: i32, holding: i32) -> Vec<Value> {
        let mut holder = pod("holder", "d", holding);
        holder["kind"] = json!("Holder");
        let gpus = slice("s", 1, 1, &json!([{"name": "gpu-0"}]));
        let held = claim("d", &held("gpu-0", "holder"));
        vec![node(), class(), gpus, held, claim("c", &json!({})), holder, pod("p", "c", waiting)]
    }

    #[test]
    fn who_holds_what_a_more_important_pod_needs_is_told() {
        let verdict = check(&cluster(&objects(1000, 0)));
        let finding = only(&verdict);
        assert_eq!(finding.subject, "Pod ns/p");
        assert!(finding.problem.contains("hold devices that it could have: ns/holder"), "{finding:?}");
    }

    #[test]
    fn equals_and_less_important_pods_just_wait() {
        assert_eq!(check(&cluster(&objects(0, 0))), Verdict::HEALTHY);
        assert_eq!(check(&cluster(&objects(0, 1000))), Verdict::HEALTHY);
    }
}
