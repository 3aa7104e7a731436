//! Compares what there is with what must be.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use dra_cdi::{Directory, FileId, Kind as CdiKind};

use super::{
    api::{DRIVER, NODE},
    books::{Base, Demand, Kind},
    driver::Driver,
    world::{DEVICES, World},
};
use crate::{
    claim::{AllocatedDevice, ClaimRef, DeviceRef},
    claims::{
        AnsweredDevice, Claims,
        record::Record,
        states::Phase,
        store::{FileStore, Found},
    },
    names::ClaimUid,
};

/// What the disk says of a claim.
struct Stored {
    phase: Phase,
    record: Box<Record>,
    older: bool,
}

impl World {
    /// A call for the claim was answered with success.
    pub(super) fn check_answer(&self, claim: &ClaimRef, kind: Kind, devices: &[AnsweredDevice]) {
        let demand = self.demand(claim);
        match (kind, &demand) {
            (Kind::Unprepare, Demand::Absent)
            | (Kind::Prepare, Demand::Prepared(_) | Demand::Untouched(_)) => {
                self.check(claim, &demand);
            }
            _ => return,
        }
        if let (Kind::Prepare, Demand::Prepared(allocation) | Demand::Untouched(allocation)) = (kind, demand)
        {
            let told: Vec<_> = devices.iter().map(|device| (&*device.device, &device.share_id)).collect();
            let share = |result: &AllocatedDevice| result.share_id().map(str::to_owned);
            let shares: Vec<_> = allocation.results.iter().map(share).collect();
            let results = allocation.results.iter().map(|result| result.device().as_str());
            if told != results.zip(&shares).collect::<Vec<_>>() {
                self.problem(format!("the answer for {claim} is {told:?}, allocated is {allocation:?}"));
            }
        }
    }

