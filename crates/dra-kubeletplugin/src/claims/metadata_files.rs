//! Metadata files on disk: `metadata/<claim uid>/<base request>.json` in the driver's folder. Everything here blocks.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::store::{StoreError, failed};
use crate::{fault, names::ClaimUid};

/// The files of one driver.
///
/// Containers see a file by a bind mount, so one that is there as it should be is not written again: a rename would
/// leave them with the old one.
#[derive(Clone, Debug)]
pub(crate) struct MetadataFiles {
    folder: PathBuf,
}

/// A file in a claim's folder.
#[derive(Debug)]
pub(crate) struct MetadataFile {
    pub(crate) claim: ClaimUid,
    pub(crate) path: PathBuf,
    pub(crate) modified: SystemTime,
    pub(crate) bytes: Vec<u8>,
}

impl MetadataFile {
    /// The base request that it is for; none if it was left by a write that was interrupted, or is under way.
    pub(crate) fn request(&self) -> Option<&str> {
        self.path.file_name()?.to_str()?.strip_suffix(".json")
    }
}

impl MetadataFiles {
    /// Those of the driver whose folder is `data`.
    pub(crate) fn in_folder(data: &Path) -> Self {
        Self { folder: data.join("metadata") }
    }

    /// Where the file of a base request is, or would be.
    pub(super) fn path_of(&self, claim: &ClaimUid, request: &str) -> PathBuf {
        self.of_claim(claim).join(format!("{request}.json"))
    }

    /// Makes sure that the claim's files are there, by base request. What it has changed is durable.
    pub(super) fn ensure(
        &self,
        claim: &ClaimUid,
        files: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let missing: Vec<_> = files
            .iter()
            .map(|(request, content)| (self.path_of(claim, request), content.as_bytes()))
            .filter(|(path, content)| fs::read(path).map_or(true, |found| found != *content))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let folder = self.of_claim(claim);
        self.make(&folder)?;
        for (path, content) in missing {
            write(&path, content).map_err(|source| failed("writing metadata", &path, source))?;
        }
        let synced = fault::point("metadata.fsync-folder").and_then(|()| File::open(&folder)?.sync_all());
        synced.map_err(|source| failed("syncing folder", &folder, source))
    }

    /// Removes a claim's files; none is a success. Needs no space, and no sync: what a power cut brings back is removed at
    /// the next start.
    pub(crate) fn remove(&self, claim: &ClaimUid) -> Result<(), StoreError> {
        let folder = self.of_claim(claim);
        match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            looked => looked.map_err(|source| failed("looking at metadata", &folder, source))?,
        };
        let removed = fault::point("metadata.remove").and_then(|()| fs::remove_dir_all(&folder));
        removed.map_err(|source| failed("removing metadata", &folder, source))
    }

    /// The claims that have files, in order.
    pub(super) fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
        let fail = |source| failed("reading folder", &self.folder, source);
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(fail)?,
        };
        let mut claims = Vec::new();
        for entry in entries {
            let name = entry.map_err(fail)?.file_name();
            claims.extend(name.to_str().and_then(|name| name.parse::<ClaimUid>().ok()));
        }
        claims.sort();
        Ok(claims)
    }

    /// All files, temporary ones too, by path. Nothing is locked, and what vanishes meanwhile is left out.
    pub(crate) fn look(&self) -> Result<Vec<MetadataFile>, StoreError> {
        let mut files = Vec::new();
        for claim in self.claims()? {
            let folder = self.of_claim(&claim);
            let fail = |source| failed("reading folder", &folder, source);
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(fail)?,
            };
            for entry in entries {
                let path = entry.map_err(fail)?.path();
                if path.is_dir() {
                    continue;
                }
                let read = fs::read(&path).and_then(|bytes| Ok((bytes, fs::metadata(&path)?.modified()?)));
                match read {
                    Ok((bytes, modified)) => {
                        files.push(MetadataFile { claim: claim.clone(), path, modified, bytes });
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(failed("reading metadata", &path, source)),
                }
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    fn of_claim(&self, claim: &ClaimUid) -> PathBuf {
        self.folder.join(claim.as_str())
    }

    /// A file is durable only if the folders above it are.
    fn make(&self, of_claim: &Path) -> Result<(), StoreError> {
        for folder in [self.folder.as_path(), of_claim].into_iter().filter(|folder| !folder.is_dir()) {
            let made = fault::point("metadata.mkdir").and_then(|()| fs::create_dir_all(folder));
            made.map_err(|source| failed("creating folder", folder, source))?;
            let above = folder.parent().unwrap_or(folder);
            let synced = fault::point("metadata.fsync-parent").and_then(|()| File::open(above)?.sync_all());
            synced.map_err(|source| failed("syncing folder", above, source))?;
        }
        Ok(())
    }
}

/// The file appears as a whole, readable to every user of a container.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temp = path.with_extension("tmp");
    fault::point("metadata.create")?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&temp)?;
    fault::point("metadata.write")?;
    file.write_all(content)?;
    // Whatever the umask is.
    fault::point("metadata.chmod")?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    fault::point("metadata.fsync-file")?;
    file.sync_all()?;
    fault::point("metadata.rename")?;
    fs::rename(&temp, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn files_are_written_once_restored_and_removed_by_claim() {
        let data = tempfile::tempdir().unwrap();
        let files = MetadataFiles::in_folder(data.path());
        let [one, two] = ["one", "two"].map(|uid| uid.parse::<ClaimUid>().unwrap());
        let content = BTreeMap::from([("a".to_owned(), "{}".to_owned()), ("b".to_owned(), "[]".to_owned())]);
        let [a, b] = ["a", "b"].map(|request| files.path_of(&one, request));

        files.remove(&one).unwrap();
        assert_eq!(files.claims().unwrap(), []);
        for claim in [&two, &one] {
            files.ensure(claim, &content).unwrap();
        }
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let (before, mode) = (inode(&a), fs::metadata(&a).unwrap().permissions().mode() & 0o777);
        assert_eq!((fs::read(&b).unwrap().as_slice(), mode), (&b"[]"[..], 0o644));

        fs::remove_file(&b).unwrap();
        files.ensure(&one, &content).unwrap();
        assert_eq!((inode(&a), fs::read(&b).unwrap().as_slice()), (before, &b"[]"[..]));
        fs::write(&a, "half").unwrap();
        files.ensure(&one, &content).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"{}");

        assert_eq!(files.claims().unwrap(), [one.clone(), two.clone()]);
        files.remove(&one).unwrap();
        assert_eq!(files.claims().unwrap(), [two]);
        files.ensure(&one, &BTreeMap::new()).unwrap();
        assert!(!a.parent().unwrap().exists());
    }
}
