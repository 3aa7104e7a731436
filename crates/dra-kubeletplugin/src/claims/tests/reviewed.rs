//! What a review found: sequences that gave a device away twice, or held up claims that had nothing to do with each other.

use std::{
    fs,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::Instant};

use super::rig::{Driver, Rig, Start, adopted, gpu, prepare, soon};
use crate::{
    claims::{keyed::Keyed, locks::Locks},
    mutex::locked,
    registration::Registration,
};

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The record of an adopted claim is written, only the sync of its folder fails. The retry finds the record and tells
/// memory nothing: its device is given away.
#[tokio::test(start_paused = true)]
async fn adopted_record_whose_sync_failed_holds_its_device() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0"))];
    let once = Mutex::new(true);
    rig.fail_syncs(move |_| std::mem::take(&mut *locked(&once)));
    let claims = rig.start(&driver, Start::default()).await;
    assert!(rig.record("one").exists());
    let two = prepare(&claims, &rig.claim("two", &["gpu-0"])).await;
    assert!(two.is_err(), "gpu-0 is given to two claims: {:?}", driver.log());
}

/// An undo of the boot before fails, the other program's checkpoint still names the claim: it was adopted beside
/// its older record, prepared and running; a minute later the older record was undone under it.
#[tokio::test(start_paused = true)]
async fn older_record_is_not_undone_under_a_claim_that_runs_in_this_boot() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    drop(claims);
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0"))];
    driver.fail("unprepare one");
    let claims = rig.open(&driver, Start { boot: "boot-2", ..Start::default() }).await;
    tokio::spawn(Arc::clone(&claims).recover());
    prepare(&claims, &one).await.unwrap_err();
    driver.fail_no_more();
    tokio::time::sleep(secs(120)).await;
    prepare(&claims, &one).await.unwrap();
    let before = driver.log();
    tokio::time::sleep(secs(300)).await;
    prepare(&claims, &rig.claim("two", &["gpu-0"])).await.unwrap_err();
    assert_eq!(driver.log(), before);
    assert!(rig.cdi_file("one").exists());
}

/// A hung undo of the boot before holds its claim's lock; the checkpoint of the other program names that claim, so
/// `adopt_all` waits for the lock, fails, and no prepare of any claim is served for as long as the undo hangs.
#[tokio::test(start_paused = true)]
async fn a_hung_undo_of_a_claim_that_is_to_be_adopted_holds_up_no_other_claim() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("one", &["gpu-0"])).await.unwrap();
    drop(claims);
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0"))];
    let _gate = driver.hold_up("unprepare one");
    let claims = rig.open(&driver, Start { boot: "boot-2", ..Start::default() }).await;
    tokio::spawn(Arc::clone(&claims).recover());
    tokio::time::sleep(secs(600)).await;
    prepare(&claims, &rig.claim("other", &["gpu-1"])).await.unwrap();
}

/// The clock of a claim that was gone goes on while it is unprepared, allocated and prepared again.
#[tokio::test(start_paused = true)]
async fn the_clock_of_a_claim_begins_again_with_an_unprepare() {
    clock(true).await;
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_claim_begins_again_with_a_prepare() {
    clock(false).await;
}

async fn clock(unprepares: bool) {
    {
        let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
        let claims = rig.start(&driver, Start::default()).await;
        let one = rig.claim("one", &["gpu-0"]);
        prepare(&claims, &one).await.unwrap();
        rig.claim("one", &[]);
        let (_registration, seen) = watch::channel(Registration::Registered { epoch: 1 });
        tokio::spawn(Arc::clone(&claims).collect_orphans(seen));
        tokio::time::sleep(secs(60)).await;
        if unprepares {
            claims.unprepare(one.clone(), soon()).await.unwrap();
        }
        rig.claim("one", &["gpu-0"]);
        prepare(&claims, &one).await.unwrap();
        tokio::time::sleep(secs(510)).await;
        // Pod and claim are deleted by force; the container has 30 s of grace.
        rig.delete(&one);
        tokio::time::sleep(secs(60)).await;
        let collected = driver.log().iter().any(|line| line == "unprepare one Orphan");
        assert!(!collected, "gone for 30 s only (unprepares: {unprepares}): {:?}", driver.log());
    }
}

/// `instances.lock` is removed; a second instance makes a new one. The first still thinks that it is alone.
#[tokio::test]
async fn an_instance_whose_lock_file_was_replaced_does_not_think_it_is_alone() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let pods = |pod| Start { pod: Some(pod), ..Start::default() };
    let old = rig.start(&driver, pods("old")).await;
    fs::remove_file(rig.data().join("instances.lock")).unwrap();
    let new = rig.start(&driver, pods("new")).await;
    prepare(&new, &rig.claim("one", &["gpu-0"])).await.unwrap();
    let two = prepare(&old, &rig.claim("two", &["gpu-0"])).await;
    assert!(two.is_err(), "gpu-0 is given to two claims");
}

