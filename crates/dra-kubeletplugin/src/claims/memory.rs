//! What this process remembers of the records.

use std::collections::HashMap;

use dra_cdi::{Directory, FileId, Spec};

use super::{
    Failure, StoreError,
    index::Index,
    record::Record,
    store::{FileStore, Found},
};
use crate::{
    claim::{AllocatedDevice, ClaimRef, DeviceRef},
    names::ClaimUid,
};

/// Who holds what, and what is not known because a record cannot be read.
#[derive(Debug, Default)]
pub(super) struct Memory {
    index: Index,
    damaged: HashMap<ClaimUid, Damaged>,
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
    pub(super) fn read(store: &FileStore, older: &[FileStore], cdi: &Directory) -> Result<Self, StoreError> {
        let mut memory = Self::default();
        for uid in store.claims()? {
            match store.load(&uid)? {
                Found::Nothing => {}
                Found::Stored { record, .. } | Found::Newer { record: Some(record), .. } => {
                    memory.insert(&record);
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
            for uid in store.claims_left()? {
                // A damaged one holds nothing: nothing of its boot runs any more.
                if let Found::Stored { record, .. } | Found::Newer { record: Some(record), .. } =
                    store.load(&uid)?
                {
                    memory.insert(&record);
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
    pub(super) fn insert(&mut self, record: &Record) {
        self.index.insert(&record.claim, &record.allocation.results);
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
        Ok(self.index.admit(claim, wanted, conflicts)?)
    }

    /// Lets go of all that the claim holds.
    pub(super) fn release(&mut self, claim: &ClaimUid) {
        self.index.release(claim);
        self.damaged.remove(claim);
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

    fn device(name: &str) -> AllocatedDevice {
        serde_json::from_value(serde_json::json!({"request": "r", "pool": "node-1", "device": name})).unwrap()
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
