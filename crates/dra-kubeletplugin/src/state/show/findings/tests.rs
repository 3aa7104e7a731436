use super::{
    super::snapshot::{LockState, MetadataState, SocketState, Temporary},
    *,
};
use crate::claim::ClaimRef;

const BOOT: &str = "boot-1";
const KIND: &str = "k8s.gpu.example.com/claim";

fn uid(text: &str) -> ClaimUid {
    text.parse().unwrap()
}

/// A claim that is prepared with one GPU, a CDI file and a metadata file.
fn prepared(claim: &str, gpu: &str) -> RecordState {
    RecordState {
        uid: uid(claim),
        claim: Some(ClaimRef::new("ns", claim, uid(claim))),
        path: format!("/d/claims/{BOOT}/{claim}.json").into(),
        boot_id: BOOT.to_owned(),
        age: 5,
        phase: RecordPhase::Prepared,
        damage: None,
        newer_format: None,
        devices: vec![device(gpu)],
        former_cdi: Vec::new(),
        adopted: false,
        cdi_file: Some("sum".to_owned()),
        foreign_cdi_file: None,
        metadata: [("r".to_owned(), "sum".to_owned())].into(),
    }
}

fn device(gpu: &str) -> RecordedDevice {
    RecordedDevice {
        device: DeviceRef::new("node-1".parse().unwrap(), gpu.parse().unwrap()),
        request: "r".to_owned(),
        share_id: None,
        admin_access: false,
        cdi_ids: Vec::new(),
    }
}

fn cdi_file(claim: &str) -> CdiFileState {
    CdiFileState {
        name: format!("{claim}.json"),
        owner: CdiOwner::Claim(uid(claim)),
        kind: Some(KIND.to_owned()),
        devices: vec![format!("{claim}-gpu")],
        sha256: "sum".to_owned(),
        age: 5,
    }
}

fn metadata(claim: &str) -> MetadataState {
    let path = format!("/d/metadata/{claim}/r.json").into();
    MetadataState { claim: uid(claim), request: "r".to_owned(), path, sha256: "sum".to_owned() }
}

fn lock(file: &str, by: LockedBy) -> LockState {
    LockState { file: file.to_owned(), first: 0, last: None, exclusive: true, by, pids: vec![7] }
}

fn socket(path: &str, kind: SocketKind, liveness: Liveness) -> SocketState {
    SocketState { path: path.into(), kind, liveness, error: None, age: 5 }
}

/// A node with a living driver and two claims.
fn consistent() -> Snapshot {
    Snapshot {
        driver: "gpu.example.com".parse().unwrap(),
        data: "/d".into(),
        cdi_root: "/cdi".into(),
        boot_id: BOOT.to_owned(),
        records: vec![prepared("a", "gpu-0"), prepared("b", "gpu-1")],
        cdi_files: vec![cdi_file("a"), cdi_file("b")],
        metadata: vec![metadata("a"), metadata("b")],
        temporary: Vec::new(),
        locks: vec![lock("instances.lock", LockedBy::Instances)],
        sockets: vec![
            socket("/r/reg.sock", SocketKind::Registration, Liveness::Live),
            socket("/d/dra-rs-x.sock", SocketKind::Dra, Liveness::Live),
        ],
        instances: Vec::new(),
        starts: 1,
        last_start: None,
        put_aside: Vec::new(),
    }
}

type Change = fn(&mut Snapshot);

