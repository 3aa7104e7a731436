//! What this process remembers of the records.

use std::{collections::HashMap, sync::Arc};

use dra_cdi::{Directory, FileId, Spec};

use super::{
    Failure, StoreError,
    index::Index,
    record::Record,
    states::Phase,
    store::{Found, Store},
};
use crate::{
    claim::{AllocatedDevice, ClaimRef, DeviceRef},
    names::ClaimUid,
};

/// Who holds what, and what is not known because a record cannot be read.
#[derive(Debug, Default)]
pub(super) struct Memory {
    index: Index,
    /// Of the claims in the index.
    phases: HashMap<ClaimUid, Phase>,
    damaged: HashMap<ClaimUid, Damaged>,
    /// CDI files of other programs, by the claims that may need them.
    foreign_cdi: HashMap<ClaimUid, String>,
}

/// How many claims there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimCounts {
    pub(crate) started: usize,
    pub(crate) prepared: usize,
    pub(crate) unpreparing: usize,
    /// Those whose records cannot be read.
    pub(crate) damaged: usize,
}

/// A record that cannot be read.
#[derive(Debug)]
struct Damaged {
    /// Which one, for people.
    record: String,
    /// CDI names of the claim's devices, if its CDI file is still there.
    devices: Option<Vec<String>>,
}

impl Memory {
    /// Learns from the records who holds what. Blocks.
    pub(super) fn read(
        store: &dyn Store,
        older: &[Arc<dyn Store>],
        cdi: &Directory,
    ) -> Result<Self, StoreError> {
        let mut memory = Self::default();
        for uid in store.claims()? {
            match store.load(&uid)? {
                Found::Nothing => {}
                Found::Stored { phase, record } | Found::Newer { phase, record: Some(record), .. } => {
                    memory.insert(&record, phase);
                }
                Found::Newer { record: None, format, .. } => {
                    memory.add_damaged(uid, format!("a record of format {format}"), cdi);
                }
                Found::Damaged { path, why } => {
                    tracing::error!(path = %path.display(), why, "a claim's record cannot be read");
                    memory.add_damaged(uid, path.display().to_string(), cdi);
                }
            }
        }
        for store in older {
            for uid in store.claims()? {
                // A damaged one holds nothing: nothing of its boot runs any more. Nor does one of a claim that has devices in
                // this boot.
                if let Found::Stored { phase, record } | Found::Newer { phase, record: Some(record), .. } =
                    store.load(&uid)?
                    && !memory.index.holds_any(&uid)
                {
                    memory.insert(&record, phase);
                }
            }
        }
        Ok(memory)
    }

    fn add_damaged(&mut self, uid: ClaimUid, record: String, cdi: &Directory) {
        let devices = cdi_names(&uid, cdi);
        self.damaged.insert(uid, Damaged { record, devices });
    }

    /// Notes what a new record says, whatever others hold.
    pub(super) fn insert(&mut self, record: &Record, phase: Phase) {
        self.index.insert(&record.claim, &record.allocation.results);
        self.phases.insert(record.claim.uid.clone(), phase);
        if let Some(file) = &record.foreign_cdi {
            self.keep_foreign_cdi(record.claim.uid.clone(), file.clone());
        }
    }

    /// Whether another program wrote a CDI file for the claim.
    pub(super) fn has_foreign_cdi(&self, claim: &ClaimUid) -> bool {
        self.foreign_cdi.contains_key(claim)
    }

    /// The claim needs its foreign CDI file no more. Gives the file, and whether no other claim needs it.
    pub(super) fn drop_foreign_cdi(&mut self, claim: &ClaimUid) -> Option<(String, bool)> {
        let file = self.foreign_cdi.remove(claim)?;
        let last = !self.foreign_cdi.values().any(|other| *other == file);
        Some((file, last))
    }

    /// The claim needs it after all.
    pub(super) fn keep_foreign_cdi(&mut self, claim: ClaimUid, file: String) {
        self.foreign_cdi.insert(claim, file);
    }

    /// Takes the devices for the claim, all or none.
    pub(super) fn admit(
        &mut self,
        claim: &ClaimRef,
        wanted: &[AllocatedDevice],
        conflicts: impl Fn(&DeviceRef, &DeviceRef) -> bool,
    ) -> Result<(), Failure> {
        for (uid, damaged) in self.damaged.iter().filter(|(uid, _)| **uid != claim.uid) {
            if wanted.iter().any(|device| !device.admin_access() && damaged.may_hold(uid, device)) {
                return Err(Failure::Damaged { record: damaged.record.clone() });
            }
        }
        self.index.admit(claim, wanted, conflicts)?;
        self.phases.insert(claim.uid.clone(), Phase::Started);
        Ok(())
    }

    /// Notes what the record of a known claim has come to say.
    pub(super) fn set_phase(&mut self, claim: &ClaimUid, phase: Phase) {
        if let Some(known) = self.phases.get_mut(claim) {
            *known = phase;
        }
    }

