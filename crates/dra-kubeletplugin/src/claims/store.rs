//! Records on disk: `claims/<boot id>/<claim uid>.json`, one file for each claim.
//!
//! A claim that is being unprepared has its record renamed to `<claim uid>.unpreparing`: a rename needs no space, so
//! that pods can end on a full disk. Everything here blocks.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    record::{Decoded, Record},
    states::Phase,
};
use crate::{error::advice, fault, names::ClaimUid};

/// The records of one boot.
#[derive(Clone, Debug)]
pub(crate) struct FileStore {
    folder: PathBuf,
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

/// A file operation on the records that failed.
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

const RECORD: &str = "json";
const UNPREPARING: &str = "unpreparing";
const TEMP: &str = "tmp";

impl FileStore {
    /// Opens the folder of one boot, made if it is missing.
    pub(crate) fn open(claims: &Path, boot_id: &str) -> Result<Self, StoreError> {
        let store = Self { folder: claims.join(boot_id) };
        let made = fs::create_dir_all(&store.folder);
        made.map_err(|source| failed("creating folder", &store.folder, source))?;
        Ok(store)
    }

    /// Removes what interrupted writes have left. Another living instance may be writing: only for one that is alone.
    pub(crate) fn sweep_temps(&self) -> Result<(), StoreError> {
        for path in self.files()? {
            if path.extension().is_some_and(|extension| extension == TEMP) {
                let removed = fault::point("store.unlink-leftover").and_then(|()| fs::remove_file(&path));
                removed.map_err(|source| failed("removing leftover", &path, source))?;
            }
        }
        Ok(())
    }

    /// The stores of other boots.
    pub(crate) fn of_other_boots(claims: &Path, boot_id: &str) -> Result<Vec<Self>, StoreError> {
        let entries = fs::read_dir(claims).map_err(|source| failed("reading folder", claims, source))?;
        let mut others = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| failed("reading folder", claims, source))?;
            if entry.file_name() != boot_id && entry.path().is_dir() {
                others.push(Self { folder: entry.path() });
            }
        }
        Ok(others)
    }

    /// What is stored about a claim.
    pub(crate) fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError> {
        // In this order, one that is renamed meanwhile is found all the same.
        for (extension, unpreparing) in [(RECORD, false), (UNPREPARING, true)] {
            let path = self.path(uid, extension);
            match fs::read(&path) {
                Ok(bytes) => return Ok(found(path, uid, &bytes, unpreparing)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(failed("reading record", &path, source)),
            }
        }
        Ok(Found::Nothing)
    }

    /// The claims that something is stored about.
    pub(crate) fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let mut uids = Vec::new();
        for path in self.files()? {
            let extension = path.extension().and_then(|extension| extension.to_str());
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            if let (Some(RECORD | UNPREPARING), Some(uid)) =
                (extension, stem.and_then(|stem| stem.parse().ok()))
            {
                uids.push(uid);
            }
        }
        uids.sort();
        uids.dedup();
        Ok(uids)
    }

    /// The same for another boot. Its folder is removed once it is empty, also by other instances.
    pub(crate) fn claims_left(&self) -> Result<Vec<ClaimUid>, StoreError> {
        match self.claims() {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            claims => claims,
        }
    }

    /// Makes a record durable: a reader, or the next process, finds the old one or the new one, whole.
    pub(crate) fn write(&self, record: &Record) -> Result<(), StoreError> {
        let path = self.path(&record.claim.uid, RECORD);
        let bytes = record.encode().map_err(|error| failed("encoding record", &path, error.into()))?;
        let temp = self.path(&record.claim.uid, TEMP);
        let written = write_durably(&temp, &bytes)
            .and_then(|()| fault::point("store.rename"))
            .and_then(|()| fs::rename(&temp, &path));
        if let Err(source) = written {
            // Best effort: the next start removes it too.
            let _ = fault::point("store.unlink-temp").and_then(|()| fs::remove_file(&temp));
            return Err(failed("writing record", &path, source));
        }
        self.sync()
    }

    /// Makes it durable that the claim is on its way out.
    pub(crate) fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        let (from, to) = (self.path(uid, RECORD), self.path(uid, UNPREPARING));
        let renamed = fault::point("store.rename-unpreparing").and_then(|()| fs::rename(&from, to));
        renamed.map_err(|source| failed("renaming record", &from, source))?;
        self.sync()
    }

    /// Makes it durable that nothing is stored about the claim.
    pub(crate) fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        for extension in [RECORD, UNPREPARING] {
            let path = self.path(uid, extension);
            match fault::point("store.unlink").and_then(|()| fs::remove_file(&path)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(failed("removing record", &path, source)),
            }
        }
        self.sync()
    }

    /// Removes the folder of another boot once nothing is left in it.
    pub(crate) fn remove_if_empty(&self) -> Result<(), StoreError> {
        match fault::point("store.rmdir").and_then(|()| fs::remove_dir(&self.folder)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(source) => Err(failed("removing folder", &self.folder, source)),
        }
    }

    fn path(&self, uid: &ClaimUid, extension: &str) -> PathBuf {
        self.folder.join(format!("{uid}.{extension}"))
    }

    fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let fail = |source| failed("reading folder", &self.folder, source);
        fs::read_dir(&self.folder).map_err(fail)?.map(|entry| Ok(entry.map_err(fail)?.path())).collect()
    }

    /// A rename or removal is durable once its folder is.
    fn sync(&self) -> Result<(), StoreError> {
        let synced = File::open(&self.folder)
            .and_then(|folder| fault::point("store.fsync-folder").map(|()| folder))
            .and_then(|folder| folder.sync_all());
        synced.map_err(|source| failed("syncing folder", &self.folder, source))
    }
}

