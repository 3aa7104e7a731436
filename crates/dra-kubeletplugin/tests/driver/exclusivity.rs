//! One device, one claim; or several shares; or somebody who only looks on.

use dra_testkit::kubelet::ClaimRef;
use serde_json::Value;

use crate::support::{DRIVER, NODE, Rig, TestDriver, admin, device, fail, share};

async fn prepare(rig: &Rig, name: &str, results: &[Value]) -> (ClaimRef, Result<usize, String>) {
    let claim = rig.claim(name, results);
    let answer = rig.prepare_one(&claim).await;
    (claim, answer.map(|devices| devices.len()))
}

#[tokio::test]
async fn a_held_device_is_refused_naming_its_holder_and_free_after_unprepare() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (one, _) = prepare(&rig, "one", &[device("gpu-0")]).await;
    let (two, answer) = prepare(&rig, "two", &[device("gpu-1"), device("gpu-0")]).await;
    let error = answer.unwrap_err();
    assert!(error.contains(&format!("{NODE}/gpu-0")) && error.contains("default/one"), "{error}");
    assert!(error.contains(&one.uid), "{error}");
    assert_eq!(rig.files(), rig.files_of(&[&one]));
    // A refused claim holds nothing, not even what was free.
    assert_eq!(prepare(&rig, "three", &[device("gpu-1")]).await.1, Ok(1));

    rig.unprepare_one(&one).await.unwrap();
    assert!(rig.prepare_one(&two).await.is_err(), "three has gpu-1 now");
    assert_eq!(prepare(&rig, "four", &[device("gpu-0")]).await.1, Ok(1));
    assert!(!driver.log().iter().any(|call| call.starts_with("prepare two")), "{:?}", driver.log());
}

#[tokio::test]
async fn of_two_claims_of_one_call_on_one_device_one_gets_it() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    let answer = rig.prepare(&[&one, &two]).await;
    assert_eq!(answer.values().filter(|result| result.is_ok()).count(), 1, "{answer:?}");
}

#[tokio::test]
async fn the_same_device_name_in_another_pool_is_another_device() {
    let rig = Rig::new();
    let _handle = rig.start(&TestDriver::new()).await;
    let mut other = device("gpu-0");
    other["pool"] = "rack-1/shelf-2".into();
    let (claim, answer) = prepare(&rig, "one", &[device("gpu-0"), other]).await;
    assert_eq!(answer, Ok(2));
    let devices = rig.prepare_one(&claim).await.unwrap();
    assert_ne!(devices[0].cdi_device_ids, devices[1].cdi_device_ids);
    assert_eq!(devices[1].pool_name, "rack-1/shelf-2");
    assert!(devices[1].cdi_device_ids[0].starts_with(&format!("k8s.{DRIVER}/claim=")));
}

#[tokio::test]
async fn shares_of_a_device_are_allowed_together_and_know_of_each_other() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (one, first) = prepare(&rig, "one", &[share("gpu-0", 1)]).await;
    let (two, second) = prepare(&rig, "two", &[share("gpu-0", 2)]).await;
    assert_eq!((first, second), (Ok(1), Ok(1)));
    let (_, whole) = prepare(&rig, "three", &[device("gpu-0")]).await;
    assert!(whole.unwrap_err().contains("gpu-0"));

    rig.unprepare_one(&one).await.unwrap();
    let others = |driver: &TestDriver| {
        let held = driver.last_held().devices.remove(0);
        held.others.into_iter().map(|claim| claim.name).collect::<Vec<_>>()
    };
    assert_eq!(others(&driver), ["two"]);
    rig.unprepare_one(&two).await.unwrap();
    assert_eq!(others(&driver), [""; 0]);
    assert_eq!(prepare(&rig, "four", &[device("gpu-0")]).await.1, Ok(1));
    let (_, late) = prepare(&rig, "five", &[share("gpu-0", 3)]).await;
    assert!(late.unwrap_err().contains("default/four"));
}

#[tokio::test]
async fn admin_access_neither_is_blocked_nor_blocks_nor_frees() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (holder, _) = prepare(&rig, "holder", &[device("gpu-0")]).await;
    let (watcher, watching) = prepare(&rig, "watcher", &[admin("gpu-0")]).await;
    assert_eq!(watching, Ok(1));

    rig.unprepare_one(&watcher).await.unwrap();
    let (_, refused) = prepare(&rig, "two", &[device("gpu-0")]).await;
    assert!(refused.unwrap_err().contains("default/holder"), "leaving frees nothing");

    let (_, watching) = prepare(&rig, "watcher-2", &[admin("gpu-0")]).await;
    assert_eq!(watching, Ok(1));
    rig.unprepare_one(&holder).await.unwrap();
    assert_eq!(driver.last_held().devices[0].others, [], "who only looks on does not count");
    assert_eq!(prepare(&rig, "three", &[device("gpu-0")]).await.1, Ok(1), "a watcher blocks nobody");
}

#[tokio::test]
async fn a_holder_that_was_never_prepared_and_is_gone_is_collected_for_the_next_claim() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|_, _| Box::pin(async { fail("no power") }));
    driver.fail_rollback(Some("no power"));
    let _handle = rig.start(&driver).await;
    let (one, _) = prepare(&rig, "one", &[device("gpu-0")]).await;
    driver.fail_rollback(None);
    driver.prepare_as_usual();
    rig.delete_claim(&one);
    let (two, answer) = prepare(&rig, "two", &[device("gpu-0")]).await;
    assert_eq!(answer, Ok(1));
    assert_eq!(driver.log()[2..], ["rollback one: gpu-0 (Orphan)", "prepare two: gpu-0"]);
    assert_eq!(rig.files(), rig.files_of(&[&two]));
}

#[tokio::test]
async fn a_prepared_holder_that_is_gone_is_refused_and_told_to_be_gone() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (one, _) = prepare(&rig, "one", &[device("gpu-0")]).await;
    rig.delete_claim(&one);
    let (_, answer) = prepare(&rig, "two", &[device("gpu-0")]).await;
    let error = answer.unwrap_err();
    assert!(error.contains("default/one") && error.contains("gone since"), "{error}");
    assert_eq!(driver.log(), ["prepare one: gpu-0"], "its containers may live on");
}
