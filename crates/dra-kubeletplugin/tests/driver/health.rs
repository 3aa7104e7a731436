//! What the kubelet learns of the health of devices.

use std::time::Duration;

use dra_kubeletplugin::k8s_openapi::api::resource;
use dra_kubeletplugin::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use dra_kubeletplugin::{
    Device, DeviceHealth, DeviceRef, DriverResources, HealthTaints, HealthVersion, Wishes,
    resourceslice::{IfDropped, TaintEffect},
};
use dra_testkit::api::{Matcher, Verb};
use dra_testkit::kubelet::{Health, HealthService};

use crate::support::{DRIVER, NODE, Rig, SOON, TestDriver, eventually, soon};

fn gpu(number: u8) -> DeviceRef {
    DeviceRef::new(NODE.parse().unwrap(), format!("gpu-{number}").parse().unwrap())
}

/// Device names and how the kubelet believes they are.
fn known(rig: &Rig) -> Vec<(String, Health)> {
    let health = rig.kubelet.health(DRIVER).into_iter();
    health.map(|((_, device), health)| (device, health.health)).collect()
}

async fn wait_known(rig: &Rig, wanted: &[(&str, Health)]) {
    let wanted: Vec<_> = wanted.iter().map(|(name, health)| ((*name).to_owned(), *health)).collect();
    eventually(&format!("{wanted:?}"), || known(rig) == wanted).await;
}

#[tokio::test]
async fn the_kubelet_hears_of_devices_and_of_each_change_in_both_versions() {
    for service in [HealthService::V1, HealthService::V1Alpha1] {
        let rig = Rig::with_kubelet(|kubelet, _| kubelet.health_services([service]));
        let handle = rig.start_with(&TestDriver::new(), rig.options().health(true)).await;
        assert_eq!(rig.kubelet.registered()[0].health, Some(service));
        let health = handle.health();
        health.report_all([0, 1].map(|number| (gpu(number), DeviceHealth::healthy())));
        wait_known(&rig, &[("gpu-0", Health::Healthy), ("gpu-1", Health::Healthy)]).await;
        health.report(gpu(1), DeviceHealth::unhealthy("XID 79"));
        let pool_and_name = (NODE.to_owned(), "gpu-1".to_owned());
        rig.kubelet
            .wait_health(DRIVER, SOON, |known| known[&pool_and_name].message == "XID 79")
            .await
            .unwrap();
        health.forget(&gpu(0));
        wait_known(&rig, &[("gpu-0", Health::Unknown), ("gpu-1", Health::Unhealthy)]).await;
    }
}

#[tokio::test]
async fn only_the_versions_that_are_wanted_are_offered() {
    for (offered, service) in
        [(HealthVersion::V1, HealthService::V1), (HealthVersion::V1Alpha1, HealthService::V1Alpha1)]
    {
        let rig = Rig::new();
        let options = rig.options().health(true).health_versions([offered]);
        let handle = rig.start_with(&TestDriver::new(), options).await;
        let [plugin] = &rig.kubelet.registered()[..] else { panic!("one plugin") };
        assert_eq!((plugin.health, plugin.advertised.len()), (Some(service), 3));
        handle.health().report(gpu(0), DeviceHealth::healthy());
        wait_known(&rig, &[("gpu-0", Health::Healthy)]).await;
    }
}

#[tokio::test]
async fn health_is_offered_only_by_a_driver_that_wants_to() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let [plugin] = &rig.kubelet.registered()[..] else { panic!("one plugin") };
    assert_eq!((plugin.health, plugin.advertised.len()), (None, 2));
    // Nobody listens, and that is no reason to wait.
    handle.health().report(gpu(0), DeviceHealth::healthy());
    assert_eq!(handle.health().last(&gpu(0)), Some(DeviceHealth::healthy()));
}

#[tokio::test]
async fn a_kubelet_that_comes_back_is_told_all() {
    let rig = Rig::new();
    let handle = rig.start_with(&TestDriver::new(), rig.options().health(true)).await;
    handle.health().report(gpu(0), DeviceHealth::unhealthy("hot"));
    wait_known(&rig, &[("gpu-0", Health::Unhealthy)]).await;
    rig.kubelet.restart().await;
    wait_known(&rig, &[("gpu-0", Health::Unhealthy)]).await;
}

#[tokio::test]
async fn open_streams_do_not_hold_up_a_stop() {
    let rig = Rig::new();
    let handle = rig.start_with(&TestDriver::new(), rig.options().health(true)).await;
    handle.health().report(gpu(0), DeviceHealth::healthy());
    wait_known(&rig, &[("gpu-0", Health::Healthy)]).await;
    // Calls in flight would get 5 s.
    let stopped = tokio::time::timeout(Duration::from_secs(4), handle.shutdown()).await;
    stopped.expect("it waits for the stream").unwrap();
    wait_known(&rig, &[]).await;
}

#[tokio::test]
async fn what_the_end_of_an_old_instance_takes_away_is_said_again() {
    let rig = Rig::new();
    let options = || rig.options().health(true);
    let old = rig.start_with(&TestDriver::new(), options().rolling_update("old")).await;
    let new = rig.start_with(&TestDriver::new(), options().rolling_update("new")).await;
    old.health().report(gpu(0), DeviceHealth::healthy());
    new.health().report(gpu(0), DeviceHealth::healthy());
    wait_known(&rig, &[("gpu-0", Health::Healthy)]).await;
    let cleared = rig.kubelet.wait_health(DRIVER, SOON, std::collections::BTreeMap::is_empty);
    let (cleared, stopped) = tokio::join!(cleared, soon("shut down", old.shutdown()));
    cleared.unwrap();
    stopped.unwrap();
    // Within a second or so instead of ten.
    wait_known(&rig, &[("gpu-0", Health::Healthy)]).await;
}

