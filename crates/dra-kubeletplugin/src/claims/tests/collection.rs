//! When claims are collected that the kubelet does not ask for.

use std::{
    fs,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::json;
use tokio::sync::watch;

use super::rig::{Driver, Rig, Start, prepare, start_only};
use crate::{mutex::locked, registration::Registration};

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_collected_only_after_ten_minutes_with_the_kubelet_there() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    prepare(&claims, &one).await.unwrap();
    let (registration, seen) = watch::channel(Registration::Registered { epoch: 1 });
    tokio::spawn(Arc::clone(&claims).collect_orphans(seen));
    tokio::time::sleep(minutes(5)).await;
    // The kubelet is stopped; meanwhile the pod is deleted by force, its containers go on.
    registration.send_replace(Registration::Lost);
    rig.delete(&one);
    tokio::time::sleep(minutes(15)).await;
    registration.send_replace(Registration::Registered { epoch: 2 });
    tokio::time::sleep(minutes(9)).await;
    assert_eq!(driver.log(), ["prepare one"]);
    tokio::time::sleep(minutes(21)).await;
    assert_eq!(driver.log(), ["prepare one", "unprepare one Orphan"]);
}

/// The claim exists, and the scheduler has given it to another node, or taken it back.
#[tokio::test(start_paused = true)]
async fn a_claim_that_has_none_of_its_devices_any_more_is_collected_with_the_same_patience() {
    for devices in [&[][..], &["gpu-1"], &["gpu-0"]] {
        let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
        let claims = rig.start(&driver, Start::default()).await;
        let one = rig.claim("one", &["gpu-0"]);
        prepare(&claims, &one).await.unwrap();
        let (_registration, seen) = watch::channel(Registration::Registered { epoch: 1 });
        tokio::spawn(Arc::clone(&claims).collect_orphans(seen));
        rig.claim("one", devices);
        tokio::time::sleep(minutes(9)).await;
        assert_eq!(driver.log(), ["prepare one"]);
        tokio::time::sleep(minutes(12)).await;
        let collected = driver.log().contains(&"unprepare one Orphan".to_owned());
        assert_eq!(collected, devices != ["gpu-0"], "{devices:?}");
    }
}

/// Containers that outlive their claim object, and an API server that was restored from an empty store.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_collected_while_it_is_in_use_or_the_api_server_does_not_know_the_node() {
    for used in [true, false] {
        let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
        let claims = rig.start(&driver, Start::default()).await;
        let one = rig.claim("one", &["gpu-0"]);
        prepare(&claims, &one).await.unwrap();
        let (_registration, seen) = watch::channel(Registration::Registered { epoch: 1 });
        tokio::spawn(Arc::clone(&claims).collect_orphans(seen));
        driver.in_use.store(used, Ordering::SeqCst);
        rig.api_knows_no_node.store(!used, Ordering::SeqCst);
        rig.delete(&one);
        tokio::time::sleep(minutes(60)).await;
        assert_eq!(driver.log(), ["prepare one"]);
        driver.in_use.store(false, Ordering::SeqCst);
        rig.api_knows_no_node.store(false, Ordering::SeqCst);
        tokio::time::sleep(minutes(21)).await;
        assert_eq!(driver.log(), ["prepare one", "unprepare one Orphan"]);
    }
}

/// Between the look at the API server and the claim's lock another instance has prepared the claim with other devices.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_prepared_with_other_devices_meanwhile_is_not_collected() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    start_only(&driver, &claims, &one).await;
    let before = driver.log();
    rig.delete(&one);
    let other = rig.rewrite(&one.uid, |record| {
        let device = json!({"request": "gpu", "pool": "node-1", "device": "gpu-1"});
        record.allocation.results = vec![serde_json::from_value(device).unwrap()];
    });
    *locked(&rig.hooks.after_load) = Some((one.uid.to_string(), Box::new(other)));
    claims.collect_round().await;
    assert!(locked(&rig.hooks.after_load).is_none());
    assert_eq!(driver.log(), before);
    claims.collect_round().await;
    assert_eq!(driver.log().len(), before.len() + 1, "the next round sees what there is now");
}

/// Another instance removed the record as this one had just read it.
#[tokio::test(start_paused = true)]
async fn devices_that_only_memory_holds_are_free_for_a_claim_that_wants_them() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("one", &["gpu-0"])).await.unwrap();
    fs::remove_file(rig.record("one")).unwrap();
    prepare(&claims, &rig.claim("two", &["gpu-0"])).await.unwrap();
    assert_eq!(claims.counts().prepared, 1);
}

/// The roll-back of its prepare failed, and the kubelet will not ask for it again.
#[tokio::test(start_paused = true)]
async fn the_holder_of_a_wanted_device_that_is_gone_and_never_was_prepared_is_collected_at_once() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let one = rig.claim("one", &["gpu-0"]);
    start_only(&driver, &claims, &one).await;
    driver.fail_no_more();
    let two = rig.claim("two", &["gpu-0"]);
    prepare(&claims, &two).await.unwrap_err();
    rig.delete(&one);
    prepare(&claims, &two).await.unwrap();
    assert_eq!(driver.log()[2..], ["rollback one Orphan", "prepare two"]);
}