#[test]
fn what_fits_together_is_not_told() {
    let table: &[(&str, Change)] = &[
        ("all is well", |_| {}),
        ("a prepare is under way", |s| {
            s.records[0].phase = RecordPhase::Started;
            s.cdi_files.remove(0);
            s.metadata.remove(0);
            s.locks.push(lock("serialize.lock", LockedBy::Claim(vec![uid("a")])));
        }),
        ("an unprepare is under way", |s| {
            s.records[0].phase = RecordPhase::Unpreparing;
            s.cdi_files.remove(0);
            s.locks.push(lock("serialize.lock", LockedBy::Claim(vec![uid("a")])));
        }),
        ("names are remembered", |s| {
            s.records[0].phase = RecordPhase::Vacated;
            s.records[0].former_cdi = vec!["a-gpu".to_owned()];
            s.cdi_files.remove(0);
        }),
        ("a claim needs no CDI file and no metadata", |s| {
            s.records[0].cdi_file = None;
            s.records[0].metadata.clear();
            s.cdi_files.remove(0);
            s.metadata.remove(0);
        }),
        ("shares of a device", |s| {
            for (record, share) in s.records.iter_mut().zip(["1", "2"]) {
                record.devices[0] = RecordedDevice { share_id: Some(share.to_owned()), ..device("gpu-0") };
            }
        }),
        ("admin access beside a claim", |s| {
            s.records[1].devices[0] = RecordedDevice { admin_access: true, ..device("gpu-0") };
        }),
        ("a device that is in two results of a claim", |s| s.records[0].devices.push(device("gpu-0"))),
        ("adopted shares, of which nothing is known", |s| {
            for record in &mut s.records {
                record.adopted = true;
                record.devices[0] = device("gpu-0");
            }
        }),
        ("an adopted claim with the other program's CDI file", |s| {
            s.records[0].adopted = true;
            s.records[0].cdi_file = None;
            s.records[0].foreign_cdi_file = Some("theirs.json".to_owned());
            s.cdi_files[0].name = "theirs.json".to_owned();
            s.cdi_files[0].owner = CdiOwner::Foreign(vec![uid("a")]);
        }),
        ("a write that is under way", |s| s.temporary.push(Temporary { path: "/d/x.tmp".into(), age: 59 })),
        ("other drivers' CDI devices, in two files", |s| {
            for name in ["x.json", "y.json"] {
                let owner = CdiOwner::Other;
                let kind = Some("other.com/x".to_owned());
                s.cdi_files.push(CdiFileState { name: name.to_owned(), owner, kind, ..cdi_file("x") });
            }
        }),
        ("a socket of which it is not known", |s| s.sockets[0].liveness = Liveness::Unknown),
        ("nothing is left of a driver", |s| {
            s.records.clear();
            s.cdi_files.clear();
            s.metadata.clear();
            s.locks.clear();
            s.sockets.clear();
        }),
    ];
    for (case, change) in table {
        let mut snapshot = consistent();
        change(&mut snapshot);
        assert_eq!(snapshot.findings(), [], "{case}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table with a case for each finding")]
fn what_does_not_fit_together_is_told() {
    use FindingKind as Kind;
    let table: &[(Change, &[Kind], &str)] = &[
        (
            |s| {
                s.records[0].phase = RecordPhase::Damaged;
                s.records[0].damage = Some("cut".to_owned());
            },
            &[Kind::DamagedRecord],
            "a.json is damaged: cut; the claim holds a-gpu; delete",
        ),
        (
            |s| {
                s.records[0].phase = RecordPhase::Damaged;
                s.cdi_files.remove(0);
            },
            &[Kind::DamagedRecord],
            "it cannot be read; no device is given away",
        ),
        (|s| s.records[0].newer_format = Some(2), &[Kind::NewerRecord], "is of format 2"),
        (
            |s| s.records[0].boot_id = "boot-0".to_owned(),
            &[Kind::RecordOfOtherBoot],
            "in another boot of the machine; the driver undoes it before",
        ),
        (
            |s| {
                s.records[0].boot_id = "boot-0".to_owned();
                s.locks.clear();
                s.sockets.clear();
            },
            &[Kind::RecordOfOtherBoot, Kind::NobodyServes],
            "when it starts",
        ),
        (
            |s| {
                let path = "/d/claims/boot-1/a.unpreparing".into();
                s.records.push(RecordState { path, ..prepared("a", "gpu-0") });
            },
            &[Kind::TwoRecords],
            "claim a has two records",
        ),
        (|s| s.records[0].phase = RecordPhase::Started, &[Kind::HalfDone], "ns/a (a) is half prepared"),
        (|s| s.records[0].phase = RecordPhase::Unpreparing, &[Kind::HalfDone], "half unprepared"),
        (
            |s| {
                s.records[0].phase = RecordPhase::Started;
                s.locks.push(lock("serialize.lock", LockedBy::Claim(vec![uid("b")])));
            },
            &[Kind::HalfDone],
            "nobody is at work",
        ),
        (
            |s| s.records[1].devices[0] = device("gpu-0"),
            &[Kind::DeviceHeldTwice],
            "device node-1/gpu-0 is held by claims ns/a (a) and ns/b (b)",
        ),
        (
            |s| {
                s.records[1].devices[0] = RecordedDevice { share_id: Some("1".to_owned()), ..device("gpu-0") }
            },
            &[Kind::DeviceHeldTwice],
            "gpu-0",
        ),
        (|s| drop(s.cdi_files.remove(0)), &[Kind::CdiFileMissing], "its CDI file is not in /cdi"),
        (
            |s| s.cdi_files[0].sha256.clear(),
            &[Kind::CdiFileChanged],
            "/cdi/a.json of claim ns/a (a) is not as",
        ),
        (
            |s| {
                s.records[0].adopted = true;
                s.records[0].foreign_cdi_file = Some("theirs.json".to_owned());
            },
            &[Kind::CdiFileMissing],
            "/cdi/theirs.json that another program",
        ),
        (
            |s| drop(s.metadata.remove(0)),
            &[Kind::MetadataMissing],
            "request r of claim ns/a (a) is not there",
        ),
        (|s| s.metadata[0].sha256.clear(), &[Kind::MetadataChanged], "is not as it was written"),
        (
            |s| drop(s.records.remove(0)),
            &[Kind::CdiFileWithoutRecord, Kind::MetadataWithoutRecord],
            "no record tells of the claim of CDI file /cdi/a.json",
        ),
        (
            |s| {
                let theirs =
                    CdiFileState { name: "x.json".to_owned(), owner: CdiOwner::Other, ..cdi_file("a") };
                s.cdi_files.push(theirs);
            },
            &[Kind::CdiDeviceTwice],
            "k8s.gpu.example.com/claim=a-gpu is in a.json and x.json",
        ),
        (
            |s| s.temporary.push(Temporary { path: "/d/x.tmp".into(), age: 60 }),
            &[Kind::TemporaryFile],
            "/d/x.tmp was left",
        ),
        (
            |s| s.sockets.push(socket("/r/old.sock", SocketKind::Registration, Liveness::Dead)),
            &[Kind::DeadSocket],
            "nobody listens at /r/old.sock; an instance has died",
        ),
        (
            |s| s.sockets.push(socket("/d/dra.sock", SocketKind::GoDra, Liveness::Dead)),
            &[Kind::DeadSocket],
            "a Go driver has left it",
        ),
        (
            |s| {
                s.locks.clear();
                s.sockets.clear();
            },
            &[Kind::NobodyServes],
            "2 records, and no instance of the driver lives; pods",
        ),
        (
            |s| {
                s.locks.clear();
                s.sockets = vec![socket("/r/go.sock", SocketKind::GoRegistration, Liveness::Live)];
            },
            &[Kind::NobodyServes],
            "a Go driver of this name serves the node",
        ),
        (|s| drop(s.sockets.remove(0)), &[Kind::InstanceWithoutSocket], "has no living registration socket"),
        (|s| drop(s.sockets.remove(1)), &[Kind::InstanceWithoutSocket], "has no living DRA socket"),
        (|s| s.sockets.clear(), &[Kind::InstanceWithoutSocket], "has no living socket"),
        (|s| s.locks.clear(), &[Kind::InstanceWithoutLock], "does not hold /d/instances.lock"),
    ];
    let mut told = BTreeSet::new();
    for (number, (change, expected, text)) in table.iter().enumerate() {
        let mut snapshot = consistent();
        change(&mut snapshot);
        let findings = snapshot.findings();
        let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, *expected, "case {number}: {findings:?}");
        let first = format!("{}; {}", findings[0].what, findings[0].advice);
        assert!(first.contains(text), "case {number}: {first:?} does not say {text:?}");
        told.extend(kinds);
    }
    assert_eq!(told.len(), 18, "each kind has a case");
}

#[test]
fn the_same_thing_is_recognised_in_another_look_though_its_age_differs() {
    let mut snapshot = consistent();
    snapshot.records[0].phase = RecordPhase::Started;
    let [first] = &snapshot.findings()[..] else { panic!("one finding") };
    snapshot.records[0].age += 1;
    assert!(first.is_about_the_same(&snapshot.findings()[0]));
    snapshot.records.swap(0, 1);
    snapshot.records[1].phase = RecordPhase::Prepared;
    snapshot.records[0].phase = RecordPhase::Started;
    assert!(!first.is_about_the_same(&snapshot.findings()[0]));
}

#[test]
fn a_report_is_the_same_after_a_trip_through_json() {
    let snapshot = consistent();
    let report = super::super::Report { findings: snapshot.findings(), snapshot };
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<super::super::Report>(&text).unwrap(), report);
}