fn found(path: PathBuf, uid: &ClaimUid, bytes: &[u8], unpreparing: bool) -> Found {
    match Decoded::from_bytes(bytes) {
        Decoded::Record(record) if record.claim.uid != *uid => {
            let why = format!("it tells of claim {}", record.claim);
            Found::Damaged { path, why }
        }
        Decoded::Record(record) => {
            let phase = match (unpreparing, record.completed) {
                (true, _) => Phase::Unpreparing,
                (false, true) => Phase::Prepared,
                (false, false) => Phase::Started,
            };
            Found::Stored { phase, record }
        }
        Decoded::Newer { format, record } => {
            let phase = if unpreparing { Phase::Unpreparing } else { Phase::Prepared };
            Found::Newer { format, phase, record }
        }
        Decoded::Damaged { why } => Found::Damaged { path, why },
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fault::point("store.create")?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fault::point("store.write")?;
    file.write_all(bytes)?;
    fault::point("store.fsync-file")?;
    file.sync_all()
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError { operation, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Allocation, ClaimRef};

    fn record(uid: &str) -> Record {
        Record::started(ClaimRef::new("ns", "c", uid.parse().unwrap()), Allocation::default())
    }

    fn phase(store: &FileStore, uid: &str) -> Option<Phase> {
        match store.load(&uid.parse().unwrap()).unwrap() {
            Found::Nothing => None,
            Found::Stored { phase, .. } => Some(phase),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_goes_through_its_phases_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path(), "boot").unwrap();
        let mut record = record("a");
        let uid = record.claim.uid.clone();
        assert_eq!(phase(&store, "a"), None);
        store.write(&record).unwrap();
        assert_eq!(phase(&store, "a"), Some(Phase::Started));
        record.completed = true;
        store.write(&record).unwrap();
        assert_eq!(phase(&store, "a"), Some(Phase::Prepared));
        store.mark_unpreparing(&uid).unwrap();
        assert_eq!(phase(&store, "a"), Some(Phase::Unpreparing));
        assert_eq!(store.claims().unwrap(), std::slice::from_ref(&uid));
        store.remove(&uid).unwrap();
        store.remove(&uid).unwrap();
        assert_eq!(phase(&store, "a"), None);
        assert_eq!(fs::read_dir(folder.path().join("boot")).unwrap().count(), 0);
    }

    #[test]
    fn damaged_and_misplaced_records_are_told_with_their_path() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path(), "boot").unwrap();
        fs::write(folder.path().join("boot/a.json"), "{}").unwrap();
        fs::write(folder.path().join("boot/b.json"), record("c").encode().unwrap()).unwrap();
        for uid in ["a", "b"] {
            let found = store.load(&uid.parse().unwrap()).unwrap();
            assert!(
                matches!(&found, Found::Damaged { path, .. } if path.ends_with(format!("{uid}.json"))),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_an_interrupted_write_left_is_no_record_and_can_be_swept() {
        let folder = tempfile::tempdir().unwrap();
        FileStore::open(folder.path(), "boot").unwrap();
        fs::write(folder.path().join("boot/a.tmp"), "half").unwrap();
        let store = FileStore::open(folder.path(), "boot").unwrap();
        assert_eq!(store.claims().unwrap(), []);
        store.sweep_temps().unwrap();
        assert!(!folder.path().join("boot/a.tmp").exists());
    }

    #[test]
    fn stores_of_other_boots_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for boot in ["old", "new"] {
            FileStore::open(folder.path(), boot).unwrap().write(&record(boot)).unwrap();
        }
        let [old] = &FileStore::of_other_boots(folder.path(), "new").unwrap()[..] else { panic!() };
        let [uid] = &old.claims().unwrap()[..] else { panic!() };
        assert_eq!(uid.as_str(), "old");
        old.remove_if_empty().unwrap();
        assert!(folder.path().join("old").exists(), "still holds a record");
        old.remove(uid).unwrap();
        old.remove_if_empty().unwrap();
        assert!(!folder.path().join("old").exists());
    }
}
