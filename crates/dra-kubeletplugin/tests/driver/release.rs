//! Taking the driver off a node that has claims.

use std::fs;

use dra_kubeletplugin::state::{self, Release, Released, StateError, Way};
use dra_kubeletplugin::{AdoptedClaim, DeviceRef, ForeignFile};
use dra_testkit::kubelet::ClaimRef;

use crate::support::{DRIVER, NODE, Note, Rig, TestDriver, device, fail, share, soon};

async fn release(rig: &Rig, driver: &TestDriver) -> Vec<Released> {
    state::release(&rig.state_location(), driver.clone(), &Release::All).await.unwrap()
}

/// Names of the claims and what became of each, by name.
fn ways(released: &[Released]) -> Vec<(&str, Result<Way, &str>)> {
    let mut ways: Vec<_> = released
        .iter()
        .map(|one| (one.claim.name.as_str(), one.outcome.as_ref().copied().map_err(String::as_str)))
        .collect();
    ways.sort_by_key(|(name, _)| *name);
    ways
}

/// A node that a driver with these claims, one GPU each, has just left.
async fn left_with(driver: &TestDriver, names: &[&str]) -> (Rig, Vec<ClaimRef>) {
    let rig = Rig::new();
    let handle = rig.start(driver).await;
    let mut claims = Vec::new();
    for (number, name) in names.iter().enumerate() {
        claims.push(rig.claim(name, &[device(&format!("gpu-{number}"))]));
        rig.prepare_one(&claims[number]).await.unwrap();
    }
    soon("shut down", handle.shutdown()).await.unwrap();
    (rig, claims)
}

#[tokio::test]
async fn all_claims_are_unprepared_with_their_state_and_leave_nothing() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["one", "two"]).await;
    let released = release(&rig, &driver).await;
    assert_eq!(ways(&released), [("one", Ok(Way::Unprepared)), ("two", Ok(Way::Unprepared))]);
    let one = released.iter().find(|one| one.claim.uid.as_str() == claims[0].uid).unwrap();
    assert_eq!(one.devices, [DeviceRef::new(NODE.parse().unwrap(), "gpu-0".parse().unwrap())]);
    let mut log = driver.log().split_off(2);
    log.sort();
    assert_eq!(log, ["unprepare one: gpu-0 (Released)", "unprepare two: gpu-1 (Released)"]);
    assert!(driver.held().iter().all(|held| held.state.is_some()));
    assert_eq!(rig.files(), [""; 0]);
    assert_eq!(release(&rig, &driver).await, []);
}

#[tokio::test]
async fn a_driver_that_starts_after_a_release_knows_nothing_of_the_claims() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["one"]).await;
    release(&rig, &driver).await;
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claims[0]).await.unwrap();
    assert_eq!(driver.log().last().unwrap(), "unknown one");
    let other = rig.claim("other", &[device("gpu-0")]);
    rig.prepare_one(&other).await.unwrap();
}

#[tokio::test]
async fn only_the_named_claims_are_released_and_unknown_ones_are_told() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["one", "two"]).await;
    let wanted = [claims[0].uid.as_str(), "nobody"].map(|uid| uid.parse().unwrap());
    let which = Release::Claims(wanted.into());
    let released = state::release(&rig.state_location(), driver.clone(), &which).await.unwrap();
    assert_eq!(ways(&released), [("", Ok(Way::NotHeld)), ("one", Ok(Way::Unprepared))]);
    assert_eq!(rig.files(), rig.files_of(&[&claims[1]]));
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claims[1]).await.unwrap();
    assert_eq!(driver.log().last().unwrap(), "unprepare two: gpu-1 (Unprepare)");
}

#[tokio::test]
async fn a_claim_that_the_driver_cannot_undo_stays_held_and_the_others_go() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["one"]).await;
    driver.fail_unprepare(Some("a container uses it"));
    assert_eq!(ways(&release(&rig, &driver).await), [("one", Err("a container uses it"))]);
    // It is on its way out, and held: the next try, or the kubelet's, finishes it.
    let handle = rig.start(&driver).await;
    let other = rig.claim("other", &[device("gpu-0")]);
    let error = rig.prepare_one(&other).await.unwrap_err();
    assert!(error.contains(&claims[0].uid), "{error}");
    soon("shut down", handle.shutdown()).await.unwrap();
    driver.fail_unprepare(None);
    assert_eq!(ways(&release(&rig, &driver).await), [("one", Ok(Way::Unprepared))]);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn started_damaged_and_rebooted_claims_are_released_too() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["damaged", "rebooted"]).await;
    let handle = rig.start(&driver).await;
    driver.on_prepare(|_, _| Box::pin(async { fail("broken") }));
    driver.fail_rollback(Some("not now"));
    let started = rig.claim("started", &[device("gpu-7")]);
    rig.prepare_one(&started).await.unwrap_err();
    driver.fail_rollback(None);
    soon("shut down", handle.shutdown()).await.unwrap();
    fs::write(rig.record(&claims[0]), "cut").unwrap();
    let older = rig.claims_folder().join("boot-0");
    fs::create_dir(&older).unwrap();
    let record = rig.record(&claims[1]);
    fs::rename(&record, older.join(record.file_name().unwrap())).unwrap();

    let before = driver.log().len();
    let released = release(&rig, &driver).await;
    let expected = ["", "rebooted", "started"].map(|name| (name, Ok(Way::Unprepared)));
    assert_eq!(ways(&released), expected);
    let mut calls = driver.log().split_off(before);
    calls.sort();
    let expected = [
        "rollback started: gpu-7 (Released)",
        "unprepare :  (Released)",
        "unprepare rebooted: gpu-1 (Reboot)",
    ];
    assert_eq!(calls, expected);
    assert_eq!(rig.files(), [""; 0]);
}

