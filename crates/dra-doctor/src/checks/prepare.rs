//! Pods that have their devices and cannot start: the kubelet or a driver cannot prepare them.

use k8s_openapi::api::core::v1::Pod;

use super::subject::name_of;
use crate::finding::{Finding, Verdict};
use crate::snapshot::{Event, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.pods.verdict(|pods| {
        snapshot.pod_events.check(|events| pods.iter().filter_map(|pod| failing(pod, events)).collect())
    })
}

fn failing(pod: &Pod, events: &[Event]) -> Option<Finding> {
    let node = pod.spec.as_ref()?.node_name.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase != Some("Pending") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = name_of(&pod.metadata);
    let last = events.iter().filter(|event| event.about == name).max_by_key(|event| event.when)?;
    Some(Finding::new(
        format!("Pod {name}"),
        format!("its devices cannot be prepared on node {node}: {}", last.note),
        format!(
            "see that the driver runs on {node}: `dra-doctor node` there, and the driver's log, say more. The kubelet tries \
             again after a minute or so"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{cluster, only, pod};
    use crate::snapshot::{Looked, ObjectName};

    fn verdict(pod: Value) -> Verdict {
        let mut snapshot = cluster(&[pod]);
        let event = |name: &str, note: &str, when| Event {
            about: ObjectName::new("ns", name),
            reason: "FailedPrepareDynamicResources".into(),
            note: note.into(),
            when,
        };
        snapshot.pod_events =
            Looked::At(vec![event("p", "earlier", 1), event("p", "later", 2), event("other", "last", 3)]);
        check(&snapshot)
    }

    #[test]
    fn the_last_word_about_a_pod_that_cannot_start_is_repeated() {
        let waiting = pod("p", "c", 0);
        assert_eq!(verdict(waiting.clone()), Verdict::HEALTHY, "it has no node yet");
        let mut bound = waiting;
        bound["spec"]["nodeName"] = json!("node-1");
        let told = verdict(bound.clone());
        assert!(only(&told).problem.ends_with("on node node-1: later"), "{told:?}");
        bound["status"]["phase"] = json!("Running");
        assert_eq!(verdict(bound), Verdict::HEALTHY, "it has started since");
    }
}
