//! What a start does about what earlier processes and boots left.

use std::fs;

use dra_kubeletplugin::UnprepareReason;
use dra_testkit::kubelet::ClaimRef;

use crate::support::{DRIVER, Note, Rig, TestDriver, device, eventually, soon};

/// A node on which one driver has prepared these claims, each with a GPU, and has ended.
async fn left_by(driver: &TestDriver, names: &[&str]) -> (Rig, Vec<ClaimRef>) {
    let rig = Rig::new();
    let handle = rig.start(driver).await;
    let claims = names.iter().enumerate();
    let claims: Vec<_> = claims.map(|(i, name)| rig.claim(name, &[device(&format!("gpu-{i}"))])).collect();
    let answer = rig.prepare(&claims.iter().collect::<Vec<_>>()).await;
    assert!(answer.values().all(Result::is_ok), "{answer:?}");
    soon("shut down", handle.shutdown()).await.unwrap();
    (rig, claims)
}

#[tokio::test]
async fn cdi_files_that_vanished_or_changed_are_back_after_a_start() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one", "two"]).await;
    let bytes = claims.iter().map(|claim| fs::read(rig.cdi_file(claim)).unwrap()).collect::<Vec<_>>();
    fs::remove_file(rig.cdi_file(&claims[0])).unwrap();
    fs::write(rig.cdi_file(&claims[1]), "{}").unwrap();
    let _handle = rig.start(&driver).await;
    for (claim, bytes) in claims.iter().zip(bytes) {
        eventually("the CDI file", || fs::read(rig.cdi_file(claim)).is_ok_and(|found| found == bytes)).await;
    }
    assert_eq!(driver.log().len(), 2, "the driver is not asked again");
}

#[tokio::test]
async fn a_wiped_cdi_folder_is_filled_again() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    fs::remove_dir_all(rig.node.cdi()).unwrap();
    let _handle = rig.start(&driver).await;
    eventually("the CDI file", || rig.cdi_file(&claims[0]).exists()).await;
}

#[tokio::test]
async fn cdi_files_of_ours_that_no_record_tells_of_are_removed_and_others_are_not() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    let ours = ClaimRef::new("default", "gone", "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a");
    let text = fs::read_to_string(rig.cdi_file(&claims[0])).unwrap();
    fs::write(rig.cdi_file(&ours), text.replace(&claims[0].uid, &ours.uid)).unwrap();
    let foreign =
        ["vendor.json".to_owned(), format!("k8s.{DRIVER}-claim_{}.json", ours.uid), "x.yaml".to_owned()];
    for name in &foreign {
        fs::write(rig.node.cdi().join(name), &text).unwrap();
    }
    let _handle = rig.start(&driver).await;
    eventually("the orphan is gone", || !rig.cdi_file(&ours).exists()).await;
    assert!(rig.cdi_file(&claims[0]).exists());
    for name in &foreign {
        assert_eq!(fs::read_to_string(rig.node.cdi().join(name)).unwrap(), text, "{name}");
    }
}

#[tokio::test]
async fn a_cut_record_stops_other_claims_until_its_claim_is_unprepared() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    let record = rig.record(&claims[0]);
    let bytes = fs::read(&record).unwrap();
    fs::write(&record, &bytes[..bytes.len() / 2]).unwrap();
    // Nothing tells which device it had.
    fs::remove_file(rig.cdi_file(&claims[0])).unwrap();

    let _handle = rig.start(&driver).await;
    let other = rig.claim("other", &[device("gpu-1")]);
    for claim in [&other, &claims[0]] {
        let error = rig.prepare_one(claim).await.unwrap_err();
        assert!(error.contains(record.to_str().unwrap()), "{error}");
    }
    assert_eq!(driver.log(), ["prepare one: gpu-0"]);

    rig.unprepare_one(&claims[0]).await.unwrap();
    assert_eq!(driver.log()[1], "unprepare one:  (Unprepare)", "nothing is known of its devices");
    assert_eq!(driver.last_held().state, None);
    assert_eq!(rig.files(), [""; 0]);
    rig.prepare_one(&other).await.unwrap();
}

