//! What the kubelet makes of a driver, and what the driver learns of it.

use std::fs;
use std::os::unix::{fs::FileTypeExt as _, net::UnixListener};
use std::path::Path;

use dra_kubeletplugin::{Device, DriverResources, Registration};
use dra_testkit::kubelet::{DraService, Kubelet};

use crate::support::{DRIVER, NODE, Rig, SOON, TestDriver, device, eventually, soon};

/// Names of the sockets in a folder.
fn sockets_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sockets = entries.filter(|entry| entry.file_type().unwrap().is_socket());
    let mut names: Vec<String> = sockets.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A socket that nobody listens on any more, as a killed process leaves it.
fn dead_socket(folder: &Path, name: &str) {
    drop(UnixListener::bind(folder.join(name)).unwrap());
}

#[tokio::test]
async fn a_driver_is_registered_for_both_services_and_learns_it() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    assert!(matches!(*handle.registration().borrow(), Registration::Registered { epoch: 1, .. }));
    let [plugin] = &rig.kubelet.registered()[..] else { panic!("not one plugin") };
    assert_eq!((plugin.driver.as_str(), plugin.service), (DRIVER, DraService::V1));
    assert_eq!(plugin.advertised, ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    assert!(plugin.endpoint.starts_with(rig.node.plugins().join(DRIVER)));
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reason_until_a_kubelet_takes_the_driver() {
    let rig = Rig::with_kubelet(|kubelet, _| kubelet.services([]));
    let handle = rig.options().start(TestDriver::new()).await.unwrap();
    let mut registration = handle.registration();
    let refused = registration.wait_for(|state| matches!(state, Registration::Refused { .. }));
    let refused = soon("refused", refused).await.unwrap().clone();
    let Registration::Refused { reason } = refused else { panic!("{refused:?}") };
    assert!(reason.contains("RegisterPlugin error") && reason.contains("v1.DRAPlugin"), "{reason}");

    rig.kubelet.stop().await;
    let _newer = Kubelet::new(rig.node.kubelet());
    soon("registered", registration.wait_for(Registration::is_registered)).await.unwrap();
}

#[tokio::test]
async fn a_kubelet_that_knows_only_v1beta1_prepares_and_unprepares() {
    let rig = Rig::with_kubelet(|kubelet, _| kubelet.services([DraService::V1Beta1]));
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    assert_eq!(rig.kubelet.registered()[0].service, DraService::V1Beta1);
    let claim = rig.claim("one", &[device("gpu-0")]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_eq!(devices[0].cdi_device_ids, [format!("k8s.{DRIVER}/claim={}-gpu-0", claim.uid)]);
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)"]);
}

#[tokio::test]
async fn a_kubelet_whose_notification_was_lost_is_known_by_its_calls() {
    let rig = Rig::with_kubelet(|kubelet, _| kubelet.lose_notifications());
    let handle = rig.options().start(TestDriver::new()).await.unwrap();
    let resources = DriverResources::single_pool(NODE.parse().unwrap(), [Device::named("gpu-0").unwrap()]);
    let mut published = handle.publish(resources);
    eventually("the kubelet's connection", || rig.kubelet.registered().iter().any(|plugin| plugin.connected))
        .await;
    assert_eq!(*handle.registration().borrow(), Registration::Waiting { asked: true });
    rig.prepare_one(&rig.claim("one", &[device("gpu-0")])).await.unwrap();
    let mut registration = handle.registration();
    soon("registered", registration.wait_for(Registration::is_registered)).await.unwrap();
    soon("published", published.published()).await.unwrap();
}

#[tokio::test]
async fn a_restarted_kubelet_registers_anew_and_gets_the_slices_back_that_it_wiped() {
    let rig = Rig::with_kubelet(|kubelet, api| kubelet.wipe_slices(api, NODE));
    let handle = rig.start(&TestDriver::new()).await;
    let resources = DriverResources::single_pool(NODE.parse().unwrap(), [Device::named("gpu-0").unwrap()]);
    soon("published", handle.publish(resources).published()).await.unwrap();
    let uid = rig.slices()[0].metadata.uid.clone();

    rig.kubelet.restart().await;
    let mut registration = handle.registration();
    let again = |state: &Registration| matches!(state, Registration::Registered { epoch: 2, .. });
    soon("registered anew", registration.wait_for(again)).await.unwrap();
    let back = rig.api.wait_until("another slice", SOON, |_| {
        rig.slices().into_iter().find(|slice| slice.metadata.uid != uid)
    });
    let back = back.await.unwrap();
    assert_eq!(back.spec.devices.unwrap()[0].name, "gpu-0");
}

#[tokio::test]
async fn a_driver_that_was_shut_down_leaves_no_socket() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let data = rig.node.plugins().join(DRIVER);
    assert_eq!((sockets_in(&rig.node.plugins_registry()).len(), sockets_in(&data).len()), (1, 1));
    soon("shut down", handle.shutdown()).await.unwrap();
    assert_eq!(sockets_in(&rig.node.plugins_registry()), [""; 0]);
    assert_eq!(sockets_in(&data), [""; 0]);
    eventually("the kubelet forgets it", || rig.kubelet.registered().is_empty()).await;
}

#[tokio::test]
async fn a_dropped_handle_stops_the_driver() {
    let rig = Rig::new();
    drop(rig.start(&TestDriver::new()).await);
    let registry = rig.node.plugins_registry();
    eventually("no socket", || sockets_in(&registry).is_empty()).await;
}

#[tokio::test]
async fn dead_sockets_of_killed_instances_are_swept_and_nobody_elses() {
    let rig = Rig::new();
    let (registry, data) = (rig.node.plugins_registry(), rig.node.plugins().join(DRIVER));
    fs::create_dir_all(&data).unwrap();
    let uid = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";
    for dead in [
        format!("dra-0000aa@{DRIVER}-reg.sock"),
        format!(".dra-0000ab@{DRIVER}-reg.sock"),
        format!("0123456789-0000ac@{DRIVER}-reg.sock"),
        format!("{DRIVER}-reg.sock"),
        format!("{DRIVER}-{uid}-reg.sock"),
    ] {
        dead_socket(&registry, &dead);
    }
    dead_socket(&data, "dra-rs-dra-0000aa.sock");
    dead_socket(&data, "other.sock");
    dead_socket(&registry, "dra-0000aa@other.example.com-reg.sock");
    let alive = format!("0123456789-0000ad@{DRIVER}-reg.sock");
    let _alive = UnixListener::bind(registry.join(&alive)).unwrap();

    let _handle = rig.start(&TestDriver::new()).await;
    eventually("dead sockets are gone", || sockets_in(&registry).len() == 3 && sockets_in(&data).len() == 2)
        .await;
    let left = sockets_in(&registry);
    assert!(
        left.contains(&alive) && left.contains(&"dra-0000aa@other.example.com-reg.sock".into()),
        "{left:?}"
    );
    assert!(sockets_in(&data).contains(&"other.sock".into()));
}