/// A prepare waits for the admission lock with a place in its hands.
#[tokio::test(start_paused = true)]
async fn nothing_waits_for_the_admission_lock_with_a_place() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start { max_parallel: 1, ..Start::default() }).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    // Another instance reads records from a slow disk.
    let other = Locks::in_folder(&rig.data());
    let _admission = other.admission(soon()).await.unwrap();
    let (two, begun) = (rig.claim("two", &["gpu-1"]), Instant::now());
    let waiting = tokio::spawn({
        let claims = Arc::clone(&claims);
        async move { prepare(&claims, &two).await }
    });
    tokio::time::sleep(secs(1)).await;
    // Prepared already: it needs no admission, only a moment of the driver's time.
    let again = prepare(&claims, &one).await;
    assert!(again.is_ok() && begun.elapsed() < secs(5), "{again:?} after {:?}", begun.elapsed());
    waiting.abort();
}

/// An unprepare needs no API server. Prepares that queue for a place ask the API server again with the place.
#[tokio::test(start_paused = true)]
async fn nothing_waits_for_the_api_server_with_a_place() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start { max_parallel: 1, ..Start::default() }).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    let gate = driver.hold_up("prepare busy");
    for name in ["busy", "q1", "q2", "q3", "q4"] {
        let (claim, claims) = (rig.claim(name, &[&format!("gpu-{name}")]), Arc::clone(&claims));
        tokio::spawn(async move { prepare(&claims, &claim).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    driver.called("prepare busy").await;
    tokio::time::sleep(secs(4)).await;
    rig.api_hangs.store(true, Ordering::SeqCst);
    gate.add_permits(1);
    let begun = Instant::now();
    let done = claims.unprepare(one, soon()).await;
    println!("{:?} after {:?}", driver.log(), begun.elapsed());
    assert!(done.is_ok() && begun.elapsed() < secs(7), "{done:?} after {:?}", begun.elapsed());
}

/// Unprepares of recorded claims go on while `adopt` hangs: also with few places.
#[tokio::test(start_paused = true)]
async fn a_hung_adopt_keeps_no_recorded_claim_from_its_unprepare_with_one_place() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let (one, unknown) = (rig.claim("one", &["gpu-0"]), rig.claim("unknown", &["gpu-1"]));
    prepare(&claims, &one).await.unwrap();
    drop(claims);
    let _gate = driver.hold_up("adopt");
    let claims = rig.open(&driver, Start { max_parallel: 1, ..Start::default() }).await;
    tokio::spawn(Arc::clone(&claims).recover());
    tokio::time::sleep(secs(1)).await;
    let other = tokio::spawn({
        let claims = Arc::clone(&claims);
        async move { claims.unprepare(unknown, soon()).await }
    });
    tokio::time::sleep(secs(1)).await;
    claims.unprepare(one, soon()).await.unwrap();
    other.abort();
}

/// What is known after a prepare over an adopted claim is known too if its files were written by the next try.
#[tokio::test(start_paused = true)]
async fn a_share_is_known_after_a_prepare_over_whose_files_failed_first() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    *locked(&driver.checkpoint) = vec![adopted("one", gpu("gpu-0"))];
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0/share-1"]);
    fs::create_dir(rig.cdi_file("one")).unwrap();
    prepare(&claims, &one).await.unwrap_err();
    fs::remove_dir(rig.cdi_file("one")).unwrap();
    prepare(&claims, &one).await.unwrap();
    prepare(&claims, &rig.claim("other", &["gpu-0/share-2"])).await.unwrap();
}

