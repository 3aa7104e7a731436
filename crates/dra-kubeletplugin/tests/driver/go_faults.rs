//! Faults of the Go helper (0.37.2) that this SDK does not have, by the number that they have in
//! `docs/compatibility.md`. Number 6 is a matter of the whole program: `mock-gpu-driver/tests/binary/stop.rs`.

use std::fs;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use dra_kubeletplugin::k8s_openapi::api::resource::v1::{DeviceTaint, ResourceSlice};
use dra_kubeletplugin::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use dra_kubeletplugin::resourceslice::Slice;
use dra_kubeletplugin::{Device, DriverResources, Options, Pool, Readiness, Taint};
use dra_testkit::api::{ApiStatus, Matcher, Verb};
use dra_testkit::kubelet::Kubelet;

use crate::support::{NODE, Rig, SOON, TestDriver, device, soon};

const POD: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

fn gpu(name: &str) -> Device {
    Device::named(name).unwrap()
}

/// Writes to slices since the log was emptied.
fn writes(rig: &Rig, verbs: &[Verb]) -> usize {
    rig.api.count(&Matcher::any().verbs(verbs.iter().copied()).resource("resourceslices").dry_run(false))
}

/// The helper cannot listen for names of 28, of 53, and of 37 letters or more.
#[tokio::test]
async fn go_fault_1_rolling_updates_work_with_driver_names_of_every_length() {
    let rig = Rig::new();
    // As short as the default, `/var/lib/kubelet`, or the longest names do not fit.
    let folder = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
    let root = folder.path();
    for name in ["plugins", "plugins_registry"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let kubelet = Kubelet::new(root);
    for length in [27, 28, 29, 36, 37, 52, 53, 54, 63] {
        let name = "d".repeat(length);
        let options = Options::new(name.parse().unwrap(), NODE.parse().unwrap(), rig.api.client())
            .kubelet_root(root)
            .cdi_root(rig.node.cdi())
            .boot_id("boot-1")
            .kubelet_in_process(true)
            .rolling_update(POD);
        let handle = options.start(TestDriver::new()).await.unwrap();
        kubelet.wait_registered(&name, SOON).await.unwrap();
        soon("stopped", handle.shutdown()).await.unwrap();
    }
}

fn taints(slice: &mut ResourceSlice) -> &mut Vec<DeviceTaint> {
    slice.spec.devices.as_mut().unwrap()[0].taints.as_mut().unwrap()
}

/// The helper keeps the time of a device's last taint; with the others tolerations of pods begin anew.
#[tokio::test]
async fn go_fault_2_every_taint_of_a_device_keeps_its_time() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let wish = |revision: i64| {
        let taints = ["a", "b", "c"].map(|name| Taint::no_execute(format!("example.com/{name}")));
        let tainted = gpu("gpu-0").try_attribute("revision", revision).unwrap();
        let tainted = taints.into_iter().fold(tainted, Device::taint);
        DriverResources::single_pool(NODE.parse().unwrap(), [tainted])
    };
    soon("published", handle.publish(wish(1)).published()).await.unwrap();
    let mut stored = rig.slices().remove(0);
    let long_ago: Time = serde_json::from_value("2020-01-01T00:00:00Z".into()).unwrap();
    for taint in taints(&mut stored) {
        taint.time_added = Some(long_ago.clone());
    }
    rig.api.put(&stored).unwrap();

    soon("published", handle.publish(wish(2)).published()).await.unwrap();
    let mut stored = rig.slices().remove(0);
    let times: Vec<_> = taints(&mut stored).drain(..).map(|taint| taint.time_added).collect();
    assert_eq!(times, vec![Some(long_ago); 3]);
}

/// The helper's first publish takes a second at least, and does not return while the API server is away.
#[tokio::test]
async fn go_fault_3_the_first_publish_returns_at_once_even_without_an_api_server() {
    let rig = Rig::new();
    let outage = rig.api.hang(Matcher::any());
    let handle = rig.start(&TestDriver::new()).await;
    let start = Instant::now();
    let mut ticket = handle.publish(DriverResources::single_pool(NODE.parse().unwrap(), [gpu("gpu-0")]));
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?}", start.elapsed());
    drop(outage);
    soon("published", ticket.published()).await.unwrap();
}

