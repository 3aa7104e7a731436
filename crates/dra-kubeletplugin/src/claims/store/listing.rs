//! All files of the records, for a reader: nothing is locked, made or removed, and what vanishes meanwhile is left out.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{Found, StoreError, failed, file, reader::read_record};
use crate::names::ClaimUid;

/// A file among the records.
#[derive(Debug)]
pub(crate) struct RecordFile {
    pub(crate) boot_id: String,
    pub(crate) path: PathBuf,
    /// When its content was last written; to be marked as unpreparing does not count.
    pub(crate) modified: SystemTime,
    pub(crate) content: Content,
}

/// What a file among the records is.
#[derive(Debug)]
pub(crate) enum Content {
    Record {
        uid: ClaimUid,
        /// Not [`Found::Nothing`].
        found: Found,
    },
    /// Left by a write that was interrupted, or is under way.
    Temporary,
}

/// Those of all boots of the driver whose folder is `data`, by path.
pub(crate) fn record_files(data: &Path) -> Result<Vec<RecordFile>, StoreError> {
    // By path: one that is renamed meanwhile may be met twice.
    let mut files = BTreeMap::new();
    for boot in entries(&data.join("claims"))? {
        let Some(boot_id) = boot.file_name().and_then(OsStr::to_str).filter(|_| boot.is_dir()) else {
            continue;
        };
        for path in entries(&boot)? {
            if let Some(file) = read(boot_id, path)? {
                files.insert(file.path.clone(), file);
            }
        }
    }
    Ok(files.into_values().collect())
}

fn read(boot_id: &str, path: PathBuf) -> Result<Option<RecordFile>, StoreError> {
    let extension = path.extension().and_then(OsStr::to_str);
    let uid = path.file_stem().and_then(OsStr::to_str).and_then(|stem| stem.parse::<ClaimUid>().ok());
    let of = |path: PathBuf, modified, content| {
        Some(RecordFile { boot_id: boot_id.to_owned(), path, modified, content })
    };
    let (uid, unpreparing) = match (extension, uid) {
        (Some(file::TEMP), _) => {
            let modified = modified(&path)?;
            return Ok(modified.and_then(|modified| of(path, modified, Content::Temporary)));
        }
        (Some(file::RECORD), Some(uid)) => (uid, false),
        (Some(file::UNPREPARING), Some(uid)) => (uid, true),
        _ => return Ok(None),
    };
    let Some(modified) = modified(&path)? else {
        // It may have been marked since the folder was listed.
        let marked = path.with_extension(file::UNPREPARING);
        return if unpreparing { Ok(None) } else { read(boot_id, marked) };
    };
    let Some(found) = read_record(path.clone(), &uid, unpreparing)? else { return Ok(None) };
    Ok(of(path, modified, Content::Record { uid, found }))
}

fn modified(path: &Path) -> Result<Option<SystemTime>, StoreError> {
    match fs::symlink_metadata(path).and_then(|found| found.modified()) {
        Ok(modified) => Ok(Some(modified)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("looking at record", path, error)),
    }
}

/// None if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let fail = |source| failed("reading folder", folder, source);
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(fail)?.map(|entry| Ok(entry.map_err(fail)?.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        claim::{Allocation, ClaimRef},
        claims::record::Record,
    };

    #[test]
    fn records_of_all_boots_and_temporary_files_are_listed_and_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        assert!(record_files(data.path()).unwrap().is_empty());
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
        let [one, two] = ["boot-1", "boot-2"].map(|boot| data.path().join("claims").join(boot));
        let record = |uid: &str| {
            Record::started(ClaimRef::new("ns", "c", uid.parse().unwrap()), Allocation::default())
                .encode()
                .unwrap()
        };
        for (folder, name, bytes) in [
            (&one, "a.json", record("a")),
            (&one, "b.unpreparing", record("b")),
            (&one, "c.tmp", b"half".to_vec()),
            (&one, "readme", b"".to_vec()),
            (&one, "-.json", b"".to_vec()),
            (&two, "d.json", b"cut".to_vec()),
        ] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), bytes).unwrap();
        }
        fs::create_dir(two.join("e.json")).unwrap();
        fs::write(data.path().join("claims/file"), "").unwrap();
        let listed: Vec<_> = record_files(data.path())
            .unwrap()
            .into_iter()
            .map(|file| {
                let kind = match file.content {
                    Content::Temporary => "temporary".to_owned(),
                    Content::Record { uid, found: Found::Damaged { .. } } => format!("{uid} damaged"),
                    Content::Record { uid, found: Found::Stored { phase, .. } } => format!("{uid} {phase:?}"),
                    Content::Record { uid, found } => panic!("{uid}: {found:?}"),
                };
                format!("{} {kind}", file.boot_id)
            })
            .collect();
        let expected = [
            "boot-1 a Started",
            "boot-1 b Unpreparing",
            "boot-1 temporary",
            "boot-2 d damaged",
            "boot-2 e damaged",
        ];
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_record_that_is_marked_meanwhile_is_found_under_its_new_name() {
        let boot = tempfile::tempdir().unwrap();
        fs::write(boot.path().join("a.unpreparing"), "cut").unwrap();
        let found = read("boot", boot.path().join("a.json")).unwrap().unwrap();
        assert!(found.path.ends_with("a.unpreparing"));
        assert!(read("boot", boot.path().join("b.json")).unwrap().is_none());
    }
}
