//! When claims are collected that the kubelet does not ask for.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::rig::{Driver, Rig, Start, prepare};
use crate::registration::Registration;

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
