//! The control-plane stand-in over the API server stand-in.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    reason = "helpers of tests fail like tests"
)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use dra_testkit::api::ApiServer;
use dra_testkit::scheduler::{AllocationError, Scheduler, SchedulerError};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;

const OBJECTS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: \"device.driver == 'gpu.example.com'\"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec:
  metadata: {labels: {from: template}}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
";

fn cluster() -> (ApiServer, Scheduler) {
    let api = ApiServer::new();
    api.apply_yaml(OBJECTS).expect("applied");
    for node in ["node-1", "node-2"] {
        api.node(node).expect("stored");
    }
    (api.clone(), Scheduler::new(&api))
}

fn publish(api: &ApiServer, node: &str, devices: usize) {
    let devices: Vec<_> = (0..devices).map(|index| json!({"name": format!("gpu-{index}")})).collect();
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices});
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec});
    api.apply_yaml(&slice.to_string()).expect("applied");
}

fn pod(api: &ApiServer, name: &str, source: &str) {
    let text = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}], \
         resourceClaims: [{{name: gpu, {source}}}]}}}}"
    );
    api.apply_yaml(&text).expect("applied");
}

fn device(claim: &ResourceClaim) -> Option<String> {
    let results = claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?.results.as_ref()?;
    results.first().map(|result| format!("{}/{}", result.pool, result.device))
}

#[test]
fn a_pod_gets_a_claim_from_its_template_a_device_and_a_node() {
    let (api, scheduler) = cluster();
    publish(&api, "node-2", 1);
    pod(&api, "p", "resourceClaimTemplateName: one-gpu");
    let placed = scheduler.schedule(("default", "p")).expect("scheduled");
    assert_eq!(placed.node, "node-2");
    let claim = &placed.claims[0];
    assert_eq!(device(claim).as_deref(), Some("node-2/gpu-0"));
    let metadata = &claim.metadata;
    assert!(metadata.name.as_ref().is_some_and(|name| name.starts_with("p-gpu-")), "{metadata:?}");
    assert_eq!(metadata.annotations.as_ref().expect("set")["resource.kubernetes.io/pod-claim-name"], "gpu");
    assert_eq!(metadata.labels.as_ref().expect("set")["from"], "template");
    assert_eq!(
        metadata.owner_references.as_ref().expect("set")[0].uid,
        placed.pod.metadata.uid.clone().expect("set")
    );
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref()).expect("reserved");
    assert_eq!(reserved[0].name, "p");
    let pod: Pod = api.get(("default", "p")).expect("there");
    assert_eq!(pod.spec.and_then(|spec| spec.node_name).as_deref(), Some("node-2"));
    let again = scheduler.schedule(("default", "p")).expect("the same");
    assert_eq!(again.claims, placed.claims);
}

#[test]
fn two_pods_get_different_devices_and_a_third_none() {
    let (api, scheduler) = cluster();
    publish(&api, "node-1", 2);
    let mut devices = Vec::new();
    for name in ["p1", "p2"] {
        pod(&api, name, "resourceClaimTemplateName: one-gpu");
        devices.push(
            device(&scheduler.schedule(("default", name)).expect("scheduled").claims[0]).expect("allocated"),
        );
    }
    assert_eq!(devices, ["node-1/gpu-0", "node-1/gpu-1"]);
    pod(&api, "p3", "resourceClaimTemplateName: one-gpu");
    let error = scheduler.schedule(("default", "p3")).expect_err("all taken");
    assert!(error.to_string().contains("0 of 1"), "{error}");
}

#[test]
fn a_claim_can_be_shared_by_two_pods_of_a_node() {
    let (api, scheduler) = cluster();
    publish(&api, "node-2", 1);
    for name in ["p1", "p2"] {
        pod(&api, name, "resourceClaimName: shared");
        assert_eq!(scheduler.schedule(("default", name)).expect("scheduled").node, "node-2");
    }
    let claim: ResourceClaim = api.get(("default", "shared")).expect("there");
    assert_eq!(claim.status.and_then(|status| status.reserved_for).map(|pods| pods.len()), Some(2));
}

