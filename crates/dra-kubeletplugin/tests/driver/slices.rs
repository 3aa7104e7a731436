//! ResourceSlices of a whole driver: when they appear, and that they stay.

use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceSlice;
use dra_kubeletplugin::resourceslice::PoolState;
use dra_kubeletplugin::{Device, DriverResources, SliceStatus};
use dra_testkit::api::{ApiStatus, Matcher, Verb};
use dra_testkit::kubelet::Kubelet;

use crate::support::{DRIVER, NODE, Rig, SOON, TestDriver, device, eventually, soon};

fn gpus(count: u8) -> DriverResources {
    let devices = (0..count).map(|i| Device::named(&format!("gpu-{i}")).unwrap());
    DriverResources::single_pool(NODE.parse().unwrap(), devices)
}

fn device_names(slice: &ResourceSlice) -> Vec<&str> {
    slice.spec.devices.iter().flatten().map(|device| device.name.as_str()).collect()
}

/// Writes to slices since the log was emptied.
fn slice_writes(rig: &Rig) -> usize {
    let writes = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection];
    rig.api.count(&Matcher::any().verbs(writes).resource("resourceslices"))
}

#[tokio::test]
async fn slices_appear_only_once_the_kubelet_has_registered_the_driver() {
    let rig = Rig::new();
    rig.kubelet.stop().await;
    let handle = rig.options().start(TestDriver::new()).await.unwrap();
    let mut ticket = handle.publish(gpus(2));
    let mut status = handle.slices();
    // The driver knows what there is, what it wants, and that it must wait.
    let knows = |status: &SliceStatus| status.listed && status.wish == 1 && !status.pools.is_empty();
    let seen = soon("listed", status.wait_for(knows)).await.unwrap().clone();
    assert!(!seen.gate_open);
    assert!(seen.pools.values().all(|pool| pool.state == PoolState::Pending && !pool.published));
    assert_eq!((rig.slices().len(), slice_writes(&rig)), (0, 0));

    let _kubelet = Kubelet::new(rig.node.kubelet());
    let published = soon("published", ticket.published()).await.unwrap();
    assert_eq!(published.generation, 1);
    let [slice] = &rig.slices()[..] else { panic!("not one slice") };
    assert_eq!(device_names(slice), ["gpu-0", "gpu-1"]);
    let spec = &slice.spec;
    assert_eq!(
        (spec.driver.as_str(), spec.node_name.as_deref(), spec.pool.name.as_str()),
        (DRIVER, Some(NODE), NODE)
    );
}

#[tokio::test]
async fn a_deleted_slice_comes_back() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    soon("published", handle.publish(gpus(2)).published()).await.unwrap();
    let name = rig.slices()[0].metadata.name.clone().unwrap();
    assert!(rig.api.remove::<ResourceSlice>(name.as_str()));
    let back = rig.api.wait_until("the slice", SOON, |_| rig.slices().into_iter().next()).await.unwrap();
    assert_eq!(device_names(&back), ["gpu-0", "gpu-1"]);
}

#[tokio::test]
async fn nothing_is_written_while_nothing_changes() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    soon("published", handle.publish(gpus(2)).published()).await.unwrap();
    rig.api.clear_calls();
    // The same wish again, and the life of a claim.
    soon("published", handle.publish(gpus(2)).published()).await.unwrap();
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    soon("published", handle.publish(gpus(2)).published()).await.unwrap();
    let writes: Vec<_> = rig
        .api
        .calls()
        .into_iter()
        .filter(|call| !matches!(call.verb, Verb::Get | Verb::List | Verb::Watch))
        .collect();
    assert_eq!(writes, []);
}

#[tokio::test]
async fn slices_outlive_a_shut_down_driver_and_its_successor_writes_nothing() {
    let rig = Rig::new();
    let first = rig.start(&TestDriver::new()).await;
    soon("published", first.publish(gpus(2)).published()).await.unwrap();
    soon("shut down", first.shutdown()).await.unwrap();
    assert_eq!(rig.slices().len(), 1);

    rig.api.clear_calls();
    let second = rig.start(&TestDriver::new()).await;
    soon("published", second.publish(gpus(2)).published()).await.unwrap();
    assert_eq!(slice_writes(&rig), 0);

    let published = soon("published", second.publish(gpus(3)).published()).await.unwrap();
    assert_eq!(device_names(&rig.slices()[0]).len(), 3);
    assert!(published.generation >= 1);
}

#[tokio::test]
async fn an_api_server_that_refuses_writes_is_told_in_the_background_and_tried_again() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let handle = rig.start(&driver).await;
    let outage = rig
        .api
        .fail_while(Matcher::any().verb(Verb::Create).resource("resourceslices"), ApiStatus::unavailable());
    let mut ticket = handle.publish(gpus(2));
    driver.wait_for_background_error("publishing ResourceSlices").await;
    drop(outage);
    soon("published", ticket.published()).await.unwrap();
    eventually("one slice", || rig.slices().len() == 1).await;
}
