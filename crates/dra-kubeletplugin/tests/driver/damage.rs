//! Records that were cut or changed on disk, seen by a process that starts on them.

use std::fs;

use dra_testkit::kubelet::ClaimRef;
use futures::future::join_all;

use crate::support::{Direct, Rig, TestDriver, device, soon};

/// Rounds wait for the disk most of the time, so several nodes are tried at once.
const NODES: usize = 4;

/// Every length below this one is tried; so is every byte of the header.
const HEAD: usize = 100;

/// Steps beyond the head, chosen to share no factor with lines of usual lengths.
const STEP: usize = 13;

/// What a prepared claim leaves, and the claim that wants its device.
struct Victim {
    rig: Rig,
    driver: TestDriver,
    claim: ClaimRef,
    other: ClaimRef,
    record: Vec<u8>,
    cdi: Vec<u8>,
}

/// What has happened to a record.
#[derive(Clone, Copy, Debug)]
enum Damage {
    CutTo(usize),
    Flipped { at: usize, bit: u8 },
}

impl Damage {
    /// All that is tried on a record of this length.
    fn all(length: usize) -> Vec<Self> {
        let places = || (0..HEAD).chain((HEAD..length).step_by(STEP));
        let flips = (0..40).chain((40..length).step_by(STEP));
        // Spreads all eight bits over the places.
        let flips = flips.enumerate().map(|(i, at)| Self::Flipped { at, bit: 1 << (i % 8) });
        places().map(Self::CutTo).chain(flips).collect()
    }

    fn of(self, record: &[u8]) -> Vec<u8> {
        let mut bytes = record.to_vec();
        match self {
            Self::CutTo(length) => bytes.truncate(length),
            Self::Flipped { at, bit } => bytes[at] ^= bit,
        }
        bytes
    }
}

impl Victim {
    async fn new() -> Self {
        let (rig, driver) = (Rig::new(), TestDriver::new());
        let (handle, direct) = Direct::start(&rig, driver.clone(), rig.options()).await;
        let (claim, other) = (rig.claim("one", &[device("gpu-0")]), rig.claim("two", &[device("gpu-0")]));
        direct.prepare_one(&claim).await.unwrap();
        drop(direct);
        soon("shut down", handle.shutdown()).await.unwrap();
        let (record, cdi) = (fs::read(rig.record(&claim)).unwrap(), fs::read(rig.cdi_file(&claim)).unwrap());
        Self { rig, driver, claim, other, record, cdi }
    }

    /// A process finds the damage, gives the device to nobody, heals by an unprepare, and then gives it away.
    async fn heals(&self, damage: Damage, with_cdi_file: bool) {
        let Self { rig, driver, claim, other, .. } = self;
        let record = rig.record(claim);
        fs::write(&record, damage.of(&self.record)).unwrap();
        if with_cdi_file {
            fs::write(rig.cdi_file(claim), &self.cdi).unwrap();
        } else if rig.cdi_file(claim).exists() {
            fs::remove_file(rig.cdi_file(claim)).unwrap();
        }
        let before = driver.log().len();
        let (handle, direct) = Direct::start(rig, driver.clone(), rig.options()).await;
        for wanting in [other, claim] {
            let error = direct.prepare_one(wanting).await.unwrap_err();
            assert!(error.contains(record.to_str().unwrap()), "{damage:?}: {error}");
        }
        assert_eq!(driver.log().len(), before, "{damage:?}");
        direct.unprepare_one(claim).await.unwrap();
        assert_eq!(driver.last_held().state, None, "{damage:?}");
        assert_eq!(rig.files(), [""; 0], "{damage:?}");
        direct.prepare_one(other).await.unwrap();
        direct.unprepare_one(other).await.unwrap();
        let calls = ["unprepare one:  (Unprepare)", "prepare two: gpu-0", "unprepare two: gpu-0 (Unprepare)"];
        assert_eq!(driver.log()[before..], calls, "{damage:?}");
        drop(direct);
        soon("shut down", handle.shutdown()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_whose_record_is_cut_or_changed_anywhere_is_given_to_nobody_until_it_is_unprepared() {
    let began = std::time::Instant::now();
    let nodes = (0..NODES).map(|lane| {
        tokio::spawn(async move {
            let victim = Victim::new().await;
            let mine = Damage::all(victim.record.len()).into_iter().skip(lane).step_by(NODES);
            let mut rounds = 0;
            for (i, damage) in mine.enumerate() {
                victim.heals(damage, i % 2 == 0).await;
                rounds += 1;
            }
            rounds
        })
    });
    let rounds: usize = join_all(nodes).await.into_iter().map(Result::unwrap).sum();
    assert!(rounds > 2 * HEAD, "{rounds}");
    println!("{rounds} starts on damaged records in {:.1} s", began.elapsed().as_secs_f32());
}
