//! `binding-controller`, on a stand-in for the API server.

use std::time::Duration;

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_testkit::TempNode;
use dra_testkit::api::ApiServer;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::program::{Running, program};

const PATIENCE: Duration = Duration::from_secs(60);
const SHARES: [&str; 2] = ["4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a", "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0b"];

/// A claim that has been allocated two shares of a GPU.
fn claim(name: &str, driver: &str) -> ResourceClaim {
    let result = |share: &str| {
        json!({"request": "gpu", "driver": driver, "pool": "node-1", "device": "gpu-0", "shareID": share,
               "bindingConditions": ["BindingConditions"], "bindingFailureConditions": ["BindingFailureConditions"]})
    };
    let request = json!({"deviceClassName": driver, "allocationMode": "ExactCount", "count": 2});
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        "status": {"allocation": {"devices": {"results": SHARES.map(result)}}},
    }))
    .unwrap()
}

/// The shares of which it is said that they are ready.
fn ready(api: &ApiServer, name: &str) -> Vec<String> {
    let claim: ResourceClaim = api.get(("default", name)).unwrap();
    let entries = claim.status.and_then(|status| status.devices).unwrap_or_default();
    let is_ready = |entry: &Value| {
        let condition = &entry["conditions"][0];
        condition["type"] == "BindingConditions" && condition["status"] == "True"
    };
    let entries = entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).filter(is_ready);
    let mut shares: Vec<_> = entries.map(|entry| entry["shareID"].as_str().unwrap().to_owned()).collect();
    shares.sort();
    shares
}

#[tokio::test]
async fn each_share_of_a_claim_is_said_to_be_ready_whenever_it_was_allocated() {
    let (folders, api) = (TempNode::new().unwrap(), ApiServer::new());
    let served = api.serve().await.unwrap();
    let kubeconfig = folders.root().join("kubeconfig");
    served.write_kubeconfig(&kubeconfig).unwrap();
    api.put(&claim("before", "gpu.example.com")).unwrap();
    api.put(&claim("others", "other.example.com")).unwrap();
    let mut command = program(["binding-controller"]);
    command.arg("--kubeconfig").arg(kubeconfig);
    let controller = Running::start(command);
    for name in ["before", "after"] {
        if name == "after" {
            api.put(&claim(name, "gpu.example.com")).unwrap();
        }
        let all = |api: &ApiServer| (ready(api, name) == SHARES).then_some(());
        api.wait_until(name, PATIENCE, all).await.unwrap();
    }
    assert_eq!(ready(&api, "others"), [""; 0]);
    controller.signal(Signal::SIGTERM);
    let ended = async {
        loop {
            match controller.ended() {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let status = tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(status.success(), "{status}");
}