/// An error of the background is told once.
#[tokio::test(start_paused = true)]
async fn a_collection_that_fails_again_and_again_is_told_once() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    driver.fail("unprepare one");
    claims.unprepare(one.clone(), soon()).await.unwrap_err();
    rig.delete(&one);
    for _ in 0..3 {
        claims.collect_round().await;
    }
    let told = locked(&rig.told).clone();
    assert_eq!(told.len(), 1, "{told:?}");
}

/// A leftover of the records that cannot be removed keeps those of the CDI folder from being removed, in each round.
#[tokio::test(start_paused = true)]
async fn one_leftover_that_stays_keeps_no_other() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let stuck = rig.data().join("claims/boot-1/uid-x.tmp");
    fs::create_dir_all(stuck.join("inner")).unwrap();
    let file = rig.cdi_file("x");
    let temp =
        file.with_file_name(format!(".{}.00000000000000ab.tmp", file.file_name().unwrap().to_str().unwrap()));
    fs::write(&temp, "half").unwrap();
    let old = SystemTime::now() - secs(3600);
    for path in [&stuck, &temp] {
        fs::File::open(path).unwrap().set_modified(old).unwrap();
    }
    let (_registration, seen) = watch::channel(Registration::Registered { epoch: 1 });
    tokio::spawn(Arc::clone(&claims).collect_orphans(seen));
    tokio::time::sleep(secs(1300)).await;
    assert!(!temp.exists(), "a temporary CDI file of an hour ago is still there");
}

/// Two interests that end at once leave an entry for good.
#[test]
fn the_last_interests_may_end_at_once() {
    let table = Keyed::<u32, Mutex<u8>>::default();
    for key in 0..20_000 {
        let (one, two) = (table.get(&key), table.get(&key));
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for interest in [one, two] {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    drop(interest);
                });
            }
        });
    }
    assert_eq!(table.len(), 0);
}

/// Hung undos of the boot before, one place: each keeps it for 30 s, so prepares wait for 30 s more for each.
#[tokio::test(start_paused = true)]
async fn several_hung_undos_hold_up_prepares_no_longer_than_one() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    for name in ["one", "two", "three"] {
        prepare(&claims, &rig.claim(name, &[&format!("gpu-{name}")])).await.unwrap();
    }
    drop(claims);
    let _gate = driver.hold_up("unprepare");
    let claims = rig.open(&driver, Start { boot: "boot-2", max_parallel: 1, ..Start::default() }).await;
    tokio::spawn(Arc::clone(&claims).recover());
    let (other, begun) = (rig.claim("other", &["gpu-0"]), Instant::now());
    while prepare(&claims, &other).await.is_err() {}
    assert!(begun.elapsed() < secs(40), "{:?}", begun.elapsed());
}

/// An unprepare comes while a prepare waits for a place to ask `is_current`.
#[tokio::test(start_paused = true)]
async fn an_unprepare_keeps_a_prepare_that_waits_for_a_question_from_the_driver() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start { max_parallel: 1, ..Start::default() }).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    *locked(&driver.current) = false;
    let gate = driver.hold_up("prepare busy");
    let busy = tokio::spawn({
        let (claims, claim) = (Arc::clone(&claims), rig.claim("busy", &["gpu-1"]));
        async move { prepare(&claims, &claim).await }
    });
    driver.called("prepare busy").await;
    let again = tokio::spawn({
        let (claims, claim) = (Arc::clone(&claims), one.clone());
        async move { prepare(&claims, &claim).await }
    });
    tokio::time::sleep(secs(1)).await;
    let unprepare = tokio::spawn({
        let claims = Arc::clone(&claims);
        async move { claims.unprepare(one, soon()).await }
    });
    tokio::time::sleep(secs(1)).await;
    gate.add_permits(1);
    busy.await.unwrap().unwrap();
    unprepare.await.unwrap().unwrap();
    let again = again.await.unwrap();
    assert!(
        again.is_err() && !driver.log().contains(&"is_current one".to_owned()),
        "{again:?} {:?}",
        driver.log()
    );
}
