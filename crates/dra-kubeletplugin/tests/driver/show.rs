//! What `state::show` tells of a node, beside a living driver and after one that died.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dra_kubeletplugin::state::{
    self, CdiOwner, FindingKind, Liveness, LockedBy, RecordPhase, Report, SocketKind, StateError,
};
use dra_kubeletplugin::{ClaimUid, DeviceMetadata};

use crate::support::{DRIVER, NODE, Rig, TestDriver, device, soon, usual};

const POD: &str = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a";

async fn show(rig: &Rig) -> Report {
    soon("a report", state::show(&rig.state_location())).await.unwrap()
}

fn kinds(report: &Report) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

/// Everything on the node but the locks, with the time at which it was last written.
fn tree(folder: &Path) -> BTreeSet<(PathBuf, SystemTime)> {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            seen.extend(tree(&path));
        }
        seen.insert((path.clone(), fs::symlink_metadata(path).unwrap().modified().unwrap()));
    }
    seen
}

#[tokio::test]
async fn a_living_driver_is_shown_whole_and_left_as_it_is() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    driver.on_prepare(|claim, _| {
        let prepared = usual(claim).metadata(&claim.devices()[0], DeviceMetadata::new());
        Box::pin(async { Ok(prepared) })
    });
    let handle = rig.start_with(&driver, rig.options().rolling_update(POD)).await;
    let claim = rig.claim("one", &[device("gpu-0")]);
    rig.prepare_one(&claim).await.unwrap();
    let before = tree(rig.node.root());
    let report = show(&rig).await;
    assert_eq!(tree(rig.node.root()), before, "nothing has changed");
    assert_eq!(kinds(&report), [], "{report}");
    assert!(handle.registration().borrow().is_registered());

    let uid: ClaimUid = claim.uid.parse().unwrap();
    let seen = &report.snapshot;
    let [record] = &seen.records[..] else { panic!("{report}") };
    assert_eq!((&record.uid, record.phase, record.boot_id.as_str()), (&uid, RecordPhase::Prepared, "boot-1"));
    assert_eq!(record.claim.as_ref().map(|claim| claim.name.as_str()), Some("one"));
    assert_eq!(record.devices[0].device.to_string(), format!("{NODE}/gpu-0"));
    assert_eq!(record.devices[0].cdi_ids, [format!("k8s.{DRIVER}/claim={uid}-gpu-0")]);
    let [file] = &seen.cdi_files[..] else { panic!("{report}") };
    assert_eq!((&file.owner, Some(&file.sha256)), (&CdiOwner::Claim(uid.clone()), record.cdi_file.as_ref()));
    assert_eq!((seen.metadata.len(), &seen.metadata[0].claim), (1, &uid));
    let instances = seen.locks.iter().find(|lock| lock.by == LockedBy::Instances).unwrap();
    assert_eq!(instances.pids, [std::process::id()]);
    let sockets: Vec<_> = seen.sockets.iter().map(|socket| (socket.kind, socket.liveness)).collect();
    let alive = |kind| (kind, Liveness::Live);
    assert_eq!(sockets, [alive(SocketKind::Dra), alive(SocketKind::Registration)]);
    let [instance] = &seen.instances[..] else { panic!("{report}") };
    assert_eq!((instance.pod_uid.as_deref(), instance.liveness), (Some(POD), Liveness::Live));
    assert!(seen.starts == 1 && seen.last_start.as_deref().is_some_and(|note| note.contains(POD)));
    let row = format!("{uid}  default/one  prepared  ");
    assert!(report.to_string().contains(&row), "{report}");
}

#[tokio::test]
async fn a_claim_that_is_at_work_is_locked_and_not_half_done() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let go_on = driver.hold_up_prepare();
    let claim = rig.claim("slow", &[device("gpu-0")]);
    let (prepared, report) = tokio::join!(rig.prepare_one(&claim), async {
        driver.wait_for("prepare slow: gpu-0").await;
        let report = show(&rig).await;
        go_on.add_permits(1);
        report
    });
    prepared.unwrap();
    assert_eq!(kinds(&report), [], "{report}");
    assert_eq!(report.snapshot.records[0].phase, RecordPhase::Started);
    let uid: ClaimUid = claim.uid.parse().unwrap();
    let locks = &report.snapshot.locks;
    assert!(locks.iter().any(|lock| lock.by == LockedBy::Claim(vec![uid.clone()])), "{report}");
    assert!(
        locks.iter().any(|lock| matches!(&lock.by, LockedBy::Device(devices) if devices.len() == 1)),
        "{report}"
    );
}