/// Publishes two GPUs and waits until they are there.
async fn publish(wishes: &Wishes) {
    let devices = ["gpu-0", "gpu-1"].map(|name| Device::named(name).unwrap());
    let mut ticket = wishes.publish(DriverResources::single_pool(NODE.parse().unwrap(), devices));
    soon("published", ticket.published()).await.unwrap();
}

/// The devices in the slices.
fn devices(rig: &Rig) -> Vec<resource::v1::Device> {
    rig.slices().into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default()).collect()
}

/// Devices with a taint, and when they got it.
fn tainted(rig: &Rig) -> Vec<(String, Time)> {
    let taints = devices(rig).into_iter().flat_map(|device| {
        let taints = device.taints.into_iter().flatten();
        taints.map(move |taint| (device.name.clone(), taint.time_added.unwrap()))
    });
    taints.collect()
}

fn names(tainted: &[(String, Time)]) -> Vec<&str> {
    tainted.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_device_that_does_not_work_is_tainted_until_it_does() {
    let rig = Rig::new();
    let options = rig.options().taint_unhealthy(HealthTaints::new("gpu.example.com/unhealthy"));
    let handle = rig.start_with(&TestDriver::new(), options).await;
    publish(&handle.wishes()).await;
    handle.health().report(gpu(1), DeviceHealth::unhealthy("hot"));
    eventually("a taint", || names(&tainted(&rig)) == ["gpu-1"]).await;
    handle.health().report(gpu(1), DeviceHealth::healthy());
    eventually("no taint", || tainted(&rig).is_empty()).await;
}

#[tokio::test]
async fn what_is_reported_before_it_is_published_is_tainted_from_the_first_write_and_over_a_restart() {
    let rig = Rig::new();
    let options = || rig.options().taint_unhealthy(HealthTaints::new("gpu.example.com/unhealthy"));
    let first = rig.start_with(&TestDriver::new(), options()).await;
    first.health().report(gpu(1), DeviceHealth::unhealthy("hot"));
    publish(&first.wishes()).await;
    let before = tainted(&rig);
    assert_eq!(names(&before), ["gpu-1"]);
    soon("shut down", first.shutdown()).await.unwrap();

    let second = rig.start_with(&TestDriver::new(), options()).await;
    second.health().report(gpu(1), DeviceHealth::unhealthy("too hot"));
    publish(&second.wishes()).await;
    assert_eq!(tainted(&rig), before);
    let writes = |verb| rig.api.count(&Matcher::any().verb(verb).resource("resourceslices").dry_run(false));
    assert_eq!((writes(Verb::Create), writes(Verb::Update)), (1, 0));
}

/// The devices that pods can get.
fn published(rig: &Rig) -> Vec<String> {
    devices(rig).into_iter().map(|device| device.name).collect()
}

#[tokio::test]
async fn a_device_that_does_not_work_is_left_out_where_taints_are_dropped() {
    let rig = Rig::new();
    rig.api.set_feature_gate("DRADeviceTaints", false).unwrap();
    let options = rig.options().taint_unhealthy(HealthTaints::new("gpu.example.com/unhealthy"));
    let driver = TestDriver::new();
    let handle = rig.start_with(&driver, options).await;
    publish(&handle.wishes()).await;
    for _ in 0..3 {
        handle.health().report(gpu(1), DeviceHealth::unhealthy("hot"));
        eventually("the device is left out", || published(&rig) == ["gpu-0"]).await;
        handle.health().report(gpu(1), DeviceHealth::healthy());
        eventually("the device is back", || published(&rig) == ["gpu-0", "gpu-1"]).await;
    }
    // Nothing is left of the node's devices, and they come back.
    handle.health().report_all([0, 1].map(|number| (gpu(number), DeviceHealth::unhealthy("hot"))));
    eventually("no device", || published(&rig).is_empty()).await;
    handle.health().report(gpu(0), DeviceHealth::healthy());
    eventually("the device is back", || published(&rig) == ["gpu-0"]).await;
    assert_eq!(driver.background_errors(), ["publishing ResourceSlices"], "once");
    // An administrator turns the gate on.
    rig.api.set_feature_gate("DRADeviceTaints", true).unwrap();
    rig.api.drop_watches();
    eventually("a taint", || names(&tainted(&rig)) == ["gpu-1"]).await;
    assert_eq!(published(&rig), ["gpu-0", "gpu-1"]);
}

#[tokio::test]
async fn a_device_whose_taint_is_dropped_stays_if_the_driver_says_so_or_the_taint_only_informs() {
    let informs = HealthTaints::new("gpu.example.com/unhealthy").effect(TaintEffect::None);
    for policy in [HealthTaints::new("gpu.example.com/unhealthy").if_dropped(IfDropped::Keep), informs] {
        let rig = Rig::new();
        rig.api.set_feature_gate("DRADeviceTaints", false).unwrap();
        let handle = rig.start_with(&TestDriver::new(), rig.options().taint_unhealthy(policy)).await;
        handle.health().report(gpu(1), DeviceHealth::unhealthy("hot"));
        publish(&handle.wishes()).await;
        assert_eq!(published(&rig), ["gpu-0", "gpu-1"]);
    }
}