    pub(super) fn counts(&self) -> ClaimCounts {
        let of = |phase| self.phases.values().filter(|known| **known == phase).count();
        ClaimCounts {
            started: of(Phase::Started),
            prepared: of(Phase::Prepared),
            unpreparing: of(Phase::Unpreparing),
            damaged: self.damaged.len(),
        }
    }

    /// Lets go of all that the claim holds.
    pub(super) fn release(&mut self, claim: &ClaimUid) {
        self.index.release(claim);
        self.phases.remove(claim);
        self.damaged.remove(claim);
        self.foreign_cdi.remove(claim);
    }

    /// Which other claims use the device.
    pub(super) fn others(&self, claim: &ClaimUid, device: &DeviceRef) -> Vec<ClaimRef> {
        self.index.others(claim, device)
    }

    /// Whether all records can be read.
    pub(super) fn is_intact(&self) -> bool {
        self.damaged.is_empty()
    }
}

impl Damaged {
    /// A CDI name is `<claim uid>-<device>`, and more in some cases, so it tells the device but not the pool. Without
    /// names it may be any device.
    fn may_hold(&self, uid: &ClaimUid, device: &AllocatedDevice) -> bool {
        let Some(names) = &self.devices else { return true };
        let prefix = format!("{uid}-{}", device.device());
        names.iter().any(|name| {
            name.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }
}

/// The names in the claim's CDI file, if there is one that can be read.
fn cdi_names(uid: &ClaimUid, cdi: &Directory) -> Option<Vec<String>> {
    let bytes = cdi.read(&FileId::new(uid.as_str()).ok()?).ok()??;
    let spec = Spec::parse(&bytes).ok()?;
    Some(spec.devices().iter().map(|device| device.name().to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Allocation;

    fn device(name: &str) -> AllocatedDevice {
        serde_json::from_value(serde_json::json!({"request": "r", "pool": "node-1", "device": name})).unwrap()
    }

    #[test]
    fn the_last_claim_that_needs_a_foreign_cdi_file_is_told_so() {
        let record = |uid: &str, file: Option<&str>| Record {
            foreign_cdi: file.map(str::to_owned),
            ..Record::started(ClaimRef::new("ns", "c", uid.parse().unwrap()), Allocation::default())
        };
        let mut memory = Memory::default();
        for (uid, file) in [("a", Some("shared.json")), ("b", Some("shared.json")), ("c", None)] {
            memory.insert(&record(uid, file), Phase::Prepared);
        }
        let mut dropped = |uid: &str| memory.drop_foreign_cdi(&uid.parse().unwrap());
        assert_eq!(dropped("c"), None);
        assert_eq!(dropped("a"), Some(("shared.json".to_owned(), false)));
        assert_eq!(dropped("b"), Some(("shared.json".to_owned(), true)));
        assert_eq!(dropped("b"), None);
    }

    #[test]
    fn claims_are_counted_by_the_state_they_were_last_seen_in() {
        let claim = |uid: &str| ClaimRef::new("ns", "c", uid.parse().unwrap());
        let mut memory = Memory::default();
        for (uid, phase) in [("a", Phase::Prepared), ("b", Phase::Unpreparing)] {
            memory.insert(&Record::started(claim(uid), Allocation::default()), phase);
        }
        memory.admit(&claim("c"), &[device("gpu-0")], |_, _| false).unwrap();
        let counts =
            |started, prepared, unpreparing| ClaimCounts { started, prepared, unpreparing, damaged: 0 };
        assert_eq!(memory.counts(), counts(1, 1, 1));
        memory.set_phase(&claim("c").uid, Phase::Prepared);
        memory.set_phase(&claim("unknown").uid, Phase::Prepared);
        assert_eq!(memory.counts(), counts(0, 2, 1));
        memory.release(&claim("a").uid);
        assert_eq!(memory.counts(), counts(0, 1, 1));
    }

    #[test]
    fn a_damaged_record_holds_the_devices_of_its_cdi_file_or_else_all() {
        let uid: ClaimUid = "claim-1".parse().unwrap();
        let with = |devices: Option<&[&str]>| Damaged {
            record: String::new(),
            devices: devices.map(|names| names.iter().map(ToString::to_string).collect()),
        };
        let known = with(Some(&["claim-1-gpu-1", "claim-1-gpu-2-0b0e26a7"]));
        let holds = |name: &str| known.may_hold(&uid, &device(name));
        assert_eq!(["gpu-1", "gpu-2", "gpu", "gpu-3", "gpu-11"].map(holds), [true, true, true, false, false]);
        assert!(with(None).may_hold(&uid, &device("gpu-3")));
        assert!(!with(Some(&[])).may_hold(&uid, &device("gpu-3")));
    }
}
