//! Prepares that fail: undone with the state that was saved last, nothing left, the device free.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use dra_kubeletplugin::{AllocatedClaim, ContainerEdits, PrepareContext, Prepared, UnprepareReason};
use futures::future::BoxFuture;

use crate::support::{Answer, Note, Rig, TestDriver, device, fail, usual};

type Work = for<'a> fn(&'a AllocatedClaim, &'a PrepareContext<Note>) -> BoxFuture<'a, Answer>;

/// Lets the first prepare go wrong, looks at the roll-back, and hands the device to another claim. Gives the error.
async fn undone(work: Work, state: Option<&str>) -> String {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(work);
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let error = rig.prepare_one(&claim).await.unwrap_err();
    assert_eq!(driver.log(), ["prepare one: gpu-0", "rollback one: gpu-0 (Rollback)"]);
    let held = driver.last_held();
    assert_eq!(held.state, state.map(|state| Note(state.to_owned())));
    assert_eq!((held.claim.uid.as_str(), held.reason), (claim.uid.as_str(), UnprepareReason::Rollback));
    assert_eq!(rig.files(), [""; 0]);
    driver.prepare_as_usual();
    rig.prepare_one(&rig.claim("two", &[device("gpu-0")])).await.unwrap();
    error
}

#[tokio::test]
async fn a_driver_error_is_undone_and_told_as_it_is() {
    assert_eq!(
        undone(|_, _| Box::pin(async { fail("the GPU fell off the bus") }), None).await,
        "the GPU fell off the bus"
    );
}

#[tokio::test]
async fn the_roll_back_gets_the_state_that_was_saved_last() {
    let work: Work = |_, cx| {
        Box::pin(async {
            cx.save(&Note("step 1".into())).await?;
            cx.save(&Note("step 2".into())).await?;
            fail("step 3")
        })
    };
    assert_eq!(undone(work, Some("step 2")).await, "step 3");
}

#[tokio::test]
async fn a_panic_is_an_error_of_that_claim() {
    let work: Work = |_, cx| {
        Box::pin(async {
            cx.save(&Note("before the panic".into())).await?;
            panic!("index out of bounds of the GPU")
        })
    };
    let error = undone(work, Some("before the panic")).await;
    assert!(
        error.contains("panicked in prepare") && error.contains("index out of bounds of the GPU"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_that_lacks_a_device_is_undone_with_its_final_state() {
    let work: Work = |_, cx| {
        Box::pin(async {
            cx.save(&Note("saved".into())).await?;
            Ok(Prepared::new(Note("final".into())))
        })
    };
    let error = undone(work, Some("final")).await;
    assert!(error.contains("did not answer device node-1/gpu-0"), "{error}");
}

#[tokio::test]
async fn an_answer_with_a_device_twice_is_undone() {
    let work: Work = |claim, _| {
        let edits = ContainerEdits::new().env("A", "b");
        Box::pin(async move { Ok(usual(claim).device(&claim.devices()[0], edits)) })
    };
    let error = undone(work, Some("prepared one")).await;
    assert!(error.contains("node-1/gpu-0") && error.contains("more than once"), "{error}");
}

#[tokio::test]
async fn edits_that_are_no_cdi_are_undone() {
    let work: Work = |claim, _| {
        let edits = ContainerEdits::new().env("NAME=WITH=SIGNS", "b");
        Box::pin(async move { Ok(Prepared::new(Note("n".into())).device(&claim.devices()[0], edits)) })
    };
    let error = undone(work, Some("n")).await;
    assert!(error.contains("NAME=WITH=SIGNS") && error.contains("CDI"), "{error}");
}

#[tokio::test]
async fn an_answer_with_a_device_of_another_claim_is_undone() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let first = std::sync::Mutex::new(None);
    driver.on_prepare(move |claim, _| {
        let mut first = first.lock().unwrap();
        let foreign = first.get_or_insert_with(|| claim.devices()[0].clone()).clone();
        let mut prepared = usual(claim);
        if foreign != claim.devices()[0] {
            prepared = prepared.device(&foreign, ContainerEdits::new().env("A", "b"));
        }
        Box::pin(async move { Ok(prepared) })
    });
    let _handle = rig.start(&driver).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    rig.prepare_one(&one).await.unwrap();
    let error = rig.prepare_one(&two).await.unwrap_err();
    assert!(error.contains("node-1/gpu-0") && error.contains("does not have"), "{error}");
    assert_eq!(driver.log().last().unwrap(), "rollback two: gpu-1 (Rollback)");
    assert_eq!(rig.files(), rig.files_of(&[&one]));
}

#[tokio::test]
async fn a_roll_back_that_fails_keeps_the_device_held_until_the_next_prepare_undoes_it() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|_, cx| {
        Box::pin(async {
            cx.save(&Note("half".into())).await?;
            fail("no power")
        })
    });
    driver.fail_rollback(Some("still no power"));
    let _handle = rig.start(&driver).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    let error = rig.prepare_one(&one).await.unwrap_err();
    assert!(error.contains("no power") && error.contains("still no power"), "{error}");

    driver.prepare_as_usual();
    let error = rig.prepare_one(&two).await.unwrap_err();
    assert!(error.contains("default/one"), "{error}");
    let error = rig.prepare_one(&one).await.unwrap_err();
    assert!(error.contains("still no power"), "{error}");

    driver.fail_rollback(None);
    rig.prepare_one(&one).await.unwrap();
    let rollback = "rollback one: gpu-0 (Rollback)";
    assert_eq!(driver.log(), ["prepare one: gpu-0", rollback, rollback, rollback, "prepare one: gpu-0"]);
    assert_eq!(driver.last_held().state, Some(Note("half".into())));
    assert_eq!(rig.files(), rig.files_of(&[&one]));
}

