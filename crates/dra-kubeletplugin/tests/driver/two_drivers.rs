//! Two drivers in one process: each has its sockets, its books, its slices and its metrics.

use dra_kubeletplugin::{Device, DriverResources, Handle, Options, Registration};
use dra_testkit::kubelet::ClaimRef;
use serde_json::{Value, json};

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, eventually, fail, soon};

const NIC_DRIVER: &str = "nic.example.com";

/// The second driver; the first is that of the rig.
async fn start_nics(rig: &Rig, driver: &TestDriver) -> Handle {
    let options = Options::new(NIC_DRIVER.parse().unwrap(), NODE.parse().unwrap(), rig.api.client())
        .kubelet_root(rig.node.kubelet())
        .cdi_root(rig.node.cdi())
        .boot_id("boot-1")
        .kubelet_in_process(true);
    rig.start_with(driver, options).await
}

/// An allocation result of the second driver.
fn nic(name: &str) -> Value {
    json!({"request": "nic", "driver": NIC_DRIVER, "pool": NODE, "device": name})
}

async fn prepare(rig: &Rig, driver: &str, claim: &ClaimRef) -> Result<Vec<String>, String> {
    let mut answer = rig.kubelet.prepare_unchecked(driver, std::slice::from_ref(claim)).await.unwrap();
    let devices = answer.remove(&claim.uid).expect("the claim is answered")?;
    Ok(devices.into_iter().flat_map(|device| device.cdi_device_ids).collect())
}

async fn unprepare(rig: &Rig, driver: &str, claim: &ClaimRef) -> Result<(), String> {
    let mut answer = rig.kubelet.unprepare_unchecked(driver, std::slice::from_ref(claim)).await.unwrap();
    answer.remove(&claim.uid).expect("the claim is answered")
}

#[tokio::test]
async fn two_drivers_in_one_process_serve_the_two_halves_of_a_claim() {
    let (rig, gpus, nics) = (Rig::new(), TestDriver::new(), TestDriver::new());
    let (_gpus, _nics) = (rig.start(&gpus).await, start_nics(&rig, &nics).await);
    let claim = rig.claim("both", &[device("gpu-0"), nic("nic-0")]);

    nics.on_prepare(|_, _| Box::pin(async { fail("no cable") }));
    let id = |driver, name| format!("k8s.{driver}/claim={}-{name}", claim.uid);
    assert_eq!(prepare(&rig, DRIVER, &claim).await, Ok(vec![id(DRIVER, "gpu-0")]));
    let error = prepare(&rig, NIC_DRIVER, &claim).await.unwrap_err();
    assert!(error.contains("no cable"), "{error}");

    nics.prepare_as_usual();
    for (driver, name) in [(DRIVER, "gpu-0"), (NIC_DRIVER, "nic-0")] {
        assert_eq!(prepare(&rig, driver, &claim).await, Ok(vec![id(driver, name)]));
    }
    assert_eq!(gpus.log(), ["prepare both: gpu-0"], "a repetition is answered from the record");

    unprepare(&rig, DRIVER, &claim).await.unwrap();
    assert_eq!(rig.files(), [format!("k8s.{NIC_DRIVER}+claim+{}.json", claim.uid)]);
    unprepare(&rig, NIC_DRIVER, &claim).await.unwrap();
    assert_eq!(nics.log().last().unwrap(), "unprepare both: nic-0 (Unprepare)");
}

#[tokio::test]
async fn two_drivers_in_one_process_publish_and_count_each_for_itself() {
    let rig = Rig::new();
    let (gpus, nics) = (rig.start(&TestDriver::new()).await, start_nics(&rig, &TestDriver::new()).await);
    for (handle, name) in [(&gpus, "gpu-0"), (&nics, "nic-0")] {
        let resources = DriverResources::single_pool(NODE.parse().unwrap(), [Device::named(name).unwrap()]);
        soon("published", handle.publish(resources).published()).await.unwrap();
    }
    let mut published: Vec<_> = rig.slices().into_iter().map(|slice| slice.spec.driver).collect();
    published.sort();
    assert_eq!(published, [DRIVER, NIC_DRIVER]);

    let claim = rig.claim("one", &[nic("nic-0")]);
    prepare(&rig, NIC_DRIVER, &claim).await.unwrap();
    for (handle, driver, prepared) in [(&gpus, DRIVER, 0), (&nics, NIC_DRIVER, 1)] {
        let metrics = handle.metrics().unwrap();
        let series = format!("dra_plugin_claims{{driver=\"{driver}\",state=\"prepared\"}} {prepared}\n");
        assert!(metrics.contains(&series), "no {series}in {metrics}");
    }
}

#[tokio::test]
async fn one_of_two_drivers_in_a_process_ends_alone() {
    let rig = Rig::new();
    let (gpus, nics) = (rig.start(&TestDriver::new()).await, start_nics(&rig, &TestDriver::new()).await);
    soon("shut down", gpus.shutdown()).await.unwrap();
    eventually("only one is registered", || {
        rig.kubelet.registered().iter().map(|plugin| plugin.driver.as_str()).eq([NIC_DRIVER])
    })
    .await;
    assert!(nics.registration().borrow().is_registered());
    let claim = rig.claim("one", &[nic("nic-0")]);
    prepare(&rig, NIC_DRIVER, &claim).await.unwrap();
    let state = nics.registration().borrow().clone();
    assert!(matches!(state, Registration::Registered { epoch: 1, .. }), "{state:?}");
}