#[tokio::test]
async fn what_an_earlier_boot_left_is_unprepared_before_the_first_prepare() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    let devices = rig.prepare_one(&claims[0]).await.unwrap();
    assert_eq!(devices[0].device_name, "gpu-0");
    assert_eq!(driver.log(), ["prepare one: gpu-0", "unprepare one: gpu-0 (Reboot)", "prepare one: gpu-0"]);
    let held = driver.last_held();
    assert_eq!((held.reason, held.state), (UnprepareReason::Reboot, Some(Note("prepared one".into()))));
    assert!(!rig.claims_folder().join("boot-1").exists(), "nothing is left of the earlier boot");
    assert_eq!(rig.files(), rig.files_of(&[&claims[0]]));
}

#[tokio::test]
async fn prepares_wait_until_an_earlier_boot_is_undone_and_unprepares_do_not() {
    let driver = TestDriver::new();
    let (rig, _) = left_by(&driver, &["one"]).await;
    let gate = driver.hold_up_undo();
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    driver.wait_for("unprepare one: gpu-0 (Reboot)").await;
    let two = rig.claim("two", &[device("gpu-0")]);
    let unknown = ClaimRef::new("default", "unknown", "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a");
    let mut prepare = Box::pin(rig.prepare_one(&two));
    for _ in 0..20 {
        tokio::select! {
            biased;
            answer = &mut prepare => panic!("answered before the earlier boot was undone: {answer:?}"),
            answer = rig.unprepare_one(&unknown) => answer.unwrap(),
        }
    }
    gate.add_permits(1);
    prepare.await.unwrap();
    let log = driver.log().into_iter().filter(|call| call != "unknown unknown").collect::<Vec<_>>();
    assert_eq!(log, ["prepare one: gpu-0", "unprepare one: gpu-0 (Reboot)", "prepare two: gpu-0"]);
}

#[tokio::test]
async fn a_claim_of_an_earlier_boot_that_cannot_be_undone_keeps_its_device_and_is_told() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one", "two"]).await;
    driver.fail_unprepare(Some("the GPU is wedged"));
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    driver.wait_for_background_error("the GPU is wedged").await;
    let (other, free) = (rig.claim("other", &[device("gpu-0")]), rig.claim("free", &[device("gpu-7")]));
    let answer = rig.prepare(&[&other, &free]).await;
    let error = answer[&other.uid].clone().unwrap_err();
    assert!(error.contains("default/one"), "{error}");
    assert!(answer[&free.uid].is_ok(), "{answer:?}");

    driver.fail_unprepare(None);
    rig.unprepare_one(&claims[0]).await.unwrap();
    assert_eq!(driver.last_held().reason, UnprepareReason::Reboot);
    rig.prepare_one(&other).await.unwrap();
    // Or by a prepare of the claim itself.
    rig.prepare_one(&claims[1]).await.unwrap();
    assert!(!rig.claims_folder().join("boot-1").join(format!("{}.json", claims[1].uid)).exists());
}

#[tokio::test]
async fn a_damaged_record_of_an_earlier_boot_holds_nothing() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    fs::write(rig.record(&claims[0]), "half").unwrap();
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    rig.prepare_one(&rig.claim("two", &[device("gpu-0")])).await.unwrap();
}

#[tokio::test]
async fn leftovers_of_interrupted_writes_are_removed() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    fs::write(rig.record(&claims[0]).with_extension("tmp"), "half").unwrap();
    let _handle = rig.start(&driver).await;
    eventually("only whole files", || rig.files() == rig.files_of(&[&claims[0]])).await;
}

/// A power cut while a record was being written: the machine comes back with another boot id.
#[tokio::test]
async fn a_write_that_a_reboot_interrupted_does_not_keep_the_folder_of_its_boot() {
    let driver = TestDriver::new();
    let (rig, claims) = left_by(&driver, &["one"]).await;
    fs::write(rig.record(&claims[0]).with_extension("tmp"), "half").unwrap();
    let _handle = rig.start_with(&driver, rig.options().boot_id("boot-2")).await;
    eventually("nothing is left of the earlier boot", || !rig.claims_folder().join("boot-1").exists()).await;
}
