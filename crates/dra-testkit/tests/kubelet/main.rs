//! The kubelet stand-in against a small driver of its own, over real sockets.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod driver;

use std::time::Duration;

use dra_testkit::TempNode;
use dra_testkit::api::ApiServer;
use dra_testkit::kubelet::{ClaimRef, DraService, Kubelet, KubeletError};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::json;

use driver::{Behaviour, DRIVER, Driver};

const SOON: Duration = Duration::from_secs(10);

fn claims(uids: &[&str]) -> Vec<ClaimRef> {
    uids.iter().map(|uid| ClaimRef::new("default", format!("claim-{uid}"), *uid)).collect()
}

/// A node, its kubelet, and a registered driver.
async fn registered(behaviour: Behaviour) -> (TempNode, Kubelet, Driver) {
    let node = TempNode::new().expect("a node");
    let driver = Driver::start(&node, "a", behaviour);
    let kubelet = Kubelet::builder(node.kubelet()).call_timeout(Duration::from_secs(2)).start();
    kubelet.wait_registered(DRIVER, SOON).await.expect("registered");
    (node, kubelet, driver)
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn a_driver_is_registered_with_the_authority_that_the_kubelet_sends() {
    let (_node, kubelet, driver) = registered(Behaviour::default()).await;
    assert_eq!(driver.seen(|seen| seen.notified.clone()), [(true, String::new())]);
    let authority = driver.seen(|seen| seen.authorities[0].clone());
    assert_eq!(authority, driver.socket.display().to_string().replace('/', "%2F"));
    let plugin = &kubelet.registered()[0];
    assert_eq!((plugin.service, plugin.connected), (DraService::V1, true));
}

#[tokio::test]
async fn a_socket_without_an_at_sign_is_refused_as_the_real_kubelet_is() {
    let node = TempNode::new().expect("a node");
    let _driver = Driver::start_as(&node, "gpu.example.com-reg.sock", "a", Behaviour::default());
    let kubelet = Kubelet::new(node.kubelet());
    eventually("a refusal", || !kubelet.refused().is_empty()).await;
    let error = kubelet.wait_registered(DRIVER, Duration::from_millis(1)).await.expect_err("not registered");
    assert!(error.to_string().contains("PROTOCOL_ERROR"), "{error}");
}

#[tokio::test]
async fn what_the_kubelet_does_not_take_is_refused_and_told() {
    for (behaviour, reason) in [
        (
            Behaviour { versions: Some(vec!["1.0.0"]), ..Behaviour::default() },
            "knows none of the plugin's services",
        ),
        (Behaviour { versions: Some(vec![]), ..Behaviour::default() }, "lists no gRPC service"),
        (Behaviour { plugin_type: Some("CSIPlugin"), ..Behaviour::default() }, "CSIPlugin"),
    ] {
        let node = TempNode::new().expect("a node");
        let driver = Driver::start(&node, "a", behaviour);
        let kubelet = Kubelet::new(node.kubelet());
        eventually("a refusal", || driver.seen(|seen| !seen.notified.is_empty())).await;
        let (registered, error) = driver.seen(|seen| seen.notified[0].clone());
        assert!(!registered && error.contains(reason), "{error}");
        assert_eq!(kubelet.registered(), []);
    }
}

#[tokio::test]
async fn an_older_kubelet_uses_the_older_service() {
    let node = TempNode::new().expect("a node");
    let _driver = Driver::start(&node, "a", Behaviour::default());
    let kubelet = Kubelet::builder(node.kubelet()).services([DraService::V1Beta1]).start();
    assert_eq!(kubelet.wait_registered(DRIVER, SOON).await.expect("registered").service, DraService::V1Beta1);
    let devices = kubelet.prepare(DRIVER, &claims(&["1"])).await.expect("prepared");
    assert_eq!((devices["1"][0].device_name.as_str(), &devices["1"][0].share_id), ("beta-0", &None));
}

#[tokio::test]
async fn prepare_and_unprepare_go_over_one_connection() {
    let (_node, kubelet, driver) = registered(Behaviour::default()).await;
    let devices = kubelet.prepare(DRIVER, &claims(&["1", "2"])).await.expect("prepared");
    assert_eq!(devices["2"][0].cdi_device_ids, [format!("k8s.{DRIVER}/claim=2-gpu-0")]);
    assert_eq!(devices["2"][0].share_id.as_deref(), Some("share"));
    kubelet.unprepare(DRIVER, &claims(&["1", "2"])).await.expect("unprepared");
    assert_eq!(driver.seen(|seen| (seen.prepared.len(), seen.unprepared.len(), seen.connections)), (2, 2, 1));
}

#[tokio::test]
async fn bad_answers_are_the_kubelets_errors() {
    for (behaviour, text) in [
        (Behaviour { leaves_out: Some("2"), ..Behaviour::default() }, "skipped 1 ResourceClaims"),
        (Behaviour { refuses: Some("2"), ..Behaviour::default() }, "no power"),
        (Behaviour { fails: true, ..Behaviour::default() }, "out of order"),
        (Behaviour { hangs: true, ..Behaviour::default() }, "no answer within 2 s"),
    ] {
        let (_node, kubelet, _driver) = registered(behaviour).await;
        let error = kubelet.prepare(DRIVER, &claims(&["1", "2"])).await.expect_err("refused").to_string();
        assert!(error.contains(text), "{error}");
    }
    let (_node, kubelet, _driver) =
        registered(Behaviour { refuses: Some("2"), ..Behaviour::default() }).await;
    let answer = kubelet.prepare_unchecked(DRIVER, &claims(&["1", "2"])).await.expect("answered");
    assert!(answer["1"].is_ok() && answer["2"].is_err());
}

#[tokio::test]
async fn the_newest_connected_instance_is_used_and_the_older_one_comes_back() {
    let (node, kubelet, old) = registered(Behaviour::default()).await;
    let new = Driver::start(&node, "b", Behaviour::default());
    eventually("both registered", || {
        kubelet.registered().iter().filter(|plugin| plugin.connected).count() == 2
    })
    .await;
    kubelet.prepare(DRIVER, &claims(&["1"])).await.expect("prepared");
    assert_eq!((old.seen(|seen| seen.prepared.len()), new.seen(|seen| seen.prepared.len())), (0, 1));
    new.end().await;
    eventually("one left", || kubelet.registered().len() == 1).await;
    kubelet.prepare(DRIVER, &claims(&["2"])).await.expect("prepared");
    assert_eq!(old.seen(|seen| seen.prepared.clone()), ["2"]);
}

#[tokio::test]
async fn a_second_plugin_at_the_same_endpoint_is_refused() {
    let (node, kubelet, _first) = registered(Behaviour::default()).await;
    let second = Driver::register_only(&node, "b", node.plugins().join("a.sock"));
    eventually("a refusal", || second.seen(|seen| !seen.notified.is_empty())).await;
    let (registered, error) = second.seen(|seen| seen.notified[0].clone());
    assert!(!registered && error.contains("already registered"), "{error}");
    assert_eq!(kubelet.registered().len(), 1);
}

#[tokio::test]
async fn a_socket_that_is_made_anew_is_registered_anew() {
    let (node, kubelet, driver) = registered(Behaviour::default()).await;
    driver.end().await;
    eventually("unregistered", || kubelet.registered().is_empty()).await;
    let error = kubelet.prepare(DRIVER, &claims(&["1"])).await.expect_err("nobody there");
    assert!(matches!(error, KubeletError::NotRegistered { .. }), "{error}");
    std::fs::remove_file(node.plugins().join("a.sock")).expect("removed");
    let again = Driver::start(&node, "a", Behaviour::default());
    kubelet.wait_registered(DRIVER, SOON).await.expect("registered");
    kubelet.prepare(DRIVER, &claims(&["1"])).await.expect("prepared");
    assert_eq!(again.seen(|seen| seen.prepared.len()), 1);
}

#[tokio::test]
async fn a_lost_connection_is_opened_again() {
    let (node, kubelet, mut driver) = registered(Behaviour::default()).await;
    driver.kill().await;
    let endpoint = node.plugins().join("a.sock");
    eventually("disconnected", || kubelet.registered().iter().all(|plugin| !plugin.connected)).await;
    let error = kubelet.prepare(DRIVER, &claims(&["1"])).await.expect_err("nobody there");
    assert!(matches!(error, KubeletError::Unavailable { .. }), "{error}");
    std::fs::remove_file(&endpoint).expect("removed");
    driver.serve_again(&endpoint);
    kubelet.wait_registered(DRIVER, SOON).await.expect("connected again");
    kubelet.prepare(DRIVER, &claims(&["1"])).await.expect("prepared");
    assert_eq!(driver.seen(|seen| seen.connections), 2);
}

#[tokio::test]
async fn a_restarted_kubelet_registers_the_driver_again() {
    let (_node, kubelet, driver) = registered(Behaviour::default()).await;
    kubelet.stop().await;
    assert_eq!(kubelet.registered(), []);
    kubelet.restart().await;
    kubelet.wait_registered(DRIVER, SOON).await.expect("registered");
    assert_eq!(driver.seen(|seen| (seen.notified.len(), seen.connections)), (2, 2));
}

#[tokio::test]
async fn slices_are_wiped_at_start_and_after_the_driver_has_been_away() {
    let slice = |name: &str, node: &str| -> ResourceSlice {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": DRIVER, "nodeName": node, "pool": pool});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a slice")
    };
    let names = |api: &ApiServer| -> Vec<Option<String>> {
        api.list::<ResourceSlice>().into_iter().map(|slice| slice.metadata.name).collect()
    };
    let api = ApiServer::new();
    api.put(&slice("mine", "node-1")).expect("stored");
    api.put(&slice("other", "node-2")).expect("stored");
    let node = TempNode::new().expect("a node");
    let driver = Driver::start(&node, "a", Behaviour::default());
    let kubelet = Kubelet::builder(node.kubelet())
        .wipe_slices(&api, "node-1")
        .wipe_after(Duration::from_millis(50))
        .start();
    kubelet.wait_registered(DRIVER, SOON).await.expect("registered");
    assert_eq!(names(&api), [Some("other".to_owned())], "wiped at start");
    api.put(&slice("mine", "node-1")).expect("stored");
    driver.end().await;
    eventually("wiped after the driver left", || names(&api).len() == 1).await;
}

