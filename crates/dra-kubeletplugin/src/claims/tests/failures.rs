//! What the records and memory say after a step that failed.

use std::{fs, sync::Arc, time::Duration};

use serde_json::json;

use super::rig::{Driver, Rig, Start, adopted, eio, gpu, prepare, soon, start_only};
use crate::{
    claim::Allocation,
    claims::{journal::Journal, record::Record},
    mutex::locked,
};

#[tokio::test(start_paused = true)]
async fn memory_holds_what_the_disk_has_after_a_write_or_a_removal_that_failed() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    *locked(&rig.hooks.before_write) = Some(Box::new(|_| Some(eio())));
    prepare(&claims, &one).await.unwrap_err();
    assert_eq!(claims.counts().started, 0, "nothing was written");
    rig.fail_syncs(|_| true);
    prepare(&claims, &one).await.unwrap_err();
    assert_eq!(claims.counts().started, 1, "the record is there");
    *locked(&rig.hooks.before_write) = None;
    prepare(&claims, &one).await.unwrap();

    *locked(&rig.hooks.fail_after_remove) = true;
    claims.unprepare(one.clone(), soon()).await.unwrap_err();
    let counts = claims.counts();
    assert_eq!((counts.prepared, counts.unpreparing), (0, 0), "the record is gone");
}

/// A record that says prepared, though not durably, must not be answered from once the driver was asked to undo it.
#[tokio::test(start_paused = true)]
async fn a_roll_back_of_a_record_that_may_say_prepared_marks_it_first() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    rig.fail_syncs(|record| record.completed);
    driver.fail("rollback one");
    driver.fail("unprepare one");
    prepare(&claims, &one).await.unwrap_err();
    *locked(&rig.hooks.before_write) = None;
    driver.fail_no_more();
    prepare(&claims, &one).await.unwrap();
    let prepares = driver.log().iter().filter(|line| *line == "prepare one").count();
    assert_eq!(prepares, 2, "{:?}", driver.log());
}

/// After a reboot nothing of a prepare that died runs any more, however far it came.
#[tokio::test(start_paused = true)]
async fn a_claim_of_an_earlier_boot_that_was_never_prepared_is_unprepared() {
    for by_kubelet in [false, true] {
        let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
        let claims = rig.start(&driver, Start::default()).await;
        let one = rig.claim("one", &["gpu-0"]);
        start_only(&driver, &claims, &one).await;
        drop(claims);
        driver.fail_no_more();
        let claims = rig.open(&driver, Start { boot: "boot-2", ..Start::default() }).await;
        if by_kubelet {
            claims.unprepare(one.clone(), soon()).await.unwrap();
        }
        Arc::clone(&claims).recover().await;
        assert_eq!(driver.log(), ["prepare one", "rollback one Rollback", "unprepare one Reboot"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_claim_that_cannot_be_recorded_keeps_no_other_from_it() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0")), adopted("two", gpu("gpu-1"))];
    let bad = |record: &Record| (record.claim.uid.as_str() == "uid-one").then(eio);
    *locked(&rig.hooks.before_write) = Some(Box::new(bad));
    let claims = rig.open(&driver, Start::default()).await;
    let recovery = tokio::spawn(Arc::clone(&claims).recover());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(rig.record("two").exists() && !rig.record("one").exists());
    claims.unprepare(rig.claim("two", &["gpu-1"]), soon()).await.unwrap();
    *locked(&rig.hooks.before_write) = None;
    recovery.await.unwrap();
    assert!(rig.record("one").exists());
}

#[tokio::test(start_paused = true)]
async fn a_share_is_known_after_a_prepare_over_an_adopted_claim() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0"))];
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("other", &["gpu-0/share-2"])).await.unwrap_err();
    prepare(&claims, &rig.claim("one", &["gpu-0/share-1"])).await.unwrap();
    prepare(&claims, &rig.claim("other", &["gpu-0/share-2"])).await.unwrap();
}

/// A file without a record may be the only trace of a record whose name was lost.
#[tokio::test(start_paused = true)]
async fn files_without_a_record_stay_as_long_as_a_record_cannot_be_read() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    for name in ["one", "two"] {
        prepare(&claims, &rig.claim(name, &[&format!("gpu-{name}")])).await.unwrap();
    }
    drop(claims);
    fs::write(rig.record("one"), "no record").unwrap();
    fs::remove_file(rig.record("two")).unwrap();
    let claims = rig.start(&driver, Start::default()).await;
    assert!(rig.cdi_file("two").exists());
    drop(claims);
    fs::remove_file(rig.record("one")).unwrap();
    rig.start(&driver, Start::default()).await;
    assert!(!rig.cdi_file("two").exists());
}

/// A driver may keep what it saves with, and use it when its prepare is over.
#[tokio::test]
async fn nothing_is_saved_once_a_prepare_is_over() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let journal =
        Journal::new(claims.disk.clone(), Record::started(rig.claim("one", &[]), Allocation::default()));
    let saver = journal.saver();
    saver.save(json!(1)).await.unwrap();
    assert_eq!(journal.close().await.state, Some(json!(1)));
    fs::remove_file(rig.record("one")).unwrap();
    saver.save(json!(2)).await.unwrap_err();
    assert!(!rig.record("one").exists());
}