#[tokio::test]
async fn the_share_that_goes_last_is_told_that_nobody_else_has_the_device() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    for number in [1, 2] {
        let claim = rig.claim(&format!("share-{number}"), &[share("gpu-0", number)]);
        rig.prepare_one(&claim).await.unwrap();
    }
    soon("shut down", handle.shutdown()).await.unwrap();
    release(&rig, &driver).await;
    let others: Vec<_> = driver.held().iter().map(|held| held.devices[0].others.len()).collect();
    assert_eq!(others, [1, 0]);
}

#[tokio::test]
async fn an_adopted_claim_is_handed_back_untouched_unless_it_was_prepared_anew() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let claims = ["kept", "anew"].map(|name| rig.claim(name, &[device(&format!("gpu-{name}"))]));
    let files = claims.each_ref().map(|claim| {
        let file: ForeignFile = format!("k8s.{DRIVER}-claim_{}.yaml", claim.uid).parse().unwrap();
        fs::create_dir_all(rig.node.cdi()).unwrap();
        fs::write(rig.node.cdi().join(file.as_str()), "{}").unwrap();
        file
    });
    for (claim, file) in claims.iter().zip(&files) {
        let device = DeviceRef::new(NODE.parse().unwrap(), format!("gpu-{}", claim.name).parse().unwrap());
        let note = Note("of the other program".into());
        let adopted = AdoptedClaim::new(claim.uid.parse().unwrap(), [device], note);
        driver.find_in_old_books(adopted.named("default", &claim.name).cdi_file(file.clone()));
    }
    let handle = rig.start(&driver).await;
    rig.prepare_one(&claims[1]).await.unwrap();
    soon("shut down", handle.shutdown()).await.unwrap();

    let released = release(&rig, &driver).await;
    assert_eq!(ways(&released), [("anew", Ok(Way::Unprepared)), ("kept", Ok(Way::HandedBack))]);
    assert_eq!(driver.log(), ["prepare anew: gpu-anew", "unprepare anew: gpu-anew (Released)"]);
    assert_eq!(rig.files(), [files[0].as_str()], "the other program's file is still needed");
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claims[0]).await.unwrap();
    assert_eq!(
        driver.last_held().state,
        Some(Note("of the other program".into())),
        "it can be adopted again"
    );
}

#[tokio::test]
async fn nothing_is_released_beside_a_living_driver() {
    let driver = TestDriver::new();
    let (rig, claims) = left_with(&driver, &["one"]).await;
    let refused = || async {
        let released = state::release(&rig.state_location(), driver.clone(), &Release::All).await;
        let error = released.unwrap_err();
        assert_eq!(rig.files(), rig.files_of(&[&claims[0]]));
        error
    };
    let handle = rig.start_with(&driver, rig.options().rolling_update("pod-1")).await;
    assert!(matches!(refused().await, StateError::Running { note } if note.contains("pod-1")));
    soon("shut down", handle.shutdown()).await.unwrap();

    let socket = rig.node.kubelet().join("plugins_registry").join(format!("{DRIVER}-reg.sock"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(refused().await, StateError::GoDriver { .. }));
    drop(listener);
    release(&rig, &driver).await;
    assert!(!socket.exists(), "the sockets of the dead go too");
}

#[tokio::test]
async fn without_claims_there_is_nothing_to_do_and_a_wrong_root_is_told() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let mut location = rig.state_location();
    assert_eq!(state::release(&location, driver.clone(), &Release::All).await.unwrap(), []);
    let _handle = rig.start(&driver).await;
    assert_eq!(state::release(&location, driver.clone(), &Release::All).await.unwrap(), []);
    location.kubelet_root = rig.node.cdi().join("elsewhere");
    let error = state::release(&location, driver, &Release::All).await.unwrap_err();
    assert!(matches!(error, StateError::NoState(path) if path.ends_with("elsewhere/plugins")));
}