/// A pod with one claim, reserved or not, in the API server.
fn pod_with_claim(api: &ApiServer, reserved: bool) -> Pod {
    let text = "
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
  containers: [{name: main, image: i, resources: {claims: [{name: gpu, request: gpu}, {name: gpu, request: other}]}},
               {name: side, image: i}],
  resourceClaims: [{name: gpu, resourceClaimName: c}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {}}
";
    api.apply_yaml(text).expect("applied");
    let pod: Pod = api.get(("default", "p")).expect("there");
    let mut claim: ResourceClaim = api.get(("default", "c")).expect("there");
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"});
    let mut status = json!({"allocation": {"devices": {"results": [result]}}});
    if reserved {
        status["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": pod.metadata.uid}]);
    }
    claim.status = serde_json::from_value(status).expect("a status");
    api.put(&claim).expect("stored");
    pod
}

#[tokio::test]
async fn a_pods_containers_get_the_ids_of_the_requests_they_use() {
    let (_node, kubelet, driver) = registered(Behaviour::default()).await;
    let api = ApiServer::new();
    let pod = pod_with_claim(&api, true);
    let prepared = kubelet.prepare_pod(&api, &pod).await.expect("prepared");
    let uid = &prepared.claims["gpu"].claim.uid;
    assert_eq!(prepared.cdi_device_ids(&pod, "main"), [format!("k8s.{DRIVER}/claim={uid}-gpu-0")]);
    assert_eq!(prepared.cdi_device_ids(&pod, "side"), [""; 0]);
    kubelet.unprepare_pod(&prepared).await.expect("unprepared");
    assert_eq!(driver.seen(|seen| seen.unprepared.clone()), [uid.as_str()]);
}

#[tokio::test]
async fn a_claim_that_is_not_reserved_for_the_pod_is_not_prepared() {
    let (_node, kubelet, driver) = registered(Behaviour::default()).await;
    let api = ApiServer::new();
    let pod = pod_with_claim(&api, false);
    let error = kubelet.prepare_pod(&api, &pod).await.expect_err("not reserved").to_string();
    assert!(error.contains("not allowed to use ResourceClaim default/c"), "{error}");
    assert!(api.remove::<ResourceClaim>(("default", "c")));
    let error = kubelet.prepare_pod(&api, &pod).await.expect_err("no claim").to_string();
    assert!(error.contains("default/c does not exist"), "{error}");
    assert_eq!(driver.seen(|seen| seen.prepared.len()), 0);
}