    /// Nothing is going on: everything must fit. Begins a new balance of the books.
    pub(super) fn audit<'a>(&self, processes: impl Iterator<Item = &'a Claims<Driver>>) {
        let claims = self.state().api.all();
        let mut bases = Vec::new();
        let mut records = Vec::new();
        for claim in &claims {
            self.check(claim, &self.demand(claim));
            match self.stored(claim) {
                None => bases.push((claim.uid.clone(), Base::Absent)),
                Some(stored) => {
                    bases.push((claim.uid.clone(), self.check_stored(claim, &stored)));
                    records.push((claim.clone(), stored.record.allocation.results));
                }
            }
            if !records.last().is_some_and(|(last, _)| last == claim) {
                self.check_absent(claim);
            }
        }
        self.check_holders(&records);
        for process in processes {
            self.check_memory(process, &records);
        }
        self.state().books.balance(bases);
    }

    /// After everything was unprepared there must be nothing at all.
    pub(super) fn check_empty(&self) {
        let folders = fs::read_dir(self.data().join("claims")).unwrap().map(|entry| entry.unwrap().path());
        for folder in folders.chain([self.cdi()]) {
            for left in fs::read_dir(folder).unwrap() {
                self.problem(format!("{} is left over", left.unwrap().path().display()));
            }
        }
        let state = self.state();
        let left =
            format!("hardware in use: {:?}, on: {:?}", state.hardware.in_use(), state.hardware.powered());
        let clean = state.hardware.in_use().is_empty() && state.hardware.powered().is_empty();
        drop(state);
        if !clean {
            self.problem(left);
        }
    }

    fn demand(&self, claim: &ClaimRef) -> Demand {
        let state = self.state();
        state.books.demand(&claim.uid, state.api.allocation(claim).as_ref())
    }

    fn check(&self, claim: &ClaimRef, demand: &Demand) {
        match demand {
            Demand::Nothing => {}
            Demand::Absent => self.check_absent(claim),
            Demand::Prepared(allocation) | Demand::Untouched(allocation) => match self.stored(claim) {
                Some(Stored { phase: Phase::Prepared, record, older: false })
                    if record.allocation == *allocation =>
                {
                    self.check_prepared(claim, &record);
                }
                _ => self.problem(format!("{claim} must be prepared with {allocation:?}")),
            },
        }
        let calls = self.state().books.driver_calls(&claim.uid);
        if matches!(demand, Demand::Untouched(_)) && calls > 0 {
            self.problem(format!(
                "{claim} is prepared all the time, and the driver was called {calls} times"
            ));
        }
    }

    fn check_absent(&self, claim: &ClaimRef) {
        if let Some(Stored { phase, older, .. }) = self.stored(claim) {
            self.problem(format!(
                "{claim} must be gone and has a record, {phase:?}, of an older boot: {older}"
            ));
        }
        if self.cdi_file(claim).is_some() {
            self.problem(format!("{claim} must be gone and has a CDI file"));
        }
        if self.state().hardware.uses(&claim.uid) {
            self.problem(format!("{claim} must be gone and uses devices"));
        }
    }

    fn check_prepared(&self, claim: &ClaimRef, record: &Record) {
        let in_use = self.state().hardware.in_use().get(&claim.uid).cloned();
        if in_use.as_ref() != Some(&record.allocation.results) {
            self.problem(format!("{claim} is recorded as prepared and the hardware does not agree"));
        }
        if self.cdi_file(claim) != record.cdi.clone().map(String::into_bytes) {
            self.problem(format!("the CDI file of {claim} is not as recorded"));
        }
    }

    /// What is stored must be sound, whoever asked for what.
    fn check_stored(&self, claim: &ClaimRef, stored: &Stored) -> Base {
        if stored.older || stored.phase != Phase::Prepared {
            return Base::Between;
        }
        // A wiped CDI folder is healed at start, so this holds after a reboot too.
        self.check_prepared(claim, &stored.record);
        Base::Prepared(stored.record.allocation.clone())
    }

    /// No device may be recorded for two, none in use or powered for nobody.
    fn check_holders(&self, records: &[(ClaimRef, Vec<AllocatedDevice>)]) {
        let mut users: BTreeMap<&DeviceRef, Vec<(&ClaimRef, bool)>> = BTreeMap::new();
        for (claim, results) in records {
            for result in results.iter().filter(|result| !result.admin_access()) {
                users.entry(result.device_ref()).or_default().push((claim, result.share_id().is_some()));
            }
        }
        let mut problems = Vec::new();
        for (device, users) in &users {
            if users.len() > 1 && !users.iter().all(|(_, shared)| *shared) {
                problems.push(format!("{device} is recorded for {users:?}"));
            }
        }
        let state = self.state();
        for (uid, devices) in state.hardware.in_use() {
            let recorded = records.iter().find(|(claim, _)| claim.uid == *uid).map(|(_, results)| results);
            if !recorded.is_some_and(|results| devices.iter().all(|device| results.contains(device))) {
                problems.push(format!("{uid} uses {devices:?} and has a record of {recorded:?}"));
            }
        }
        for device in state.hardware.powered().iter().filter(|device| !users.contains_key(device)) {
            problems.push(format!("{device} has no user and was never told that the last one left"));
        }
        drop(state);
        problems.into_iter().for_each(|problem| self.problem(problem));
    }

    /// What an instance trusts to know must be so.
    fn check_memory(&self, process: &Claims<Driver>, records: &[(ClaimRef, Vec<AllocatedDevice>)]) {
        if !process.instance.trusts_memory().unwrap() {
            return;
        }
        let nobody: ClaimUid = "nobody".parse().unwrap();
        for device in (0..DEVICES).map(device) {
            let uses = |result: &AllocatedDevice| !result.admin_access() && *result.device_ref() == device;
            let recorded = records.iter().filter(|(_, results)| results.iter().any(uses));
            let recorded: BTreeSet<ClaimRef> = recorded.map(|(claim, _)| claim.clone()).collect();
            let remembered: BTreeSet<ClaimRef> =
                process.memory().others(&nobody, &device).into_iter().collect();
            if remembered != recorded {
                self.problem(format!(
                    "{device} is remembered for {remembered:?} and recorded for {recorded:?}"
                ));
            }
        }
    }

    fn stored(&self, claim: &ClaimRef) -> Option<Stored> {
        let (current, older) = self.stores();
        let find = |store: &FileStore, older| match store.load(&claim.uid).unwrap() {
            Found::Nothing => None,
            Found::Stored { phase, record } => Some(Stored { phase, record, older }),
            other => panic!("{other:?}"),
        };
        let mut found = older.iter().filter_map(|store| find(store, true)).chain(find(&current, false));
        let first = found.next();
        if found.next().is_some() {
            self.problem(format!("{claim} has two records"));
        }
        first
    }

    fn cdi_file(&self, claim: &ClaimRef) -> Option<Vec<u8>> {
        let folder = Directory::open(self.cdi(), CdiKind::for_driver(DRIVER).unwrap()).unwrap();
        folder.read(&FileId::new(claim.uid.as_str()).unwrap()).unwrap()
    }
}

fn device(number: usize) -> DeviceRef {
    DeviceRef::new(NODE.parse().unwrap(), format!("gpu-{number}").parse().unwrap())
}
