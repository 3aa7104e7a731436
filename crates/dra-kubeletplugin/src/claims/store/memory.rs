//! Records in memory, for tests: what a driver may rely on, and nothing else of a disk.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{Found, Record, Records, Store, StoreError, failed};
use crate::{mutex::locked, names::ClaimUid};

/// The records of all boots; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryRecords(Arc<Mutex<BTreeMap<String, BTreeMap<ClaimUid, Stored>>>>);

/// The record of a claim as it would be on disk, so that what it cannot keep is lost here too.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Vec<u8>,
    unpreparing: bool,
}

#[derive(Debug)]
struct MemoryStore {
    records: MemoryRecords,
    boot_id: String,
}

impl Records for MemoryRecords {
    fn of_boot(&self, boot_id: &str) -> Result<Arc<dyn Store>, StoreError> {
        locked(&self.0).entry(boot_id.to_owned()).or_default();
        Ok(self.store(boot_id))
    }

    fn of_other_boots(&self, boot_id: &str) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        let boots: Vec<String> = locked(&self.0).keys().cloned().collect();
        Ok(boots.iter().filter(|boot| *boot != boot_id).map(|boot| self.store(boot)).collect())
    }
}

impl MemoryRecords {
    fn store(&self, boot_id: &str) -> Arc<dyn Store> {
        Arc::new(MemoryStore { records: self.clone(), boot_id: boot_id.to_owned() })
    }
}

impl Store for MemoryStore {
    fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError> {
        let boots = locked(&self.records.0);
        let stored = boots.get(&self.boot_id).and_then(|claims| claims.get(uid));
        Ok(stored.map_or(Found::Nothing, |stored| {
            Found::from_bytes(self.path(uid), uid, &stored.bytes, stored.unpreparing)
        }))
    }

    fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let boots = locked(&self.records.0);
        Ok(boots.get(&self.boot_id).into_iter().flat_map(|claims| claims.keys().cloned()).collect())
    }

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        let uid = &record.claim.uid;
        let encoded = record.encode().map_err(|error| failed("writing", &self.path(uid), error.into()));
        let stored = Stored { bytes: encoded?, unpreparing: false };
        locked(&self.records.0).entry(self.boot_id.clone()).or_default().insert(uid.clone(), stored);
        Ok(())
    }

    fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        let mut boots = locked(&self.records.0);
        let stored = boots.get_mut(&self.boot_id).and_then(|claims| claims.get_mut(uid));
        let stored = stored.filter(|stored| !stored.unpreparing).ok_or(io::ErrorKind::NotFound);
        stored.map_err(|kind| failed("marking", &self.path(uid), kind.into()))?.unpreparing = true;
        Ok(())
    }

    fn write_over(&self, record: &Record) -> Result<(), StoreError> {
        self.write(record)
    }

    fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        if let Some(claims) = locked(&self.records.0).get_mut(&self.boot_id) {
            claims.remove(uid);
        }
        Ok(())
    }

    fn sweep_leftovers(&self, _: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    fn remove_if_empty(&self) -> Result<(), StoreError> {
        let mut boots = locked(&self.records.0);
        if boots.get(&self.boot_id).is_some_and(BTreeMap::is_empty) {
            boots.remove(&self.boot_id);
        }
        Ok(())
    }
}

impl MemoryStore {
    fn path(&self, uid: &ClaimUid) -> PathBuf {
        PathBuf::from(format!("{}/{uid}", self.boot_id))
    }
}
