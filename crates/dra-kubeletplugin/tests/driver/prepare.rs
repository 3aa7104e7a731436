//! Claims as they should be: what the driver sees, what the kubelet and the container get.

use std::time::{Duration, Instant};

use dra_kubeletplugin::{ContainerEdits, Prepared};
use dra_testkit::runtime::{OciSpec, Runtime};
use serde_json::json;

use crate::support::{DRIVER, NODE, Note, Rig, TestDriver, device, soon, usual};

#[tokio::test]
async fn a_container_gets_what_the_driver_said() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    let [answered] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!((answered.pool_name.as_str(), answered.device_name.as_str()), (NODE, "gpu-0"));
    assert_eq!((answered.request_names.as_slice(), &answered.share_id), (&["gpu".to_owned()][..], &None));
    assert_eq!(answered.cdi_device_ids, [format!("k8s.{DRIVER}/claim={}-gpu-0", claim.uid)]);
    let mut container = OciSpec::default();
    Runtime::new([rig.node.cdi()]).apply(&mut container, &answered.cdi_device_ids).unwrap();
    assert_eq!(container.env("DEVICE"), Some("gpu-0"));
    assert_eq!(rig.files(), rig.files_of(&[&claim]));

    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(rig.files(), [""; 0]);
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)"]);
}

#[tokio::test]
async fn results_of_other_drivers_reach_neither_the_driver_nor_the_answer() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let nic = json!({"request": "nic", "driver": "nic.example.com", "pool": NODE, "device": "eth-0"});
    let claim = rig.claim("one", &[nic.clone(), device("gpu-3"), nic]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].device_name, "gpu-3");
    assert_eq!(driver.log(), ["prepare one: gpu-3"]);
}

#[tokio::test]
async fn a_claim_with_nothing_of_ours_succeeds_and_leaves_no_trace() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let nic = json!({"request": "nic", "driver": "nic.example.com", "pool": NODE, "device": "eth-0"});
    let claim = rig.claim("one", &[nic]);
    assert_eq!(rig.prepare_one(&claim).await, Ok(vec![]));
    assert_eq!((rig.files(), driver.log()), (vec![], vec![]));
    rig.unprepare_one(&claim).await.unwrap();
}

#[tokio::test]
async fn the_kubelet_hears_base_requests_and_the_driver_the_chosen_alternative() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    driver.on_prepare(|claim, _| {
        let device = &claim.devices()[0];
        let name = (device.base_request().to_owned(), device.subrequest().map(str::to_owned));
        assert_eq!(name, ("gpu".to_owned(), Some("large".to_owned())));
        Box::pin(async { Ok(usual(claim)) })
    });
    let _handle = rig.start(&driver).await;
    let mut result = device("gpu-0");
    result["request"] = json!("gpu/large");
    let devices = rig.prepare_one(&rig.claim("one", &[result])).await.unwrap();
    assert_eq!(devices[0].request_names, ["gpu"]);
}

#[tokio::test]
async fn three_prepares_call_the_driver_once_and_answer_alike() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-1"), device("gpu-0")]);
    let first = rig.prepare_one(&claim).await.unwrap();
    assert_eq!(rig.prepare_one(&claim).await.as_ref(), Ok(&first));
    assert_eq!(rig.prepare_one(&claim).await.as_ref(), Ok(&first));
    assert_eq!(driver.log(), ["prepare one: gpu-1, gpu-0"]);
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn a_restarted_driver_answers_as_before_without_preparing_again() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let first = rig.prepare_one(&claim).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    let _handle = rig.start(&driver).await;
    assert_eq!(rig.prepare_one(&claim).await.as_ref(), Ok(&first));
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);
}

#[tokio::test]
async fn a_repeated_prepare_brings_a_removed_cdi_file_back() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let bytes = std::fs::read(rig.cdi_file(&claim)).unwrap();
    std::fs::remove_file(rig.cdi_file(&claim)).unwrap();
    rig.prepare_one(&claim).await.unwrap();
    assert_eq!(std::fs::read(rig.cdi_file(&claim)).unwrap(), bytes);
}

#[tokio::test]
async fn a_claim_allocated_anew_is_unprepared_and_prepared_with_its_new_devices() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    rig.allocate_anew(&claim, &[device("gpu-1")]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_eq!(devices[0].device_name, "gpu-1");
    let calls = ["prepare one: gpu-0", "unprepare one: gpu-0 (Reallocated)", "prepare one: gpu-1"];
    assert_eq!(driver.log(), calls);
    assert_eq!(driver.last_held().state, Some(Note("prepared one".into())));

    // What it had is free, what it has is not.
    rig.prepare_one(&rig.claim("two", &[device("gpu-0")])).await.unwrap();
    assert!(rig.prepare_one(&rig.claim("three", &[device("gpu-1")])).await.is_err());
}

#[tokio::test]
async fn a_device_without_edits_has_no_cdi_id_and_the_claim_no_cdi_file() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    driver.on_prepare(|claim, _| {
        let prepared = Prepared::new(Note("bare".into()));
        Box::pin(async move { Ok(prepared.device(&claim.devices()[0], ContainerEdits::new())) })
    });
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_eq!((devices.len(), devices[0].cdi_device_ids.len()), (1, 0));
    assert!(!rig.cdi_file(&claim).exists());
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn claims_of_one_call_have_a_cdi_file_each() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    let claims: Vec<_> =
        (0..20).map(|i| rig.claim(&format!("c{i}"), &[device(&format!("gpu-{i}"))])).collect();
    let all: Vec<_> = claims.iter().collect();
    let answer = rig.prepare(&all).await;
    assert!(answer.len() == 20 && answer.values().all(Result::is_ok), "{answer:?}");
    assert_eq!(rig.files(), rig.files_of(&all));
    assert_eq!(Runtime::new([rig.node.cdi()]).devices().len(), 20);
    // Unprepare removes only its own.
    rig.unprepare_one(&claims[7]).await.unwrap();
    let left: Vec<_> = claims.iter().filter(|claim| **claim != claims[7]).collect();
    assert_eq!(rig.files(), rig.files_of(&left));
}

#[tokio::test]
async fn a_call_without_claims_has_an_empty_answer() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    assert_eq!(rig.prepare(&[]).await.len(), 0);
    assert_eq!(rig.unprepare(&[]).await.len(), 0);
}

#[tokio::test]
async fn a_thousand_claims_of_one_call_are_all_prepared() {
    let rig = Rig::new();
    let driver = TestDriver::new();
    let _handle = rig.start(&driver).await;
    let claims: Vec<_> =
        (0..1000).map(|i| rig.claim(&format!("c{i}"), &[device(&format!("gpu-{i}"))])).collect();
    let begin = Instant::now();
    let answer = rig.prepare(&claims.iter().collect::<Vec<_>>()).await;
    let took = begin.elapsed();
    println!("1000 claims in one call: {:.1} s", took.as_secs_f64());
    let failed: Vec<_> = answer.values().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!((answer.len(), failed), (1000, vec![]));
    assert_eq!(driver.log().len(), 1000);
    // The kubelet gives up after 45 s.
    assert!(took < Duration::from_secs(40), "{took:?}");
}
