//! Claims that another program has prepared.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::rig::{Driver, Rig, Start, adopted, gpu, prepare, soon};
use crate::mutex::locked;

#[tokio::test]
async fn an_adopted_claim_holds_its_devices_as_the_driver_says() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    *locked(&driver.checkpoint) = vec![
        adopted("monitor", gpu("gpu-0").admin_access(true)),
        adopted("share", gpu("gpu-1").share("share-1")),
        adopted("alone", gpu("gpu-2")),
    ];
    let claims = rig.start(&driver, Start::default()).await;
    prepare(&claims, &rig.claim("whole", &["gpu-0"])).await.unwrap();
    prepare(&claims, &rig.claim("other-share", &["gpu-1/share-2"])).await.unwrap();
    prepare(&claims, &rig.claim("whole-1", &["gpu-1"])).await.unwrap_err();
    prepare(&claims, &rig.claim("whole-2", &["gpu-2"])).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_hung_adopt_is_named_asked_again_and_keeps_no_recorded_claim_from_its_unprepare() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    let claims = rig.start(&driver, Start::default()).await;
    let (one, two) = (rig.claim("one", &["gpu-0"]), rig.claim("two", &["gpu-1"]));
    prepare(&claims, &one).await.unwrap();
    drop(claims);
    let gate = driver.hold_up("adopt");
    let claims = rig.open(&driver, Start::default()).await;
    let recovery = tokio::spawn(Arc::clone(&claims).recover());
    let error = claims.prepare(two.clone(), Instant::now() + Duration::from_secs(10)).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("(adopt: no answer yet)"), "{error}");
    claims.unprepare(one, soon()).await.unwrap();
    let error = prepare(&claims, &two).await.unwrap_err().to_string();
    assert!(error.contains("(adopt: the driver has not answered adopt within 30 s)"), "{error}");
    assert_eq!(driver.log().iter().filter(|line| *line == "adopt").count(), 2, "{:?}", driver.log());
    let told = locked(&rig.told).clone();
    assert_eq!(told.len(), 1, "{told:?}");
    gate.add_permits(100);
    recovery.await.unwrap();
    prepare(&claims, &two).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_adopt_is_an_error_of_its_own_and_is_told_once() {
    let (rig, driver) = (Rig::new(), Arc::new(Driver::default()));
    driver.fail("adopt");
    let claims = rig.open(&driver, Start::default()).await;
    let recovery = tokio::spawn(Arc::clone(&claims).recover());
    let one = rig.claim("one", &["gpu-0"]);
    let error = prepare(&claims, &one).await.unwrap_err().to_string();
    assert!(error.contains("(adopt: as told)") && !error.contains("boot"), "{error}");
    let told = locked(&rig.told).clone();
    assert_eq!(told.len(), 1, "{told:?}");
    driver.fail_no_more();
    recovery.await.unwrap();
    prepare(&claims, &one).await.unwrap();
}
