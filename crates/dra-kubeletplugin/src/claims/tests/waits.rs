//! Who waits for what, for how long, and what the kubelet learns.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::rig::{Driver, Rig, Start, prepare, soon};

/// One hung share of a GPU, as many that wait for it as there are places, and a claim on another device.
#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_a_device_takes_no_place_in_the_driver() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start { max_parallel: 4, ..Start::default() }).await;
    let _gate = driver.hold_up("prepare share");
    let mut waiting = Vec::new();
    for number in 0..8 {
        let (name, device) = (format!("share-{number}"), format!("gpu-0/share-{number}"));
        let (claim, claims) = (rig.claim(&name, &[&device]), Arc::clone(&claims));
        waiting.push(tokio::spawn(async move { prepare(&claims, &claim).await }));
    }
    driver.called("prepare share").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    prepare(&claims, &rig.claim("other", &["gpu-1"])).await.unwrap();
    for waiting in waiting {
        let error = waiting.await.unwrap().unwrap_err().to_string();
        let known = error.contains("still at work on device node-1/gpu-0 for claim ns/share-")
            || error.contains("prepare is still running since");
        assert!(known, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_the_background_count_as_others_do() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let named = ["one", "two", "three"].map(|name| rig.claim(name, &[&format!("gpu-{name}")]));
    for claim in &named {
        prepare(&claims, claim).await.unwrap();
    }
    drop(claims);
    driver.most_running.store(0, Ordering::SeqCst);
    let gate = driver.hold_up("unprepare");
    let claims = rig.open(&driver, Start { boot: "boot-2", max_parallel: 1, ..Start::default() }).await;
    let recovery = tokio::spawn(Arc::clone(&claims).recover());
    driver.called("unprepare").await;
    let unprepare = tokio::spawn({
        let (claims, claim) = (Arc::clone(&claims), named[2].clone());
        async move { claims.unprepare(claim, soon()).await }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    gate.add_permits(10);
    recovery.await.unwrap();
    unprepare.await.unwrap().unwrap();
    assert_eq!(driver.most_running.load(Ordering::SeqCst), 1, "{:?}", driver.log());
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_before_the_kubelet_gives_up_and_its_work_goes_on() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let (one, begun) = (rig.claim("one", &["gpu-0"]), Instant::now());
    let gate = driver.hold_up("prepare one");
    let error = prepare(&claims, &one).await.unwrap_err().to_string();
    assert_eq!(error, "prepare is still running since 41 s");
    assert!(begun.elapsed() < Duration::from_secs(45));
    gate.add_permits(1);
    prepare(&claims, &one).await.unwrap();
    let gate = driver.hold_up("unprepare one");
    let error = claims.unprepare(one.clone(), soon()).await.unwrap_err().to_string();
    assert_eq!(error, "unprepare is still running since 41 s");
    gate.add_permits(1);
    claims.unprepare(one, soon()).await.unwrap();
    assert_eq!(driver.log(), ["prepare one", "unprepare one Unprepare", "unknown one"]);
}

#[tokio::test(start_paused = true)]
async fn an_unprepare_keeps_a_prepare_that_waits_for_devices_from_the_driver() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let (one, two) = (rig.claim("one", &["gpu-0/share-1"]), rig.claim("two", &["gpu-0/share-2"]));
    let gate = driver.hold_up("prepare one");
    let spawn = |claim| {
        let claims = Arc::clone(&claims);
        tokio::spawn(async move { prepare(&claims, &claim).await })
    };
    let first = spawn(one);
    driver.called("prepare one").await;
    let second = spawn(two.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    claims.unprepare(two, soon()).await.unwrap();
    gate.add_permits(1);
    first.await.unwrap().unwrap();
    let error = second.await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "given up: the claim is to be unprepared");
    assert_eq!(driver.log(), ["prepare one", "unknown two"]);
}

/// The claim is given another device while it waits for a place.
#[tokio::test(start_paused = true)]
async fn a_claim_that_changes_while_it_waits_is_judged_again() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start { max_parallel: 1, ..Start::default() }).await;
    let (one, two) = (rig.claim("one", &["gpu-0"]), rig.claim("two", &["gpu-1"]));
    let gate = driver.hold_up("prepare one");
    let first = tokio::spawn({
        let claims = Arc::clone(&claims);
        async move { prepare(&claims, &one).await }
    });
    driver.called("prepare one").await;
    let second = tokio::spawn({
        let (claims, two) = (Arc::clone(&claims), two.clone());
        async move { prepare(&claims, &two).await }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.claim("two", &["gpu-2"]);
    gate.add_permits(1);
    first.await.unwrap().unwrap();
    assert_eq!(second.await.unwrap().unwrap()[0].device, "gpu-2");
    assert_eq!(driver.log(), ["prepare one", "prepare two"]);
}
