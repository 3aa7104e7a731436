//! What a start does about what was left, one item at a time.

use std::{
    fs,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::rig::{Driver, Rig, Start, prepare, soon};
use crate::mutex::locked;

#[tokio::test(start_paused = true)]
async fn a_hung_undo_of_an_earlier_boot_holds_up_prepares_for_30_s_and_its_device_for_good() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("one", &["gpu-0"])).await.unwrap();
    drop(claims);
    let gate = driver.hold_up("unprepare one Reboot");
    let claims = rig.open(&driver, Start { boot: "boot-2", max_parallel: 1, ..Start::default() }).await;
    tokio::spawn(Arc::clone(&claims).recover());
    let (other, begun) = (rig.claim("other", &["gpu-1"]), Instant::now());
    let in_10_s = claims.prepare(other.clone(), Instant::now() + Duration::from_secs(10));
    assert_eq!(in_10_s.await.unwrap_err().to_string(), "claims of the boot before are still being undone");
    prepare(&claims, &other).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40));
    let error = prepare(&claims, &rig.claim("two", &["gpu-0"])).await.unwrap_err().to_string();
    assert!(error.contains("device node-1/gpu-0"), "{error}");
    assert!(locked(&rig.told).iter().any(|told| told.contains("uid-one") && told.contains("stay held")));
    gate.add_permits(1);
    prepare(&claims, &rig.claim("two", &["gpu-0"])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_listing_of_an_earlier_boot_that_fails_is_tried_again() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("one", &["gpu-0"])).await.unwrap();
    drop(claims);
    let claims = rig.open(&driver, Start { boot: "boot-2", ..Start::default() }).await;
    rig.hooks.failing_lists.store(2, Ordering::SeqCst);
    claims.recover().await;
    assert_eq!(driver.log(), ["prepare one", "unprepare one Reboot"]);
    let told = locked(&rig.told).clone();
    assert_eq!(told.len(), 1, "once, though it was tried twice: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn files_of_one_claim_that_cannot_be_restored_keep_no_other_from_its_own() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    for name in ["a", "b", "c"] {
        prepare(&claims, &rig.claim(name, &[&format!("gpu-{name}")])).await.unwrap();
    }
    drop(claims);
    for name in ["a", "b", "c"] {
        fs::remove_file(rig.cdi_file(name)).unwrap();
    }
    fs::create_dir(rig.cdi_file("a")).unwrap();
    let claims = rig.open(&driver, Start::default()).await;
    let recovery = tokio::spawn(Arc::clone(&claims).recover());
    // A prepare waits for the recovery.
    prepare(&claims, &rig.claim("d", &["gpu-d"])).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(rig.cdi_file("b").is_file() && rig.cdi_file("c").is_file());
    let told = locked(&rig.told).clone();
    assert!(told.len() == 1 && told[0].contains("uid-a"), "{told:?}");
    fs::remove_dir(rig.cdi_file("a")).unwrap();
    recovery.await.unwrap();
    assert!(rig.cdi_file("a").is_file());
}

/// A bad sector under the record of one claim; here a folder, and a FIFO without a writer.
#[tokio::test]
async fn one_record_that_cannot_be_read_stops_neither_the_start_nor_other_claims() {
    for fifo in [false, true] {
        let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
        let pods = |pod| Start { pod: Some(pod), ..Start::default() };
        let claims = rig.start(&driver, pods("a")).await;
        let named = ["one", "two", "three"].map(|name| rig.claim(name, &[&format!("gpu-{name}")]));
        for claim in &named {
            prepare(&claims, claim).await.unwrap();
        }
        fs::remove_file(rig.record("one")).unwrap();
        if fifo {
            nix::unistd::mkfifo(&rig.record("one"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        } else {
            fs::create_dir(rig.record("one")).unwrap();
        }
        // Beside another instance the records are read again for each claim.
        let beside = rig.start(&Arc::default(), pods("b")).await;
        beside.unprepare(named[1].clone(), soon()).await.unwrap();
        drop((claims, beside));
        let claims = rig.start(&driver, pods("c")).await;
        claims.unprepare(named[2].clone(), soon()).await.unwrap();
        assert_eq!(claims.counts().damaged, 1);
        let damaged = crate::claims::damaged_records(&rig.data()).unwrap();
        assert_eq!(damaged.len(), 1, "what `state repair` puts aside");
        claims.unprepare(named[0].clone(), soon()).await.unwrap();
        assert_eq!(claims.counts().damaged, 0);
        prepare(&claims, &rig.claim("four", &["gpu-one"])).await.unwrap();
    }
}

/// A FIFO among the records of an earlier boot.
#[tokio::test]
async fn what_is_no_record_of_an_earlier_boot_is_removed() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    drop(rig.start(&driver, Start::default()).await);
    nix::unistd::mkfifo(&rig.record("one"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    rig.start(&driver, Start { boot: "boot-2", ..Start::default() }).await;
    assert!(!rig.record("one").exists() && driver.log().is_empty());
}