/// The helper cuts the connection and returns; the kubelet has an error and the driver goes on preparing.
#[tokio::test]
async fn go_fault_4_a_stop_waits_for_a_running_prepare_and_the_kubelet_gets_its_answer() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let gate = driver.hold_up_prepare();
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let stop = async {
        driver.wait_for("prepare one: gpu-0").await;
        let mut readiness = handle.readiness();
        let shutdown = handle.shutdown();
        let release = async {
            let stopping = |now: &Readiness| matches!(now, Readiness::NotReady { reason, .. } if reason.contains("stopping"));
            soon("stopping", readiness.wait_for(stopping)).await.unwrap();
            // Without it the kubelet would cut the call off.
            assert_eq!(
                fs::read_dir(rig.node.plugins_registry()).unwrap().count(),
                1,
                "the registration socket"
            );
            gate.add_permits(1);
        };
        tokio::join!(shutdown, release).0
    };
    let (prepared, stopped) =
        soon("stopped", Box::pin(async { tokio::join!(rig.prepare_one(&claim), stop) })).await;
    stopped.unwrap();
    assert_eq!(prepared.unwrap().len(), 1);
    assert_eq!(rig.files(), rig.files_of(&[&claim]));
}

/// With the helper each waits for the other, for ever.
#[tokio::test]
async fn go_fault_5_a_driver_may_publish_on_an_error_while_the_plugin_stops() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let (stopping, stops) = mpsc::channel::<()>();
    let (told, mut done) = tokio::sync::mpsc::unbounded_channel();
    let handle = rig.start(&driver).await;
    let (wishes, stops) = (handle.wishes(), Mutex::new(stops));
    driver.on_background(move |_| {
        let _ = stops.lock().unwrap().recv();
        drop(wishes.publish(DriverResources::new()));
        let _ = told.send(());
    });
    let failing = Matcher::any().verb(Verb::Create).resource("resourceslices");
    let _outage = rig.api.fail_while(failing, ApiStatus::unavailable());
    drop(handle.publish(DriverResources::single_pool(NODE.parse().unwrap(), [gpu("gpu-0")])));
    driver.wait_for_background_error("publishing ResourceSlices").await;
    let shutdown = handle.shutdown();
    stopping.send(()).unwrap();
    soon("stopped", shutdown).await.unwrap();
    soon("the driver has returned", done.recv()).await.unwrap();
}

/// With the helper one conflict among six updates leads to 4 deletes, 4 creates and 5 updates, in random order.
#[tokio::test]
async fn go_fault_7_a_conflict_in_the_middle_of_an_update_of_many_slices_costs_one_more_write() {
    let rig = Rig::new();
    let handle = rig.start(&TestDriver::new()).await;
    let wish = |revision: i64| {
        let slices = (0..6).map(|number| {
            let device = gpu(&format!("gpu-{number}")).try_attribute("revision", revision).unwrap();
            Slice::new([device])
        });
        DriverResources::new().pool(NODE.parse().unwrap(), Pool::from_slices(slices))
    };
    let before = soon("published", handle.publish(wish(1)).published()).await.unwrap();
    assert_eq!(rig.slices().len(), 6);
    rig.api.clear_calls();
    rig.api.fail_times(
        2,
        Matcher::any().verb(Verb::Update).resource("resourceslices").dry_run(false),
        ApiStatus::conflict("somebody"),
    );
    let after = soon("published", handle.publish(wish(2)).published()).await.unwrap();
    assert_eq!(writes(&rig, &[Verb::Create, Verb::Delete, Verb::DeleteCollection]), 0);
    let updates = writes(&rig, &[Verb::Update, Verb::Patch]);
    assert!((6..=8).contains(&updates), "{updates} updates");
    assert_eq!(after.generation, before.generation + 1);
}

/// The helper asks in three versions of the API, and panics when it updates a claim's status in one of them.
#[tokio::test]
async fn go_fault_8_a_claim_that_is_gone_costs_one_request() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.delete_claim(&claim);
    rig.api.clear_calls();
    rig.prepare_one(&claim).await.unwrap_err();
    assert_eq!(rig.api.count(&Matcher::any().resource("resourceclaims")), 1);
}