#[test]
fn what_pods_leave_behind_is_freed() {
    let (api, scheduler) = cluster();
    publish(&api, "node-1", 2);
    pod(&api, "p1", "resourceClaimTemplateName: one-gpu");
    pod(&api, "p2", "resourceClaimName: shared");
    let made = scheduler.schedule(("default", "p1")).expect("scheduled").claims.remove(0);
    scheduler.schedule(("default", "p2")).expect("scheduled");
    assert_eq!(scheduler.collect().expect("collected"), 0);

    api.delete::<Pod>(("default", "p1")).expect("deleted");
    assert_eq!(scheduler.collect().expect("collected"), 1);
    let name = made.metadata.name.expect("named");
    assert!(api.get::<ResourceClaim>(("default", name.as_str())).is_none(), "made for the pod, gone with it");

    api.delete::<Pod>(("default", "p2")).expect("deleted");
    assert_eq!(scheduler.collect().expect("collected"), 1);
    let shared: ResourceClaim = api.get(("default", "shared")).expect("stays");
    assert_eq!((device(&shared), shared.metadata.finalizers), (None, None));
    assert_eq!(scheduler.collect().expect("collected"), 0);
}

#[test]
fn an_allocated_claim_stays_until_it_is_freed() {
    let (api, scheduler) = cluster();
    publish(&api, "node-1", 1);
    pod(&api, "p", "resourceClaimName: shared");
    scheduler.schedule(("default", "p")).expect("scheduled");
    api.delete::<ResourceClaim>(("default", "shared")).expect("marked");
    assert!(api.get::<ResourceClaim>(("default", "shared")).is_some());
    api.delete::<Pod>(("default", "p")).expect("deleted");
    scheduler.collect().expect("collected");
    assert!(api.get::<ResourceClaim>(("default", "shared")).is_none());
}

#[test]
fn a_driver_that_writes_the_claim_meanwhile_makes_no_call_fail() {
    let (api, scheduler) = cluster();
    publish(&api, "node-1", 1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in (0u64..).take_while(|_| !done.load(Relaxed)) {
                let mut claim: ResourceClaim = api.get(("default", "shared")).expect("stays");
                claim.metadata.labels = Some([("turn".to_owned(), turn.to_string())].into());
                // The scheduler may have been faster, and its write must not be lost.
                let _ = api.put(&claim);
                // A driver writes now and then: without a pause nobody else would get between.
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for turn in 0..30 {
            pod(&api, "p", "resourceClaimName: shared");
            let scheduled = scheduler.schedule(("default", "p"));
            api.delete::<Pod>(("default", "p")).expect("deleted");
            let collected = scheduler.collect();
            if scheduled.is_err() || collected.is_err() {
                done.store(true, Relaxed);
            }
            scheduled.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
            assert_eq!(collected.unwrap_or_else(|error| panic!("turn {turn}: {error}")), 1, "turn {turn}");
        }
        done.store(true, Relaxed);
    });
    let shared: ResourceClaim = api.get(("default", "shared")).expect("stays");
    assert_eq!((device(&shared), shared.metadata.finalizers), (None, None));
}

#[tokio::test]
async fn a_pod_waits_for_slices_but_not_for_the_impossible() {
    let (api, scheduler) = cluster();
    pod(&api, "p", "resourceClaimTemplateName: one-gpu");
    let later = api.clone();
    tokio::spawn(async move { publish(&later, "node-1", 1) });
    scheduler.schedule_within(("default", "p"), Duration::from_secs(10)).await.expect("scheduled");

    pod(&api, "missing", "resourceClaimTemplateName: none");
    let error = scheduler
        .schedule_within(("default", "missing"), Duration::from_millis(1))
        .await
        .expect_err("too late");
    assert!(error.to_string().contains("ResourceClaimTemplate \"default/none\""), "{error}");

    api.apply_yaml("{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: [{cel: {expression: '[1].all(i, x, true)'}}]}}")
        .expect("applied");
    pod(&api, "odd", "resourceClaimTemplateName: one-gpu");
    let error =
        scheduler.schedule_within(("default", "odd"), Duration::from_secs(60)).await.expect_err("at once");
    assert!(matches!(error, SchedulerError::Allocation(AllocationError::Unsupported { .. })), "{error}");
}
