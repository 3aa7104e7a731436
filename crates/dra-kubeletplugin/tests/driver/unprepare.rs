//! Claims that end.

use dra_kubeletplugin::{
    AllocatedClaim, ContainerEdits, DriverPlugin, HeldClaim, PluginError, PrepareContext, Prepared,
    UnprepareReason,
};
use dra_testkit::kubelet::ClaimRef;

use crate::support::{Answer, DRIVER, NODE, Note, Rig, SOON, TestDriver, device, soon, usual};

#[tokio::test]
async fn unprepare_needs_neither_the_claim_nor_the_api_server_nor_the_process_that_prepared() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0"), device("gpu-1")]);
    rig.prepare_one(&claim).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    rig.delete_claim(&claim);
    rig.api.set_reachable(false);

    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0, gpu-1", "unprepare one: gpu-0, gpu-1 (Unprepare)"]);
    let held = driver.last_held();
    assert_eq!((held.claim.namespace.as_str(), held.claim.name.as_str()), ("default", "one"));
    assert_eq!((held.claim.uid.as_str(), held.reason), (claim.uid.as_str(), UnprepareReason::Unprepare));
    let result = &held.devices[1].result;
    assert_eq!((result.request(), result.pool().as_str(), result.device().as_str()), ("gpu", NODE, "gpu-1"));
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn three_known_claims_and_an_unknown_one_are_four_successes() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let known: Vec<_> = (0..3).map(|i| rig.claim(&format!("c{i}"), &[device(&format!("gpu-{i}"))])).collect();
    let unknown = ClaimRef::new("default", "never-seen", "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a");
    let mut claims: Vec<&ClaimRef> = known.iter().collect();
    assert!(rig.prepare(&claims).await.values().all(Result::is_ok));
    claims.push(&unknown);
    let answer = rig.unprepare(&claims).await;
    assert!(answer.len() == 4 && answer.values().all(Result::is_ok), "{answer:?}");
    assert_eq!(driver.log().iter().filter(|call| *call == "unknown never-seen").count(), 1);
    assert_eq!(driver.log().iter().filter(|call| call.starts_with("unprepare")).count(), 3);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn unprepare_of_an_unknown_claim_can_fail_and_be_tried_again() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.fail_unknown(Some("the agent does not answer"));
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    assert_eq!(rig.unprepare_one(&claim).await, Err("the agent does not answer".to_owned()));
    driver.fail_unknown(None);
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.log(), ["unknown one", "unknown one"]);
}

#[tokio::test]
async fn a_second_unprepare_is_one_of_an_unknown_claim() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Unprepare)", "unknown one"]);
}

#[tokio::test]
async fn a_driver_error_keeps_the_claim_held_and_the_next_try_works() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    rig.prepare_one(&one).await.unwrap();
    driver.fail_unprepare(Some("the GPU is busy"));
    assert_eq!(rig.unprepare_one(&one).await, Err("the GPU is busy".to_owned()));
    let error = rig.prepare_one(&two).await.unwrap_err();
    assert!(error.contains("default/one"), "{error}");

    driver.fail_unprepare(None);
    rig.unprepare_one(&one).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note("prepared one".into())));
    rig.prepare_one(&two).await.unwrap();
}

#[tokio::test]
async fn an_unprepare_that_failed_is_finished_before_the_claim_is_prepared_anew() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    driver.fail_unprepare(Some("the GPU is busy"));
    rig.unprepare_one(&claim).await.unwrap_err();
    let error = rig.prepare_one(&claim).await.unwrap_err();
    assert!(error.contains("the GPU is busy"), "{error}");

    // Also by another process.
    soon("shut down", handle.shutdown()).await.unwrap();
    driver.fail_unprepare(None);
    let _handle = rig.start(&driver).await;
    rig.prepare_one(&claim).await.unwrap();
    let unprepare = "unprepare one: gpu-0 (Unprepare)";
    assert_eq!(driver.log(), ["prepare one: gpu-0", unprepare, unprepare, unprepare, "prepare one: gpu-0"]);
    assert_eq!(rig.files(), rig.files_of(&[&claim]));
}

#[tokio::test]
async fn the_final_state_takes_the_place_of_the_saved_one_and_outlives_a_restart() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let text = "final \"quoted\" \u{7f} ü 👍";
    driver.on_prepare(move |claim, cx| {
        Box::pin(async move {
            cx.save(&Note("saved".into())).await?;
            let devices = claim.devices().iter();
            let prepared = Prepared::new(Note(text.into()));
            Ok(devices.fold(prepared, |prepared, device| {
                prepared.device(device, ContainerEdits::new().env("A", "b"))
            }))
        })
    });
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note(text.into())));
}

#[tokio::test]
async fn a_panic_in_unprepare_is_an_error_of_that_claim() {
    struct Panics;
    impl DriverPlugin for Panics {
        type State = Note;
        async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<Note>) -> Answer {
            Ok(usual(claim))
        }
        async fn unprepare(&self, claim: &HeldClaim<Note>) -> Result<(), PluginError> {
            assert_ne!(claim.claim.name, "one", "not this one");
            Ok(())
        }
    }
    let rig = Rig::new();
    let _handle = rig.options().start(Panics).await.unwrap();
    rig.kubelet.wait_registered(DRIVER, SOON).await.unwrap();
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    assert!(rig.prepare(&[&one, &two]).await.values().all(Result::is_ok));
    let answer = rig.unprepare(&[&one, &two]).await;
    let error = answer[&one.uid].clone().unwrap_err();
    assert!(error.contains("panicked in unprepare") && error.contains("not this one"), "{error}");
    assert!(answer[&two.uid].is_ok());
}
