//! What containers are told of their devices.

use std::fs;
use std::path::{Path, PathBuf};

use dra_kubeletplugin::cdi::QualifiedName;
use dra_kubeletplugin::metadata::{self, ClaimMetadata, PodClaim};
use dra_kubeletplugin::{ContainerEdits, DeviceMetadata};
use dra_testkit::kubelet::{ClaimRef, PreparedDevice};
use dra_testkit::runtime::{OciSpec, Runtime};
use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::support::{DRIVER, NODE, Note, Rig, TestDriver, device, eventually, fail, soon, usual};

/// A driver that says of each device which it is.
fn driver_with_metadata() -> TestDriver {
    let driver = TestDriver::new();
    driver.on_prepare(|claim, _| {
        let prepared = claim.devices().iter().try_fold(usual(claim), |prepared, device| {
            let uuid = format!("of {}", device.device());
            Ok(prepared.metadata(device, DeviceMetadata::new().attribute("uuid", uuid)?))
        });
        async { prepared }.boxed()
    });
    driver
}

/// A result for a request.
fn result(request: &str, device: &str) -> Value {
    json!({"request": request, "driver": DRIVER, "pool": NODE, "device": device})
}

/// A container that asks for these devices, and the folder that it sees as [`metadata::ROOT`].
fn container(rig: &Rig, devices: &[PreparedDevice]) -> (OciSpec, tempfile::TempDir) {
    let ids: Vec<&String> = devices.iter().flat_map(|device| &device.cdi_device_ids).collect();
    let mut container = OciSpec::default();
    Runtime::new([rig.node.cdi()]).apply(&mut container, &ids).unwrap();
    let root = tempfile::tempdir().unwrap();
    for mount in &container.mounts {
        assert_eq!(mount.options, ["ro", "bind"]);
        let path = root.path().join(Path::new(&mount.destination).strip_prefix(metadata::ROOT).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&mount.source, path).unwrap();
    }
    (container, root)
}

/// The devices that a container is told of, with their UUIDs.
fn told(metadata: &ClaimMetadata) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for request in &metadata.requests {
        for device in &request.devices {
            let uuid = device.metadata.attributes().get("uuid");
            all.push((request.name.clone(), device.device.to_string(), format!("{uuid:?}")));
        }
    }
    all
}

/// What [`driver_with_metadata`] says of a device of a request.
fn expected(request: &str, device: &str) -> (String, String, String) {
    (request.to_owned(), format!("{NODE}/{device}"), format!("Some(String(\"of {device}\"))"))
}

/// Where the driver keeps the files of a claim.
fn kept(rig: &Rig, claim: &ClaimRef) -> PathBuf {
    rig.node.plugins().join(DRIVER).join("metadata").join(&claim.uid)
}

#[tokio::test]
async fn a_container_sees_the_devices_of_the_requests_that_it_asks_for() {
    let (rig, driver) = (Rig::new(), driver_with_metadata());
    let _handle = rig.start(&driver).await;
    let results = [result("gpu/large", "gpu-0"), result("gpu/large", "gpu-1"), result("spare", "gpu-2")];
    let claim = rig.claim("one", &results);
    let devices = rig.prepare_one(&claim).await.unwrap();

    let (first, root) = container(&rig, &devices[..2]);
    assert_eq!(first.mounts.len(), 1, "two devices share a file");
    let read = |request| metadata::read_below(root.path(), PodClaim::Named("one"), request);
    let gpus = read("gpu").unwrap();
    assert_eq!(
        (gpus.claim.uid.as_str(), gpus.generation, &gpus.pod_claim_name),
        (claim.uid.as_str(), 1, &None)
    );
    assert_eq!(told(&gpus), [expected("gpu/large", "gpu-0"), expected("gpu/large", "gpu-1")]);
    read("spare").unwrap_err();

    let (both, root) = container(&rig, &devices);
    assert_eq!(both.mounts.len(), 2);
    let spare = metadata::read_below(root.path(), PodClaim::Named("one"), "spare").unwrap();
    assert_eq!(told(&spare), [expected("spare", "gpu-2")]);
}