#[tokio::test]
async fn beside_a_driver_that_is_busy_nothing_is_found() {
    let (rig, driver) = (Arc::new(Rig::new()), TestDriver::new());
    let _handle = rig.start(&driver).await;
    let busy = tokio::spawn({
        let rig = Arc::clone(&rig);
        async move {
            for number in 0.. {
                let claim = rig.claim(&format!("claim-{number}"), &[device("gpu-0")]);
                rig.prepare_one(&claim).await.unwrap();
                rig.unprepare_one(&claim).await.unwrap();
                rig.delete_claim(&claim);
            }
        }
    });
    for _ in 0..5 {
        let report = show(&rig).await;
        assert_eq!(kinds(&report), [], "{report}");
    }
    busy.abort();
}

#[tokio::test]
async fn what_a_dead_driver_and_a_clumsy_person_leave_is_found() {
    let (rig, driver) = (Rig::new(), TestDriver::new());
    let handle = rig.start(&driver).await;
    let claims = ["cut", "no-cdi", "half"].map(|name| rig.claim(name, &[device(&format!("gpu-{name}"))]));
    rig.prepare(&claims.each_ref()).await;
    driver.fail_unprepare(Some("broken"));
    rig.unprepare_one(&claims[2]).await.unwrap_err();
    soon("shut down", handle.shutdown()).await.unwrap();

    fs::write(rig.record(&claims[0]), "cut").unwrap();
    fs::remove_file(rig.cdi_file(&claims[1])).unwrap();
    let stray = rig.node.cdi().join(format!("k8s.{DRIVER}+claim+nobody.json"));
    fs::copy(rig.cdi_file(&claims[0]), &stray).unwrap();
    let temporary = rig.claims_folder().join("boot-1/x.tmp");
    fs::write(&temporary, "half").unwrap();
    let a_minute_ago = SystemTime::now() - Duration::from_secs(61);
    fs::File::options().write(true).open(&temporary).unwrap().set_modified(a_minute_ago).unwrap();
    let older = rig.claims_folder().join("boot-0");
    fs::create_dir(&older).unwrap();
    fs::copy(rig.record(&claims[1]), older.join(rig.record(&claims[1]).file_name().unwrap())).unwrap();
    let socket = rig.state_location().data().join("dra-rs-dra-00000a.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());

    let before = tree(rig.node.root());
    let report = show(&rig).await;
    assert_eq!(tree(rig.node.root()), before, "nothing has changed");
    let expected = [
        FindingKind::DamagedRecord,
        FindingKind::RecordOfOtherBoot,
        FindingKind::HalfDone,
        FindingKind::CdiFileMissing,
        FindingKind::CdiFileWithoutRecord,
        FindingKind::CdiDeviceTwice,
        FindingKind::TemporaryFile,
        FindingKind::DeadSocket,
        FindingKind::NobodyServes,
    ];
    assert_eq!(kinds(&report), expected, "{report}");

    // What a start puts right is not found any more.
    driver.fail_unprepare(None);
    state::repair(&rig.state_location()).await.unwrap();
    fs::remove_file(&temporary).unwrap();
    let _handle = rig.start(&driver).await;
    rig.unprepare_one(&claims[2]).await.unwrap();
    let well = async { while !show(&rig).await.findings.is_empty() {} };
    soon("all is well", well).await;
    assert_eq!(show(&rig).await.snapshot.put_aside.len(), 1);
}

#[tokio::test]
async fn a_driver_that_was_never_here_cannot_be_looked_at() {
    let rig = Rig::new();
    let error = state::show(&rig.state_location()).await.unwrap_err();
    assert!(matches!(error, StateError::NoState(_)), "{error}");
    assert!(!rig.state_location().data().exists(), "no folder is made");
}
