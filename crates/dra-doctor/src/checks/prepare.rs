//! Pods that have their devices and cannot start: the kubelet or a driver cannot prepare them, or the container runtime not
//! hand them out.

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Pod};

use super::subject::{last_word, name_of};
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{NOT_PREPARED, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.pods.verdict(|pods| {
        snapshot.pod_events.check(|_| {
            let starting = pods.iter().filter_map(|pod| Some((pod, node_to_start_on(pod)?)));
            starting
                .filter_map(|(pod, node)| {
                    not_prepared(snapshot, pod, node).or_else(|| not_created(pod, node))
                })
                .collect()
        })
    })
}

/// The node of a pod that has one and has not started there.
fn node_to_start_on(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    (phase == Some("Pending") && pod.metadata.deletion_timestamp.is_none()).then_some(node)
}

fn not_prepared(snapshot: &Snapshot, pod: &Pod, node: &str) -> Option<Finding> {
    let name = name_of(&pod.metadata);
    // It tells of a failure that a later try may have put right.
    let said = last_word(snapshot, &name, NOT_PREPARED).filter(|_| container_statuses(pod).all(is_new))?;
    Some(Finding::new(
        FindingKind::NotPrepared,
        format!("Pod {name}"),
        format!("its devices cannot be prepared on node {node}: {said}"),
        format!(
            "see that the driver runs on {node}: `dra-doctor node` there, and the driver's log, say more. The kubelet tries \
             again after a minute or so"
        ),
    ))
}

/// Runtimes say so of devices that they do not find, and when CDI is off.
fn not_created(pod: &Pod, node: &str) -> Option<Finding> {
    let waiting = container_statuses(pod).filter_map(|status| Some((status, waiting(status)?)));
    let mut told = waiting.filter_map(|(status, waiting)| Some((status, waiting.message.as_deref()?)));
    let (status, message) = told.find(|(_, message)| message.contains("CDI"))?;
    Some(Finding::new(
        FindingKind::ContainerNotCreated,
        format!("Pod {}, container {}", name_of(&pod.metadata), status.name),
        format!("the container runtime of node {node} cannot give it its devices: {message}"),
        format!(
            "run `dra-doctor node` on {node}: it says whether the runtime has CDI on and reads the driver's folder"
        ),
    ))
}

fn container_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

fn waiting(status: &ContainerStatus) -> Option<&ContainerStateWaiting> {
    status.state.as_ref()?.waiting.as_ref()
}

/// Whether nobody has tried to create it yet.
fn is_new(status: &ContainerStatus) -> bool {
    let has_run =
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    let reason = waiting(status).and_then(|waiting| waiting.reason.as_deref());
    !has_run && matches!(reason, None | Some("ContainerCreating" | "PodInitializing"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{cluster, only, pod};
    use crate::snapshot::{Event, Looked, ObjectName};

    fn verdict(pod: Value) -> Verdict {
        let mut snapshot = cluster(&[pod]);
        let event = |name: &str, note: &str, when| Event {
            about: ObjectName::new("ns", name),
            reason: NOT_PREPARED.into(),
            note: note.into(),
            when,
        };
        snapshot.pod_events =
            Looked::At(vec![event("p", "earlier", 1), event("p", "later", 2), event("other", "last", 3)]);
        check(&snapshot)
    }

    #[test]
    fn what_the_container_runtime_says_of_devices_is_repeated() {
        let message = "failed to inject CDI devices: unresolvable";
        let mut bound = pod("p", "c", 0);
        bound["spec"]["nodeName"] = json!("node-1");
        let status = |reason: &str, message: &str| {
            json!([{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}}}])
        };
        bound["status"]["containerStatuses"] = status("CreateContainerError", message);
        let told = verdict(bound.clone());
        assert_eq!(only(&told).kind, FindingKind::ContainerNotCreated);
        assert!(only(&told).problem.ends_with(message), "{told:?}");
        bound["status"]["containerStatuses"] = status("ImagePullBackOff", "no such image");
        assert_eq!(verdict(bound), Verdict::HEALTHY, "its devices are prepared by now");
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
