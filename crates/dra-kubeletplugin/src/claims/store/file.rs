//! Records on disk: `claims/<boot id>/<claim uid>.json`, one file for each claim.
//!
//! A claim that is being unprepared has its record renamed to `<claim uid>.unpreparing`: a rename needs no space, so
//! that pods can end on a full disk. Everything here blocks.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{Found, Record, Records, Store, StoreError, failed, reader::read_record};
use crate::{fault, names::ClaimUid};

/// All boots' records in one folder.
#[derive(Clone, Debug)]
pub(crate) struct FileRecords {
    folder: PathBuf,
}

/// The records of one boot.
#[derive(Debug)]
struct FileStore {
    folder: PathBuf,
    /// Whether the folder is there, durably.
    made: AtomicBool,
}

pub(super) const RECORD: &str = "json";
pub(super) const UNPREPARING: &str = "unpreparing";
pub(super) const TEMP: &str = "tmp";

impl FileRecords {
    /// Those of the driver whose folder is `data`.
    pub(crate) fn in_folder(data: &Path) -> Self {
        Self { folder: data.join("claims") }
    }
}

impl Records for FileRecords {
    fn of_boot(&self, boot_id: &str) -> Result<Arc<dyn Store>, StoreError> {
        let store = FileStore::at(self.folder.join(boot_id));
        match store.make() {
            // Pods must be able to end on a full disk; a record that is to be written needs space anyway.
            Err(error) if is_full(&error.source) => {
                tracing::error!(%error, "cannot make the folder of the records yet");
            }
            made => made?,
        }
        Ok(Arc::new(store))
    }

    fn of_other_boots(&self, boot_id: &str) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        let fail = |source| failed("reading folder", &self.folder, source);
        let mut others: Vec<Arc<dyn Store>> = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if entry.file_name() != boot_id && entry.path().is_dir() {
                others.push(Arc::new(FileStore::at(entry.path())));
            }
        }
        Ok(others)
    }
}

impl Store for FileStore {
    fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError> {
        // In this order, one that is renamed meanwhile is found all the same.
        for (extension, unpreparing) in [(RECORD, false), (UNPREPARING, true)] {
            if let Some(found) = read_record(self.path(uid, extension), uid, unpreparing)? {
                return Ok(found);
            }
        }
        Ok(Found::Nothing)
    }

    fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
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

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        self.replace(record, RECORD)?;
        self.sync()
    }

    fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        let (from, to) = (self.path(uid, RECORD), self.path(uid, UNPREPARING));
        let renamed = fault::point("store.rename-unpreparing").and_then(|()| fs::rename(&from, to));
        renamed.map_err(|source| failed("renaming record", &from, source))?;
        self.sync()
    }

    /// The claim has one record at each moment: first the content is changed, then the name.
    fn write_over(&self, record: &Record) -> Result<(), StoreError> {
        let (from, to) = (self.path(&record.claim.uid, UNPREPARING), self.path(&record.claim.uid, RECORD));
        if !from.try_exists().map_err(|source| failed("looking at record", &from, source))? {
            return self.write(record);
        }
        self.replace(record, UNPREPARING)?;
        let renamed = fault::point("store.rename-back").and_then(|()| fs::rename(&from, to));
        renamed.map_err(|source| failed("renaming record", &from, source))?;
        self.sync()
    }

    fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        for extension in [RECORD, UNPREPARING] {
            let path = self.path(uid, extension);
            match or_folder(fault::point("store.unlink").and_then(|()| fs::remove_file(&path)), &path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(failed("removing record", &path, source)),
            }
        }
        self.sync()
    }

    fn remove_if_empty(&self) -> Result<(), StoreError> {
        match fault::point("store.rmdir").and_then(|()| fs::remove_dir(&self.folder)) {
            Ok(()) => Ok(()),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) =>
            {
                Ok(())
            }
            Err(source) => Err(failed("removing folder", &self.folder, source)),
        }
    }

    fn sweep_leftovers(&self, older_than: Duration) -> Result<(), StoreError> {
        let now = SystemTime::now();
        let mut swept = Ok(());
        for path in self.files()? {
            if path.extension().is_none_or(|extension| extension != TEMP) {
                continue;
            }
            let removed = fs::metadata(&path).and_then(|found| {
                // A time in the future counts as now.
                let age = now.duration_since(found.modified()?).unwrap_or_default();
                if age < older_than {
                    return Ok(());
                }
                or_folder(fault::point("store.unlink-leftover").and_then(|()| fs::remove_file(&path)), &path)
            });
            match removed {
                Ok(()) => {}
                // Its writer lives after all, or another instance sweeps too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => swept = Err(failed("removing leftover", &path, source)),
            }
        }
        swept
    }
}

