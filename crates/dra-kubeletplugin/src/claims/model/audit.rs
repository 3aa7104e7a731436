//! Compares what there is with what must be.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use dra_cdi::FileId;

use super::{
    api::NODE,
    books::{Base, Demand, Kind},
    driver::Driver,
    hardware::may_share,
    world::{DEVICES, World},
};
use crate::{
    claim::{AllocatedClaim, AllocatedDevice, ClaimRef, DeviceRef},
    claims::{
        AnsweredDevice, Claims,
        record::Record,
        recover::CLAIM_TIMEOUT,
        states::Phase,
        store::{Found, Store},
    },
    held::{HeldClaim, UnprepareReason},
    mutex::locked,
    names::ClaimUid,
};

/// What the disk says of a claim.
#[derive(Debug)]
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
                // No instance lives that could have adopted it.
                None if self.state().checkpoint.has(&claim.uid) => {
                    bases.push((claim.uid.clone(), Base::Between));
                }
                None => {
                    bases.push((claim.uid.clone(), Base::Absent));
                    self.check_absent(claim);
                }
                Some(stored) => {
                    bases.push((claim.uid.clone(), self.check_stored(claim, &stored)));
                    records.push((claim.clone(), stored.record.allocation.results));
                }
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
        let (store, older) = self.stores();
        for claim in older.iter().chain([&store]).flat_map(|store| store.claims().unwrap()) {
            self.problem(format!("the record of {claim} is left over"));
        }
        // Nor anything else, where there are folders: they are missing in runs that keep records in memory.
        let folders = fs::read_dir(self.data().join("claims")).into_iter().flatten();
        let folders = folders.map(|entry| entry.unwrap().path());
        let others = [self.cdi.path().to_owned(), self.data().join("metadata")];
        for folder in folders.chain(others.into_iter().filter(|folder| folder.exists())) {
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

    /// Nor may an instance remember clocks of claims that are over.
    pub(super) fn check_clocks(&self, process: &Claims<Driver>) {
        let clocks = locked(&process.gone).len();
        if clocks > 0 {
            self.problem(format!("the clocks of {clocks} claims are left over"));
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
        self.check_has_nothing(claim);
    }

    /// Only names are remembered, of devices that the kubelet was told once.
    fn check_vacated(&self, claim: &ClaimRef) {
        if !self.state().books.was_prepared(&claim.uid) {
            self.problem(format!("{claim} was never prepared, and names of its devices are remembered"));
        }
        self.check_has_nothing(claim);
    }

    fn check_has_nothing(&self, claim: &ClaimRef) {
        if self.cdi_file(claim).is_some() {
            self.problem(format!("{claim} must be gone and has a CDI file"));
        }
        if !self.metadata_files(claim).is_empty() {
            self.problem(format!("{claim} must be gone and has metadata files"));
        }
        if self.state().hardware.uses(&claim.uid) {
            self.problem(format!("{claim} must be gone and uses devices"));
        }
    }

    fn check_prepared(&self, claim: &ClaimRef, record: &Record) {
        let in_use = self.state().hardware.in_use().get(&claim.uid).cloned();
        if refs(in_use.as_deref().unwrap_or_default()) != refs(&record.allocation.results) {
            self.problem(format!("{claim} is recorded as prepared and the hardware does not agree"));
        }
        if self.cdi_file(claim) != record.cdi.clone().map(String::into_bytes) {
            self.problem(format!("the CDI file of {claim} is not as recorded"));
        }
        if self.metadata_files(claim) != record.metadata {
            self.problem(format!("the metadata files of {claim} are not as recorded"));
        }
    }

    /// What is stored must be sound, whoever asked for what.
    fn check_stored(&self, claim: &ClaimRef, stored: &Stored) -> Base {
        if !stored.older && stored.phase == Phase::Started && stored.record.is_vacated() {
            self.check_vacated(claim);
            return Base::Vacated;
        }
        if stored.older || stored.phase != Phase::Prepared {
            if !self.state().books.may_be_between(&claim.uid) {
                self.problem(format!("{claim} is left half-way, {:?}, without a cause", stored.phase));
            }
            return Base::Between;
        }
        // A wiped CDI folder is healed at start, so this holds after a reboot too.
        self.check_prepared(claim, &stored.record);
        Base::Prepared(stored.record.allocation.clone())
    }

    /// No device may be recorded for two, none in use or powered for nobody.
    fn check_holders<'a>(&self, records: &'a [(ClaimRef, Vec<AllocatedDevice>)]) {
        let mut problems = Vec::new();
        let holds = |(claim, results): &'a (ClaimRef, Vec<AllocatedDevice>)| {
            results.iter().map(move |result| (claim, result))
        };
        let holds: Vec<_> = records.iter().flat_map(holds).collect();
        for (index, (claim, result)) in holds.iter().enumerate() {
            for (other, held) in holds[..index].iter().filter(|(other, _)| other != claim) {
                if !may_share(held, result) {
                    problems.push(format!("{claim} and {other} are recorded for {held:?} and {result:?}"));
                }
            }
        }
        let state = self.state();
        for (uid, devices) in state.hardware.in_use() {
            let recorded = records.iter().find(|(claim, _)| claim.uid == *uid).map(|(_, results)| results);
            let unrecorded = state.checkpoint.has(uid) && recorded.is_none();
            if !unrecorded && !recorded.is_some_and(|results| refs(devices).is_subset(&refs(results))) {
                problems.push(format!("{uid} uses {devices:?} and has a record of {recorded:?}"));
            }
        }
        let unrecorded = state.hardware.in_use().iter().filter(|(uid, _)| state.checkpoint.has(uid));
        let users =
            holds.iter().map(|(_, result)| *result).chain(unrecorded.flat_map(|(_, devices)| devices));
        let users = users.filter(|result| !result.admin_access());
        let users: BTreeSet<&DeviceRef> = users.map(AllocatedDevice::device_ref).collect();
        for device in state.hardware.powered().iter().filter(|device| !users.contains(device)) {
            problems.push(format!("{device} has no user and was never told that the last one left"));
        }
        drop(state);
        for problem in problems {
            self.problem(problem);
        }
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
            let recorded: BTreeSet<ClaimUid> = recorded.map(|(claim, _)| claim.uid.clone()).collect();
            let remembered = process.memory().others(&nobody, &device).into_iter();
            let remembered: BTreeSet<ClaimUid> = remembered.map(|claim| claim.uid).collect();
            if remembered != recorded {
                self.problem(format!(
                    "{device} is remembered for {remembered:?} and recorded for {recorded:?}"
                ));
            }
        }
    }

    /// What the records must say when the driver is told to prepare.
    pub(super) fn check_prepare(&self, claim: &AllocatedClaim, recovering_for: Duration) {
        let name = claim.claim_ref();
        match self.stored(name) {
            Some(Stored { phase: Phase::Started, record, older: false })
                if record.allocation == *claim.allocation() => {}
            Some(Stored { phase: Phase::Prepared, record, older: false }) if record.adopted => {}
            stored => self.problem(format!("{name} is being prepared, recorded is {stored:?}")),
        }
        // Another instance may have the claim in its hands, and its driver hang.
        if recovering_for >= CLAIM_TIMEOUT {
            return;
        }
        let boot = self.state().boot;
        let (_, older) = self.stores();
        for claim in older.iter().flat_map(|store| store.claims().unwrap()) {
            if !self.state().books.was_tried(&claim, boot) {
                self.problem(format!("{name} is prepared before {claim} of an earlier boot is undone"));
            }
        }
    }

    /// What they must say when it is told to undo.
    pub(super) fn check_undo(&self, call: &str, held: &HeldClaim<u64>) {
        let stored = self.stored(&held.claim);
        let fits = stored.as_ref().is_some_and(|stored| match held.reason {
            UnprepareReason::Reboot => stored.older,
            _ if call == "rollback" => !stored.older && stored.phase == Phase::Started,
            _ => !stored.older && stored.phase == Phase::Unpreparing,
        });
        if !fits {
            self.problem(format!("{call} of {}, recorded is {stored:?}", held.claim));
        }
    }

    /// What they must say when it is told of a claim that nothing is known of.
    pub(super) fn check_unknown(&self, claim: &ClaimRef) {
        if let Some(stored) = self.stored(claim) {
            self.problem(format!("{claim} is called unknown, recorded is {stored:?}"));
        }
    }

    fn stored(&self, claim: &ClaimRef) -> Option<Stored> {
        let (current, older) = self.stores();
        let find = |store: &dyn Store, older| match store.load(&claim.uid).unwrap() {
            Found::Nothing => None,
            Found::Stored { phase, record } => Some(Stored { phase, record, older }),
            other => panic!("{other:?}"),
        };
        let mut found = older.iter().filter_map(|store| find(&**store, true)).chain(find(&*current, false));
        let first = found.next();
        // The names of an earlier boot's claim are kept before its record goes: of a death in between two are left, of
        // which the later holds nothing.
        if found.any(|second| second.older || !second.record.is_vacated()) {
            self.problem(format!("{claim} has two records"));
        }
        first
    }

    fn cdi_file(&self, claim: &ClaimRef) -> Option<Vec<u8>> {
        fs::read(self.cdi.path_of(&FileId::new(claim.uid.as_str()).unwrap())).ok()
    }

    /// Content by base request.
    fn metadata_files(&self, claim: &ClaimRef) -> BTreeMap<String, String> {
        let folder = self.data().join("metadata").join(claim.uid.as_str());
        let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let whole = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
        whole.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
    }
}

fn refs(devices: &[AllocatedDevice]) -> BTreeSet<&DeviceRef> {
    devices.iter().map(AllocatedDevice::device_ref).collect()
}

fn device(number: usize) -> DeviceRef {
    DeviceRef::new(NODE.parse().unwrap(), format!("gpu-{number}").parse().unwrap())
}
