//! Claims that are prepared, and not as they were prepared any more.

use std::fs;

use dra_kubeletplugin::{ContainerEdits, Prepared};

use crate::support::{Note, Rig, TestDriver, device, fail};

/// From now on devices are given otherwise.
fn prepare_otherwise(driver: &TestDriver) {
    driver.on_prepare(|claim, _| {
        let prepared = Prepared::new(Note("otherwise".to_owned()));
        let edits = || ContainerEdits::new().env("DEVICE", "another");
        let prepared = claim.devices().iter().fold(prepared, |all, device| all.device(device, edits()));
        Box::pin(async { Ok(prepared) })
    });
}

#[tokio::test]
async fn a_claim_that_is_not_current_is_prepared_over_and_its_cdi_file_is_another() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    let first = rig.prepare_one(&claim).await.unwrap();
    let before = fs::read_to_string(rig.cdi_file(&claim)).unwrap();

    prepare_otherwise(&driver);
    assert_eq!(rig.prepare_one(&claim).await.unwrap(), first);
    assert_eq!(fs::read_to_string(rig.cdi_file(&claim)).unwrap(), before, "it was current");
    driver.not_current(Some(Ok(())));
    assert_eq!(rig.prepare_one(&claim).await.unwrap(), first);
    let after = fs::read_to_string(rig.cdi_file(&claim)).unwrap();
    assert!(after.contains("DEVICE=another") && !before.contains("DEVICE=another"), "{after}");
    driver.not_current(None);

    // The device is held as before, and given back once.
    let other = rig.claim("other", &[device("gpu-0")]);
    rig.prepare_one(&other).await.unwrap_err();
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note("otherwise".to_owned())));
    let calls = driver.log();
    let expected = [
        "prepare one: gpu-0",
        "not current one: Some(Note(\"prepared one\"))",
        "prepare one: gpu-0",
        "unprepare one: gpu-0 (Unprepare)",
    ];
    assert_eq!(calls, expected);
    assert_eq!(rig.files(), rig.files_of(&[]));
}

#[tokio::test]
async fn what_cannot_be_prepared_over_or_told_stays_as_it_was() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let file = || fs::read_to_string(rig.cdi_file(&claim)).unwrap();
    let before = file();

    driver.on_prepare(|_, _| Box::pin(async { fail("the GPU is gone") }));
    driver.not_current(Some(Ok(())));
    let error = rig.prepare_one(&claim).await.unwrap_err();
    assert!(error.contains("the GPU is gone"), "{error}");
    driver.not_current(Some(Err("the GPU is another one")));
    let error = rig.prepare_one(&claim).await.unwrap_err();
    assert!(error.contains("the GPU is another one"), "{error}");
    assert_eq!(file(), before);
    driver.not_current(None);
    rig.prepare_one(&claim).await.unwrap();
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(driver.last_held().state, Some(Note("prepared one".to_owned())));
}
