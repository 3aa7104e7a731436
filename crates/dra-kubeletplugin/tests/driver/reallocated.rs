//! Claims that were allocated anew under the same UID. Kubelets before 1.37 go on asking for the CDI devices that they
//! were told first, so those names have to be there whatever comes between the two allocations.

use dra_kubeletplugin::Handle;
use dra_testkit::{kubelet::ClaimRef, runtime::Runtime};

use crate::support::{Rig, TestDriver, device, eventually, fail, soon};

/// A driver with a claim that had `gpu-0` and has been given `gpu-1`.
async fn allocated_anew(rig: &Rig, driver: &TestDriver) -> (Handle, ClaimRef) {
    let handle = rig.start(driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    rig.allocate_anew(&claim, &[device("gpu-1")]);
    (handle, claim)
}

/// All that containers could ask for.
fn assert_cdi_devices(rig: &Rig, claim: &ClaimRef, devices: &[&str]) {
    let found = Runtime::new([rig.node.cdi()]).devices();
    assert_eq!(found.len(), devices.len(), "{found:?}");
    for device in devices {
        let name = format!("={}-{device}", claim.uid);
        assert!(found.iter().any(|id| id.ends_with(&name)), "{name}: {found:?}");
    }
}

#[tokio::test]
async fn names_are_kept_while_the_driver_fails_and_what_the_claim_had_is_free() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let (_handle, claim) = allocated_anew(&rig, &driver).await;
    driver.on_prepare(|_, _| Box::pin(async { fail("not now") }));
    for _ in 0..2 {
        assert_eq!(rig.prepare_one(&claim).await.unwrap_err(), "not now");
    }
    let undone = [
        "prepare one: gpu-0",
        "unprepare one: gpu-0 (Reallocated)",
        "prepare one: gpu-1",
        "rollback one: gpu-1 (Rollback)",
        "prepare one: gpu-1",
        "rollback one: gpu-1 (Rollback)",
    ];
    assert_eq!(driver.log(), undone, "the driver is not asked to undo a claim that has nothing");

    driver.prepare_as_usual();
    let others = [rig.claim("two", &[device("gpu-0")]), rig.claim("three", &[device("gpu-1")])];
    for other in &others {
        rig.prepare_one(other).await.unwrap();
        rig.unprepare_one(other).await.unwrap();
    }
    rig.prepare_one(&claim).await.unwrap();
    assert_cdi_devices(&rig, &claim, &["gpu-0", "gpu-1"]);
    rig.unprepare_one(&claim).await.unwrap();
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn names_are_kept_while_another_claim_has_the_new_device() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let other = rig.claim("two", &[device("gpu-1")]);
    rig.prepare_one(&other).await.unwrap();
    rig.allocate_anew(&claim, &[device("gpu-1")]);
    rig.prepare_one(&claim).await.unwrap_err();

    // Also over a restart.
    soon("shut down", handle.shutdown()).await.unwrap();
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&other).await.unwrap();
    rig.prepare_one(&claim).await.unwrap();
    assert_cdi_devices(&rig, &claim, &["gpu-0", "gpu-1"]);
}

#[tokio::test]
async fn names_are_kept_over_a_reboot() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let (handle, claim) = allocated_anew(&rig, &driver).await;
    rig.prepare_one(&claim).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();
    for boot in ["boot-2", "boot-3"] {
        let handle = rig.start_with(&driver, rig.options().boot_id(boot)).await;
        rig.prepare_one(&claim).await.unwrap();
        assert_cdi_devices(&rig, &claim, &["gpu-0", "gpu-1"]);
        soon("shut down", handle.shutdown()).await.unwrap();
    }
    let reboots = driver.log().iter().filter(|line| line.ends_with("(Reboot)")).count();
    assert_eq!(reboots, 2);
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-4")).await;
    rig.unprepare_one(&claim).await.unwrap();
    eventually("nothing is left", || rig.files().is_empty()).await;
}

#[tokio::test]
async fn a_claim_that_only_has_names_goes_without_a_call_of_the_driver() {
    for allocated_away in [false, true] {
        let (rig, driver) = (Rig::new(), TestDriver::new());
        let (_handle, claim) = allocated_anew(&rig, &driver).await;
        driver.on_prepare(|_, _| Box::pin(async { fail("not now") }));
        rig.prepare_one(&claim).await.unwrap_err();
        let calls = driver.log().len();
        if allocated_away {
            let mut foreign = device("nic-0");
            foreign["driver"] = "nic.example.com".into();
            rig.allocate_anew(&claim, &[foreign]);
            assert_eq!(rig.prepare_one(&claim).await.unwrap().len(), 0);
        } else {
            rig.unprepare_one(&claim).await.unwrap();
        }
        assert_eq!(driver.log().len(), calls);
        assert_eq!(rig.files(), [""; 0]);
    }
}
