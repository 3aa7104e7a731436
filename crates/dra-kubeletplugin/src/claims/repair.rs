//! What commands from outside need: damaged records, locks, and a word to running instances. Blocks on files.

use std::path::{Path, PathBuf};

use tokio::time::Instant;

use super::{
    StoreError, instance,
    locks::{Held, Locks},
    store::{FileRecords, Found, Records as _, read_record},
};
use crate::{lock::LockError, names::ClaimUid};

/// A record that cannot be read.
#[derive(Debug)]
pub(crate) struct DamagedRecord {
    pub(crate) claim: ClaimUid,
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

impl DamagedRecord {
    /// Whether the record is still there and cannot be read. The caller has the claim's lock.
    pub(crate) fn is_still_damaged(&self) -> Result<bool, StoreError> {
        let found = read_record(self.path.clone(), &self.claim, false)?;
        Ok(matches!(found, Some(Found::Damaged { .. })))
    }
}

/// Damaged records of all boots. Those of a later version are not damaged.
pub(crate) fn damaged_records(data: &Path) -> Result<Vec<DamagedRecord>, StoreError> {
    let mut damaged = Vec::new();
    for store in FileRecords::in_folder(data).of_other_boots("")? {
        for claim in store.claims()? {
            if let Found::Damaged { path, why } = store.load(&claim)? {
                damaged.push(DamagedRecord { claim, path, why });
            }
        }
    }
    Ok(damaged)
}

/// Whether there is a record, of whichever boot.
pub(crate) fn any_records(data: &Path) -> Result<bool, StoreError> {
    for store in FileRecords::in_folder(data).of_other_boots("")? {
        if !store.claims()?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Keeps the driver's instances away from a claim.
pub(crate) async fn lock_claim(data: &Path, claim: &ClaimUid, deadline: Instant) -> Result<Held, LockError> {
    Locks::in_folder(data).claim(claim, deadline).await
}

/// Makes running instances read the records anew.
pub(crate) async fn tell_of_change(data: &Path, deadline: Instant) -> Result<(), LockError> {
    let locks = Locks::in_folder(data);
    let _admission = locks.admission(deadline).await?;
    instance::count_change(data)
}
