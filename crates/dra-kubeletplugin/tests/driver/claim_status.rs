//! What the claim's status says of its devices.

use dra_kubeletplugin::DeviceStatus;
use dra_kubeletplugin::k8s_openapi::api::resource::v1::ResourceClaim;
use dra_testkit::api::{ApiStatus, Matcher, Verb};
use dra_testkit::kubelet::ClaimRef;
use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::support::{DRIVER, Rig, TestDriver, device, eventually, share, soon, usual};

/// A driver whose devices have a status.
fn driver_with_status() -> TestDriver {
    let driver = TestDriver::new();
    driver.on_prepare(|claim, _| {
        let prepared = claim.devices().iter().try_fold(usual(claim), |prepared, device| {
            let status = DeviceStatus::new().data(&json!({"uuid": format!("of {}", device.device())}))?;
            Ok(prepared.status(device, status))
        });
        async { prepared }.boxed()
    });
    driver
}

/// The entries of `status.devices`.
fn status(rig: &Rig, claim: &ClaimRef) -> Vec<Value> {
    let claim: ResourceClaim = rig.api.get((claim.namespace.as_str(), claim.name.as_str())).unwrap();
    let devices = claim.status.and_then(|status| status.devices).unwrap_or_default();
    devices.iter().map(|device| serde_json::to_value(device).unwrap()).collect()
}

fn status_writes() -> Matcher {
    Matcher::any().verb(Verb::Patch).resource("resourceclaims").status(true)
}

#[tokio::test]
async fn a_prepared_claim_has_it_and_an_unprepared_one_does_not() {
    let (rig, driver) = (Rig::new(), driver_with_status());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0"), share("gpu-1", 1)]);
    rig.prepare_one(&claim).await.unwrap();
    eventually("two entries", || status(&rig, &claim).len() == 2).await;
    let of = |name: &str, share: Value| {
        let mut entry = json!({"driver": DRIVER, "pool": "node-1", "device": name, "data": {"uuid": format!("of {name}")}});
        if !share.is_null() {
            entry["shareID"] = share;
        }
        entry
    };
    let expected = [of("gpu-0", Value::Null), of("gpu-1", json!("00000000-0000-4000-8000-000000000001"))];
    assert_eq!(status(&rig, &claim), expected);

    rig.prepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    eventually("no entries", || status(&rig, &claim).is_empty()).await;
    assert_eq!(rig.api.count(&status_writes()), 2, "nothing is written twice");
}

#[tokio::test]
async fn preparing_does_not_wait_for_it_and_it_is_tried_until_it_works() {
    let (rig, driver) = (Rig::new(), driver_with_status());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let refused = rig.api.fail_while(status_writes(), ApiStatus::forbidden());
    rig.prepare_one(&claim).await.unwrap();
    driver.wait_for_background_error("associated-node:patch on resourceclaims/driver").await;
    assert!(status(&rig, &claim).is_empty());
    drop(refused);
    eventually("an entry", || status(&rig, &claim).len() == 1).await;
}

#[tokio::test]
async fn a_status_that_was_not_written_before_the_driver_ended_is_written_by_the_next() {
    let (rig, driver) = (Rig::new(), driver_with_status());
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let refused = rig.api.fail_while(status_writes(), ApiStatus::forbidden());
    rig.prepare_one(&claim).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    drop(refused);
    let _handle = rig.start(&driver).await;
    eventually("an entry", || status(&rig, &claim).len() == 1).await;
    rig.unprepare_one(&claim).await.unwrap();
    eventually("no entry", || status(&rig, &claim).is_empty()).await;
}

#[tokio::test]
async fn drivers_without_status_write_nothing() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    // Whatever was to be written would be on its way before the next claim is done.
    rig.prepare_one(&rig.claim("two", &[device("gpu-0")])).await.unwrap();
    assert_eq!(rig.api.count(&status_writes()), 0);
}
