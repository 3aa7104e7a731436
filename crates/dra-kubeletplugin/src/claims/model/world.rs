//! What all instances of a run share, and what outlives them.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use dra_cdi::{Directory, Kind};
use tempfile::TempDir;

use super::{
    api::{Api, DRIVER},
    books::Books,
    checkpoint::Checkpoint,
    dice::Dice,
    hardware::Hardware,
};
use crate::{
    claim::ClaimRef,
    claims::store::{FileRecords, MemoryRecords, Records, Store},
    mutex::locked,
    names::ClaimUid,
};

/// Claim objects that exist at a time.
pub(super) const CLAIMS: usize = 5;
pub(super) const DEVICES: usize = 3;

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) cdi: Directory,
    /// In memory in every other run.
    pub(super) records: Arc<dyn Records>,
    state: Mutex<State>,
    folder: TempDir,
}

/// Everything that changes in a run.
pub(super) struct State {
    pub(super) api: Api,
    pub(super) books: Books,
    pub(super) hardware: Hardware,
    pub(super) checkpoint: Checkpoint,
    /// Counts reboots; it makes the boot id.
    pub(super) boot: u64,
    /// Nothing fails or takes long any more.
    pub(super) calm: bool,
    pub(super) log: Vec<String>,
    pub(super) problems: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        // Syncs cost next to nothing in memory.
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dice = Dice::new(seed);
        let api = Api::new(&dice);
        let folder = folder.unwrap();
        let cdi = Directory::open(folder.path().join("cdi"), Kind::for_driver(DRIVER).unwrap()).unwrap();
        std::fs::create_dir(data(&folder)).unwrap();
        let records: Arc<dyn Records> = match seed % 2 {
            0 => Arc::new(MemoryRecords::default()),
            _ => Arc::new(FileRecords::in_folder(&data(&folder))),
        };
        records.of_boot(&boot_id(0)).unwrap();
        let (mut books, mut hardware) = (Books::default(), Hardware::default());
        let checkpoint = Checkpoint::random(&dice, &api, &mut hardware, &mut books);
        let state = State {
            api,
            books,
            hardware,
            checkpoint,
            boot: 0,
            calm: false,
            log: Vec::new(),
            problems: Vec::new(),
        };
        Arc::new(Self { dice, cdi, records, state: Mutex::new(state), folder })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The driver's folder.
    pub(super) fn data(&self) -> PathBuf {
        data(&self.folder)
    }

    pub(super) fn boot_id(&self) -> String {
        boot_id(self.state().boot)
    }

    /// The machine is started anew: no instance lives, and the hardware may have forgotten everything.
    pub(super) fn reboot(&self) {
        let (forgets, wiped) = (self.dice.one_in(2), self.dice.one_in(2));
        self.note(format!("reboot; hardware forgets: {forgets}, CDI folder wiped: {wiped}"));
        let mut state = self.state();
        state.boot += 1;
        self.records.of_boot(&boot_id(state.boot)).unwrap();
        state.books.reboot();
        let unrecorded = state.checkpoint.clear();
        let recorded = self.recorded();
        for claim in unrecorded.into_iter().filter(|claim| !recorded.contains(claim)) {
            state.hardware.forget_claim(&claim);
        }
        if forgets {
            state.hardware.forget();
        }
        if wiped {
            std::fs::remove_dir_all(self.cdi.path()).unwrap();
            std::fs::create_dir(self.cdi.path()).unwrap();
        }
    }

    /// All claims with a record.
    pub(super) fn recorded(&self) -> BTreeSet<ClaimUid> {
        let stores = self.records.of_other_boots("").unwrap();
        stores.iter().flat_map(|store| store.claims().unwrap()).collect()
    }

    /// The records of this boot, and those of earlier ones.
    pub(super) fn stores(&self) -> (Arc<dyn Store>, Vec<Arc<dyn Store>>) {
        let boot_id = self.boot_id();
        (self.records.of_boot(&boot_id).unwrap(), self.records.of_other_boots(&boot_id).unwrap())
    }

    pub(super) fn note(&self, text: impl Into<String>) {
        self.state().log.push(text.into());
    }

    pub(super) fn problem(&self, text: impl Into<String>) {
        let text = text.into();
        let mut state = self.state();
        state.log.push(format!("DIVERGENCE: {text}"));
        state.problems.push(text);
    }

    /// The whole story, if anything went wrong.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let state = self.state();
        if state.problems.is_empty() {
            return Ok(());
        }
        Err(format!("{}\n\n{}", state.problems.join("\n"), state.log.join("\n")))
    }
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn boot_id(boot: u64) -> String {
    format!("boot-{boot}")
}

/// Claim `index` in its `generation`: a claim that is deleted and made again has the same name and another UID.
pub(super) fn claim_ref(index: usize, generation: u64) -> ClaimRef {
    ClaimRef::new("ns", format!("c{index}"), format!("uid-{index}-{generation}").parse().unwrap())
}