impl FileStore {
    fn at(folder: PathBuf) -> Self {
        Self { folder, made: AtomicBool::default() }
    }

    /// A record is durable only if the folders above it are: its boot's, that of all boots, and the driver's.
    fn make(&self) -> Result<(), StoreError> {
        if self.made.load(Ordering::Acquire) {
            return Ok(());
        }
        let made = fault::point("store.mkdir").and_then(|()| fs::create_dir_all(&self.folder));
        made.map_err(|source| failed("creating folder", &self.folder, source))?;
        for folder in self.folder.ancestors().skip(1).take(3) {
            let synced = fault::point("store.fsync-parent").and_then(|()| File::open(folder)?.sync_all());
            synced.map_err(|source| failed("syncing folder", folder, source))?;
        }
        self.made.store(true, Ordering::Release);
        Ok(())
    }

    /// Not durable before the folder is synced.
    fn replace(&self, record: &Record, extension: &str) -> Result<(), StoreError> {
        self.make()?;
        let path = self.path(&record.claim.uid, extension);
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
        Ok(())
    }

    fn path(&self, uid: &ClaimUid, extension: &str) -> PathBuf {
        self.folder.join(format!("{uid}.{extension}"))
    }

    /// None if there is no folder: it could not be made yet, or another instance has removed it.
    fn files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let fail = |source| failed("reading folder", &self.folder, source);
        match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries.map_err(fail)?.map(|entry| Ok(entry.map_err(fail)?.path())).collect(),
        }
    }

    /// A rename or removal is durable once its folder is.
    fn sync(&self) -> Result<(), StoreError> {
        let folder = match File::open(&self.folder) {
            // Nothing is in it then, which nobody can make more durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => folder,
        };
        let synced =
            folder.and_then(|folder| fault::point("store.fsync-folder").and_then(|()| folder.sync_all()));
        synced.map_err(|source| failed("syncing folder", &self.folder, source))
    }
}

/// A damaged record may be a folder; one that holds something is left for `state repair`.
fn or_folder(removed: io::Result<()>, path: &Path) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            fault::point("store.unlink").and_then(|()| fs::remove_dir(path))
        }
        removed => removed,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fault::point("store.create")?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fault::point("store.write")?;
    file.write_all(bytes)?;
    fault::point("store.fsync-file")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Allocation, ClaimRef};

    fn record(uid: &str) -> Record {
        Record::started(ClaimRef::new("ns", "c", uid.parse().unwrap()), Allocation::default())
    }

    #[test]
    fn damaged_and_misplaced_records_are_told_with_their_path() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileRecords::in_folder(folder.path()).of_boot("boot").unwrap();
        let records = folder.path().join("claims/boot");
        fs::write(records.join("a.json"), "{}").unwrap();
        fs::write(records.join("b.json"), record("c").encode().unwrap()).unwrap();
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
        let store = FileRecords::in_folder(folder.path()).of_boot("boot").unwrap();
        let left = folder.path().join("claims/boot/a.tmp");
        fs::write(&left, "half").unwrap();
        assert_eq!(store.claims().unwrap(), []);
        store.sweep_leftovers(Duration::from_secs(60)).unwrap();
        assert!(left.exists(), "somebody may be writing it");
        let a_minute_ago = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(&left).unwrap().set_modified(a_minute_ago).unwrap();
        store.sweep_leftovers(Duration::from_secs(60)).unwrap();
        assert!(!left.exists());
        fs::write(&left, "half").unwrap();
        store.sweep_leftovers(Duration::ZERO).unwrap();
        assert!(!left.exists());
    }
}
