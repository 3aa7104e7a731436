//! What the kubelet learns of the health of devices.

use std::time::Duration;

use dra_kubeletplugin::{Device, DeviceHealth, DeviceRef, DriverResources, HealthTaints};
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

#[tokio::test]
async fn a_device_that_does_not_work_is_tainted_until_it_does() {
    let rig = Rig::new();
    let options = rig.options().taint_unhealthy(HealthTaints::new("gpu.example.com/unhealthy"));
    let handle = rig.start_with(&TestDriver::new(), options).await;
    let devices = ["gpu-0", "gpu-1"].map(|name| Device::named(name).unwrap());
    let pool = NODE.parse().unwrap();
    let mut ticket = handle.publish(DriverResources::single_pool(pool, devices));
    soon("published", ticket.published()).await.unwrap();
    let tainted = || -> Vec<String> {
        let slices = rig.slices();
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let tainted = devices.filter(|device| device.taints.iter().flatten().count() > 0);
        tainted.map(|device| device.name.clone()).collect()
    };
    handle.health().report(gpu(1), DeviceHealth::unhealthy("hot"));
    eventually("a taint", || tainted() == ["gpu-1"]).await;
    handle.health().report(gpu(1), DeviceHealth::healthy());
    eventually("no taint", || tainted().is_empty()).await;
    ticket.published().await.expect("the wish is the same");
}
