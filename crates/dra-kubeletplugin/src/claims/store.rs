//! Where records of claims are kept, by boot: as files (`file`), or in memory for tests (`memory`).

mod file;
mod listing;
#[cfg(test)]
mod memory;
mod reader;

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    record::{Decoded, Record},
    states::Phase,
};
use crate::{error::advice, names::ClaimUid};

pub(crate) use file::FileRecords;
pub(crate) use listing::{Content, RecordFile, record_files};
#[cfg(test)]
pub(crate) use memory::MemoryRecords;
pub(super) use reader::read_record;

/// The records of one driver on one node. All methods block, also those of the stores.
pub(crate) trait Records: Debug + Send + Sync {
    /// The store of one boot, made if it is missing.
    fn of_boot(&self, boot_id: &str) -> Result<Arc<dyn Store>, StoreError>;

    /// The stores of other boots.
    fn of_other_boots(&self, boot_id: &str) -> Result<Vec<Arc<dyn Store>>, StoreError>;
}

/// The records of one boot. What a method has changed when it returns is durable; a process that dies within one leaves
/// what was before or what is wanted, whole.
pub(crate) trait Store: Debug + Send + Sync {
    /// What is stored about a claim.
    fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError>;

    /// The claims that something is stored about, in order.
    fn claims(&self) -> Result<Vec<ClaimUid>, StoreError>;

    /// Stores a record, in place of the claim's former one.
    fn write(&self, record: &Record) -> Result<(), StoreError>;

    /// Notes that the claim is on its way out. Needs no space.
    fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError>;

    /// Stores a record in place of the claim's former one, be that one on its way out.
    fn write_over(&self, record: &Record) -> Result<(), StoreError>;

    /// Forgets a claim; one that nothing is stored about is a success. Needs no space.
    fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError>;

    /// Removes what interrupted writes have left, as far as it is this old: another living instance may be writing.
    fn sweep_leftovers(&self, older_than: Duration) -> Result<(), StoreError>;

    /// Removes the store of another boot once nothing is left in it.
    fn remove_if_empty(&self) -> Result<(), StoreError>;
}

/// What is stored about a claim.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Stored {
        phase: Phase,
        record: Box<Record>,
    },
    /// Written by a later version.
    Newer {
        format: u32,
        /// `Prepared` or `Unpreparing`: only the file's name can be trusted to mean the same.
        phase: Phase,
        record: Option<Box<Record>>,
    },
    /// Something unreadable.
    Damaged {
        path: PathBuf,
        why: String,
    },
}

/// A file operation on the records, or on what is kept beside them, that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}{}", path.display(), advice(source))]
#[non_exhaustive]
pub struct StoreError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Found {
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// As much of the record as can be read.
    pub(super) fn record(&self) -> Option<&Record> {
        match self {
            Self::Stored { record, .. } | Self::Newer { record: Some(record), .. } => Some(record),
            Self::Nothing | Self::Newer { record: None, .. } | Self::Damaged { .. } => None,
        }
    }

    /// Whether this boot's driver has nothing of the claim: no record, or one that only remembers names.
    pub(super) fn has_no_devices(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Stored { record, .. } => record.is_vacated(),
            Self::Newer { .. } | Self::Damaged { .. } => false,
        }
    }

    /// Judges the bytes stored under a claim's UID.
    fn from_bytes(path: PathBuf, uid: &ClaimUid, bytes: &[u8], unpreparing: bool) -> Self {
        match Decoded::from_bytes(bytes) {
            Decoded::Record(record) if record.claim.uid != *uid => {
                let why = format!("it tells of claim {}", record.claim);
                Self::Damaged { path, why }
            }
            Decoded::Record(record) => {
                let phase = match (unpreparing, record.completed) {
                    (true, _) => Phase::Unpreparing,
                    (false, true) => Phase::Prepared,
                    (false, false) => Phase::Started,
                };
                Self::Stored { phase, record }
            }
            Decoded::Newer { format, record } => {
                let phase = if unpreparing { Phase::Unpreparing } else { Phase::Prepared };
                Self::Newer { format, phase, record }
            }
            Decoded::Damaged { why } => Self::Damaged { path, why },
        }
    }
}

pub(super) fn failed(operation: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