#[tokio::test]
async fn a_roll_back_that_failed_is_finished_by_unprepare() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|_, _| Box::pin(async { fail("no power") }));
    driver.fail_rollback(Some("still no power"));
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap_err();
    assert!(rig.unprepare_one(&claim).await.unwrap_err().contains("still no power"));
    driver.fail_rollback(None);
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(rig.files(), [""; 0]);
    driver.prepare_as_usual();
    rig.prepare_one(&rig.claim("two", &[device("gpu-0")])).await.unwrap();
}

/// Root may write everywhere, but nobody can make a folder in /proc: with the folder above replaced by a link to it,
/// no CDI file can be written, and there is none to remove.
#[tokio::test]
async fn a_cdi_folder_that_cannot_be_written_is_that_claims_error_and_frees_the_device() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let above = rig.node.root().join("run");
    let cdi = above.join("dra-kubeletplugin-test");
    let _handle = rig.start_with(&driver, rig.options().cdi_root(&cdi)).await;
    fs::remove_dir_all(&above).unwrap();
    symlink(Path::new("/proc"), &above).unwrap();

    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
    let error = rig.prepare_one(&one).await.unwrap_err();
    assert!(error.contains("CDI") && error.contains(cdi.to_str().unwrap()), "{error}");
    assert_eq!(driver.log(), ["prepare one: gpu-0", "rollback one: gpu-0 (Rollback)"]);
    assert_eq!(driver.last_held().state, Some(Note("prepared one".into())));

    fs::remove_file(&above).unwrap();
    rig.prepare_one(&two).await.unwrap();
}

#[tokio::test]
async fn a_folder_in_the_place_of_the_cdi_file_holds_up_that_claim_only() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let (one, two) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-1")]));
    fs::create_dir(rig.cdi_file(&one)).unwrap();
    let answer = rig.prepare(&[&one, &two]).await;
    let error = answer[&one.uid].clone().unwrap_err();
    assert!(error.contains(rig.cdi_file(&one).to_str().unwrap()), "{error}");
    assert!(answer[&two.uid].is_ok());

    fs::remove_dir(rig.cdi_file(&one)).unwrap();
    rig.prepare_one(&one).await.unwrap();
    assert_eq!(rig.files(), rig.files_of(&[&one, &two]));
}
