//! Taking over a node from a driver program that kept its own books.

use std::fs;

use dra_kubeletplugin::{AdoptedClaim, DeviceRef, ForeignFile, Handle};
use dra_testkit::kubelet::ClaimRef;

use crate::support::{DRIVER, NODE, Note, Rig, TestDriver, device, fail, share, soon};

/// The claim as it stands in the other program's books.
fn in_old_books(claim: &ClaimRef, device: &str) -> AdoptedClaim<Note> {
    let device = DeviceRef::new(NODE.parse().unwrap(), device.parse().unwrap());
    AdoptedClaim::new(claim.uid.parse().unwrap(), [device], Note("of the other program".into()))
}

/// The CDI file that the Go library would have written for it.
fn foreign_file(rig: &Rig, claim: &ClaimRef) -> ForeignFile {
    let name = format!("k8s.{DRIVER}-claim_{}.json", claim.uid);
    fs::create_dir_all(rig.node.cdi()).unwrap();
    fs::write(rig.node.cdi().join(&name), "{}").unwrap();
    name.parse().unwrap()
}

/// A node that another program has left with one claim, which has `gpu-0`, and our driver on it.
async fn taken_over() -> (Rig, TestDriver, ClaimRef, Handle) {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let old = rig.claim("old", &[device("gpu-0")]);
    driver.find_in_old_books(in_old_books(&old, "gpu-0"));
    let handle = rig.start(&driver).await;
    (rig, driver, old, handle)
}

#[tokio::test]
async fn an_adopted_claim_holds_its_device_until_it_is_unprepared() {
    let (rig, driver, old, _handle) = taken_over().await;
    let new = rig.claim("new", &[device("gpu-0")]);
    let error = rig.prepare_one(&new).await.unwrap_err();
    assert!(error.contains(&old.uid), "{error}");

    rig.unprepare_one(&old).await.unwrap();
    assert_eq!(driver.log(), ["unprepare : gpu-0 (Unprepare)"]);
    assert_eq!(driver.last_held().state, Some(Note("of the other program".into())));
    rig.prepare_one(&new).await.unwrap();
}

#[tokio::test]
async fn the_first_prepare_of_an_adopted_claim_completes_it_without_an_unprepare() {
    let (rig, driver, old, handle) = taken_over().await;
    let first = rig.prepare_one(&old).await.unwrap();
    assert_eq!(rig.prepare_one(&old).await.unwrap(), first);
    soon("shut down", handle.shutdown()).await.unwrap();
    let _handle = rig.start(&driver).await;
    assert_eq!(rig.prepare_one(&old).await.unwrap(), first);
    assert_eq!(driver.log(), ["prepare old: gpu-0"], "from then on it is a claim as any other");
    assert_eq!(rig.files(), rig.files_of(&[&old]));

    rig.unprepare_one(&old).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note("prepared old".into())));
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn an_adopted_claim_that_cannot_be_completed_stays_as_it_was() {
    let (rig, driver, old, _handle) = taken_over().await;
    driver.on_prepare(|_, cx| {
        Box::pin(async {
            cx.save(&Note("half-way".into())).await?;
            fail("the GPU is busy")
        })
    });
    let error = rig.prepare_one(&old).await.unwrap_err();
    assert!(error.contains("the GPU is busy"), "{error}");
    let new = rig.claim("new", &[device("gpu-0")]);
    let error = rig.prepare_one(&new).await.unwrap_err();
    assert!(error.contains(&old.uid), "{error}");
    assert_eq!(driver.log(), ["prepare old: gpu-0"], "a container may be using it: nothing is undone");

    driver.prepare_as_usual();
    rig.prepare_one(&old).await.unwrap();
    assert_eq!(rig.files(), rig.files_of(&[&old]));
}

#[tokio::test]
async fn a_claim_that_the_other_program_prepared_after_our_start_is_adopted_when_the_kubelet_asks() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let [old, older] = ["old", "older"].map(|name| rig.claim(name, &[device(&format!("gpu-{name}"))]));
    driver.find_in_old_books(in_old_books(&old, "gpu-old"));
    driver.find_in_old_books(in_old_books(&older, "gpu-older"));
    rig.unprepare_one(&old).await.unwrap();
    rig.prepare_one(&older).await.unwrap();
    assert_eq!(driver.log(), ["unprepare old: gpu-old (Unprepare)", "prepare older: gpu-older"]);
}

#[tokio::test]
async fn an_adopted_claim_with_another_device_by_now_is_unprepared_first() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let old = rig.claim("old", &[device("gpu-1")]);
    driver.find_in_old_books(in_old_books(&old, "gpu-0"));
    let _handle = rig.start(&driver).await;
    rig.prepare_one(&old).await.unwrap();
    assert_eq!(driver.log(), ["unprepare : gpu-0 (Reallocated)", "prepare old: gpu-1"]);
}

#[tokio::test]
async fn adopted_shares_of_one_device_are_completed_one_after_the_other() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let claims = [1, 2].map(|number| rig.claim(&format!("share-{number}"), &[share("gpu-0", number)]));
    for claim in &claims {
        driver.find_in_old_books(in_old_books(claim, "gpu-0"));
    }
    let _handle = rig.start(&driver).await;
    // Whether these are shares the other program's books do not say.
    let third = rig.claim("share-3", &[share("gpu-0", 3)]);
    rig.prepare_one(&third).await.unwrap_err();
    for claim in &claims {
        rig.prepare_one(claim).await.unwrap();
    }
    rig.prepare_one(&third).await.unwrap();
    let whole = rig.claim("whole", &[device("gpu-0")]);
    rig.prepare_one(&whole).await.unwrap_err();
}

#[tokio::test]
async fn a_foreign_cdi_file_goes_with_the_last_claim_that_needs_it() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let claims = [0, 1].map(|i| rig.claim(&format!("old-{i}"), &[device(&format!("gpu-{i}"))]));
    let file = foreign_file(&rig, &claims[0]);
    let path = rig.node.cdi().join(file.as_str());
    for (i, claim) in claims.iter().enumerate() {
        driver.find_in_old_books(in_old_books(claim, &format!("gpu-{i}")).cdi_file(file.clone()));
    }
    let unrelated = rig.node.cdi().join("vendor.json");
    fs::write(&unrelated, "{}").unwrap();
    let handle = rig.start(&driver).await;
    rig.prepare_one(&claims[0]).await.unwrap();
    assert!(path.exists(), "containers may be started again with the devices in it");
    rig.unprepare_one(&claims[0]).await.unwrap();
    assert!(path.exists(), "the other claim needs it");
    soon("shut down", handle.shutdown()).await.unwrap();

    let _handle = rig.start(&driver).await;
    driver.fail_unprepare(Some("not now"));
    rig.unprepare_one(&claims[1]).await.unwrap_err();
    assert!(path.exists(), "the claim is still held");
    driver.fail_unprepare(None);
    rig.unprepare_one(&claims[1]).await.unwrap();
    assert!(!path.exists());
    assert!(unrelated.exists());
}

#[tokio::test]
async fn unprepare_after_a_failed_completion_gets_the_last_saved_state() {
    let (rig, driver, old, _handle) = taken_over().await;
    driver.on_prepare(|_, cx| {
        Box::pin(async {
            cx.save(&Note("taken over".into())).await?;
            panic!("while completing")
        })
    });
    rig.prepare_one(&old).await.unwrap_err();
    rig.unprepare_one(&old).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note("taken over".into())));
    assert_eq!(rig.files(), [""; 0]);
}