#[tokio::test]
async fn a_claim_from_a_template_is_found_by_its_name_in_the_pod() {
    let (rig, driver) = (Rig::new(), driver_with_metadata());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("pod-gpus-x7v2k", &[device("gpu-0")]);
    rig.annotate(&claim, "resource.kubernetes.io/pod-claim-name", "gpus");
    let (_, root) = container(&rig, &rig.prepare_one(&claim).await.unwrap());
    let read = metadata::read_below(root.path(), PodClaim::FromTemplate("gpus"), "gpu").unwrap();
    assert_eq!(read.pod_claim_name.as_deref(), Some("gpus"));
    assert_eq!(told(&read), [expected("gpu", "gpu-0")]);
    rig.unprepare_one(&claim).await.unwrap();

    let bad = rig.claim("two", &[device("gpu-0")]);
    rig.annotate(&bad, "resource.kubernetes.io/pod-claim-name", "../../etc");
    let error = rig.prepare_one(&bad).await.unwrap_err();
    assert!(error.contains("pod-claim-name") && error.contains("../../etc"), "{error}");
    assert_eq!(driver.log().last().unwrap(), "rollback two: gpu-0 (Rollback)");
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn devices_without_edits_and_with_ids_of_the_driver_bring_it_too() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|claim, _| {
        let own: QualifiedName = "example.com/gpu=all".parse().unwrap();
        let [first, second] = claim.devices() else { return async { fail("two devices") }.boxed() };
        let prepared = dra_kubeletplugin::Prepared::new(Note(String::new()))
            .device(first, ContainerEdits::new())
            .device_with_ids(second, [own])
            .metadata(first, DeviceMetadata::new());
        async { Ok(prepared) }.boxed()
    });
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[result("a", "gpu-0"), result("b", "gpu-1")]);
    let mut devices = rig.prepare_one(&claim).await.unwrap();
    assert_eq!(devices[1].cdi_device_ids.remove(0), "example.com/gpu=all");
    let (_, root) = container(&rig, &devices);
    for request in ["a", "b"] {
        metadata::read_below(root.path(), PodClaim::Named("one"), request).unwrap();
    }
}

#[tokio::test]
async fn files_go_with_the_claim_and_what_is_lost_is_put_back() {
    let (rig, driver) = (Rig::new(), driver_with_metadata());
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let file = kept(&rig, &claim).join("gpu.json");
    let content = fs::read(&file).unwrap();
    fs::remove_dir_all(kept(&rig, &claim)).unwrap();
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), content, "by a repeated prepare");

    soon("shut down", handle.shutdown()).await.unwrap();
    fs::write(&file, "half").unwrap();
    let orphan = kept(&rig, &claim).with_file_name("0b0e26a7");
    fs::create_dir(&orphan).unwrap();
    let _handle = rig.start(&driver).await;
    eventually("a whole file and no orphan", || fs::read(&file).unwrap() == content && !orphan.exists())
        .await;

    rig.unprepare_one(&claim).await.unwrap();
    assert!(!kept(&rig, &claim).exists());
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn files_of_an_earlier_boot_go_before_the_claim_is_prepared_again() {
    let (rig, driver) = (Rig::new(), driver_with_metadata());
    let handle = rig.start(&driver).await;
    let [one, two] = ["one", "two"].map(|name| rig.claim(name, &[device(&format!("gpu-{name}"))]));
    for claim in [&one, &two] {
        rig.prepare_one(claim).await.unwrap();
    }
    soon("shut down", handle.shutdown()).await.unwrap();
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    rig.prepare_one(&one).await.unwrap();
    assert_eq!((kept(&rig, &one).exists(), kept(&rig, &two).exists()), (true, false));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_fails_its_claim_alone() {
    let (rig, driver) = (Rig::new(), driver_with_metadata());
    let _handle = rig.start(&driver).await;
    let [bad, good] = ["bad", "good"].map(|name| rig.claim(name, &[device(&format!("gpu-{name}"))]));
    // Something stands where the claim's folder would be.
    fs::create_dir_all(kept(&rig, &bad).parent().unwrap()).unwrap();
    fs::create_dir_all(kept(&rig, &bad).join("gpu.json")).unwrap();
    let answers = rig.prepare(&[&bad, &good]).await;
    let error = answers[&bad.uid].as_ref().unwrap_err();
    assert!(error.contains("writing metadata") && error.contains("gpu.json"), "{error}");
    answers[&good.uid].as_ref().unwrap();
    assert!(!kept(&rig, &bad).exists(), "rolled back");
    rig.prepare_one(&bad).await.unwrap();
}
