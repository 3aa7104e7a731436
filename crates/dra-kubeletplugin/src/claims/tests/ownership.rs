//! Locks and writes belong to the work, not to the future that waits for it.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use super::rig::{Driver, Rig, Start, prepare, soon};
use crate::mutex::locked;

/// Makes the write of the state that the driver saves wait until the sender is dropped.
fn hold_up_the_save(rig: &Rig) -> mpsc::Sender<()> {
    let (open, closed) = mpsc::channel::<()>();
    *locked(&rig.hooks.before_write) = Some(Box::new(move |record| {
        if !record.completed && record.state == Some(json!(7)) {
            let _ = closed.recv();
        }
        None
    }));
    open
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_the_driver_drops_comes_before_prepared() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let open = hold_up_the_save(&rig);
    *locked(&driver.save) = Some((Duration::from_millis(50), false));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    let opens_later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(open);
    });
    prepare(&claims, &one).await.unwrap();
    opens_later.await.unwrap();
    // The kubelet is started again and asks again; the container runs.
    prepare(&claims, &one).await.unwrap();
    assert_eq!(driver.log(), ["prepare one"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_the_driver_drops_brings_no_claim_back() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let open = hold_up_the_save(&rig);
    *locked(&driver.save) = Some((Duration::from_millis(50), true));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    let opens_later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(open);
    });
    prepare(&claims, &one).await.unwrap_err();
    opens_later.await.unwrap();
    assert!(!rig.record("one").exists(), "it was rolled back");
}

/// A collection is dropped, as a stop does, while the driver is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_the_background_keeps_its_locks_when_it_is_stopped() {
    let (rig, old) = (Rig::new(), Arc::new(Driver::default()));
    let pods = |pod| Start { pod: Some(pod), ..Start::default() };
    let claims = rig.start(&old, pods("old")).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    old.fail("unprepare one");
    claims.unprepare(one.clone(), soon()).await.unwrap_err();
    old.fail_no_more();
    rig.delete(&one);
    let gate = old.hold_up("unprepare one Orphan");
    let round = tokio::spawn({
        let claims = Arc::clone(&claims);
        async move { claims.collect_round().await }
    });
    old.called("unprepare one Orphan").await;
    round.abort();
    let _ = round.await;

    let new = Arc::new(Driver::default());
    let later = rig.open(&new, pods("new")).await;
    let _recovery = tokio::spawn(Arc::clone(&later).recover());
    let two = rig.claim("two", &["gpu-0"]);
    let in_2_s = Instant::now() + Duration::from_secs(2);
    let error = later.prepare(two.clone(), in_2_s).await.unwrap_err().to_string();
    assert!(error.contains("still at work on device node-1/gpu-0 for claim ns/one"), "{error}");
    assert_eq!(claims.work().len(), 1);
    gate.add_permits(1);
    claims.work().close();
    claims.work().wait().await;
    prepare(&later, &two).await.unwrap();
    assert_eq!(new.log(), ["prepare two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_of_a_recovery_or_a_release_keeps_its_locks_when_it_is_stopped() {
    for release in [false, true] {
        let (rig, old) = (Rig::new(), Arc::new(Driver::default()));
        let claims = rig.start(&old, Start::default()).await;
        let one = rig.claim("one", &["gpu-0"]);
        prepare(&claims, &one).await.unwrap();
        drop(claims);
        let gate = old.hold_up("unprepare one");
        let rebooted = |pod| Start { pod: Some(pod), boot: "boot-2", ..Start::default() };
        let claims = rig.open(&old, rebooted("old")).await;
        let stopped = tokio::spawn({
            let claims = Arc::clone(&claims);
            async move {
                if release {
                    claims.release(&"uid-one".parse().unwrap()).await;
                } else {
                    claims.recover().await;
                }
            }
        });
        old.called("unprepare one").await;
        stopped.abort();
        let _ = stopped.await;

        let new = Arc::new(Driver::default());
        let later = rig.open(&new, rebooted("new")).await;
        let recovery = tokio::spawn(Arc::clone(&later).recover());
        let in_2_s = Instant::now() + Duration::from_secs(2);
        later.prepare(one.clone(), in_2_s).await.unwrap_err();
        assert!(new.log().is_empty(), "{:?}", new.log());
        gate.add_permits(1);
        recovery.await.unwrap();
        prepare(&later, &one).await.unwrap();
        assert_eq!(new.log(), ["prepare one"]);
    }
}

/// An instance that ends its last unprepare as another one reads the records.
#[tokio::test]
async fn what_another_instance_removed_while_the_records_were_read_is_free() {
    let (rig, old_driver, new_driver) = (Rig::new(), Arc::default(), Arc::new(Driver::default()));
    let pods = |pod| Start { pod: Some(pod), ..Start::default() };
    let old = rig.start(&old_driver, pods("old")).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&old, &one).await.unwrap();
    let (record, old) = (rig.record("one"), Mutex::new(Some(old)));
    *locked(&rig.hooks.after_load) = Some((
        "uid-one".to_owned(),
        Box::new(move || {
            std::fs::remove_file(record).unwrap();
            drop(locked(&old).take());
        }),
    ));
    let new = rig.start(&new_driver, pods("new")).await;
    let two = rig.claim("two", &["gpu-0"]);
    prepare(&new, &two).await.unwrap();
}

/// The removal of a record fails in its last step, the sync of the folder: the record is gone, only not durably.
#[tokio::test]
async fn a_device_is_free_once_its_record_is_gone_though_the_sync_failed() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let (one, two) = (rig.claim("one", &["gpu-0"]), rig.claim("two", &["gpu-0"]));
    prepare(&claims, &one).await.unwrap();
    *locked(&rig.hooks.fail_after_remove) = true;
    claims.unprepare(one.clone(), soon()).await.unwrap_err();
    assert_eq!(claims.counts(), crate::claims::ClaimCounts::default());
    *locked(&rig.hooks.fail_after_remove) = false;
    prepare(&claims, &two).await.unwrap();
}

#[tokio::test]
async fn a_failed_write_of_the_record_leaves_the_files_of_a_running_container() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    let before = std::fs::read(rig.cdi_file("one")).unwrap();
    *locked(&driver.current) = false;
    *locked(&rig.hooks.before_write) = Some(Box::new(|_| Some(std::io::ErrorKind::StorageFull.into())));
    prepare(&claims, &one).await.unwrap_err();
    assert_eq!(std::fs::read(rig.cdi_file("one")).unwrap(), before);
    *locked(&rig.hooks.before_write) = None;
    prepare(&claims, &one).await.unwrap();
    assert_ne!(std::fs::read(rig.cdi_file("one")).unwrap(), before);
}
