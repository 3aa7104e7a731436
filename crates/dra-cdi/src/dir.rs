//! The folder of CDI files, and our files in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::error::{Doing, Error, Failed};
use crate::file_id::{FileId, ForeignFile};
use crate::file_name;
use crate::folder::{self, Folder, Found};
use crate::name::Kind;
use crate::temp::Temp;
use crate::{fault, parse};

/// A CDI folder of the host, as the writer of one kind sees it: a file for each claim.
///
/// Files appear, change and vanish as a whole, whatever crashes: the content is written to a temporary file in the same folder,
/// synced, renamed, and the folder is synced. Other writers' files are never touched.
///
/// All methods block on the disk; call them from `spawn_blocking` in async code. Nothing is kept open between calls, so a
/// `Directory` is cheap to clone and to share, and any number of processes may use one folder.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    kind: Kind,
    mode: u32,
}

/// What [`Directory::ensure`] or [`Directory::restore`] had to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ensured {
    /// The file was there with these bytes.
    Unchanged,
    /// The file was written.
    Written,
}

/// A file of a CDI folder, as [`Directory::look`] finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundFile {
    /// Its name in the folder.
    pub name: String,
    /// Whose it is, going by its name.
    pub owner: FileOwner,
    /// When its content was last written, to the second.
    pub modified: SystemTime,
    /// The kind that it names, if it is JSON: other writers may write YAML.
    pub kind: Option<String>,
    /// The devices that it names, in its order, if it is JSON.
    pub devices: Vec<String>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Whose a file of a CDI folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileOwner {
    /// The writer's of this directory's kind, for the claim with this UID.
    Claim(FileId),
    /// The same writer's, left by a write that was interrupted or is under way. Runtimes do not load it.
    Temporary,
    /// Somebody else's.
    Other,
}

impl Directory {
    /// Opens the folder at `path` (`/var/run/cdi` on most hosts) for files of one kind.
    ///
    /// A missing folder is made, with mode 0755. Writing is tried out with a temporary file, so that a read-only mount shows here
    /// and not at the first claim; a full disk is let pass, since files must be removable then.
    ///
    /// # Errors
    /// [`Error::NotAFolder`] when `path` is a symbolic link or no folder, [`Error::NameTooLong`] when the kind leaves no room for a
    /// claim's UID, and any other [`Error`] when the folder cannot be made or written.
    pub fn open(path: impl AsRef<Path>, kind: Kind) -> Result<Self, Error> {
        let directory = Self::for_reading(path, kind)?;
        file_name::check_length(&directory.kind)?;
        directory.try_out()?;
        Ok(directory)
    }

    /// The same folder for a reader, such as a tool that shows what is there: nothing is made or tried out, and a missing folder
    /// counts as an empty one.
    ///
    /// # Errors
    /// [`Error::Io`] when `path` is empty, or relative and the working folder is gone.
    pub fn for_reading(path: impl AsRef<Path>, kind: Kind) -> Result<Self, Error> {
        let path = path.as_ref();
        let absolute = std::path::absolute(path).doing("finding the CDI folder").map_err(|e| e.on(path))?;
        // Without a slash at its end: one there would make the kernel follow a symbolic link.
        Ok(Self { path: absolute.components().collect(), kind, mode: 0o644 })
    }

    /// Gives the files this mode instead of 0644, as 0600 if the environment of containers may hold secrets. Tools that read CDI
    /// files without root then cannot. Bits above 0777 are ignored.
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o777;
        self
    }

    /// The folder, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of the files.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Where the file of `id` is, or would be. Two ids, or two kinds, never share a path.
    #[must_use]
    pub fn path_of(&self, id: &FileId) -> PathBuf {
        self.path.join(file_name::of(&self.kind, id))
    }

    /// Makes sure that the file of `id` holds `bytes`, with the mode of this directory, and is durable.
    ///
    /// If nothing has to change this costs one read and one sync. Return device IDs to the kubelet only after it succeeded.
    ///
    /// # Errors
    /// Any [`Error`]. The file then has its old or the new content, and calling again is right.
    pub fn ensure(&self, id: &FileId, bytes: &[u8]) -> Result<Ensured, Error> {
        // A file that is unchanged is synced too: its writer may have crashed between its rename and its sync.
        self.put(id, bytes, |_| true)
    }

    /// The same for a file that was durable once, since a durable record says so. Call it at each prepare of a claim that is
    /// prepared: a reboot empties `/var/run/cdi`, and people do.
    ///
    /// If nothing has to change this costs one read.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub fn restore(&self, id: &FileId, bytes: &[u8]) -> Result<Ensured, Error> {
        self.put(id, bytes, |ensured| ensured == Ensured::Written)
    }

    fn put(&self, id: &FileId, bytes: &[u8], syncs: impl Fn(Ensured) -> bool) -> Result<Ensured, Error> {
        let folder = folder::open_or_create(&self.path)?;
        let (name, path) = (file_name::of(&self.kind, id), self.path_of(id));
        let failed = |e: Failed| e.on(&path);
        let ensured = match folder.find(&name).map_err(failed)? {
            Found::File { bytes: found, mode } if found == bytes && mode == self.mode => Ensured::Unchanged,
            Found::Folder => return Err(Error::Occupied { path, what: "a folder" }),
            Found::File { .. } | Found::Other | Found::Nothing => {
                self.replace(&folder, &name, bytes).map_err(failed)?;
                Ensured::Written
            }
        };
        if syncs(ensured) {
            folder.sync().map_err(failed)?;
        }
        Ok(ensured)
    }

    /// Removes the file of `id`; says whether it was there. A missing file, or folder, is a success.
    ///
    /// # Errors
    /// Any [`Error`]; calling again is right. Needs no space on the disk.
    pub fn remove(&self, id: &FileId) -> Result<bool, Error> {
        self.remove_named(&file_name::of(&self.kind, id))
    }

    /// Removes a file that another program wrote; says whether it was there. A missing file, or folder, is a success.
    ///
    /// Whoever calls it has to know that no container needs the file any more.
    ///
    /// # Errors
    /// Any [`Error`]; calling again is right. Needs no space on the disk.
    pub fn remove_foreign(&self, file: &ForeignFile) -> Result<bool, Error> {
        self.remove_named(file.as_str())
    }

    fn remove_named(&self, name: &str) -> Result<bool, Error> {
        let Some(folder) = folder::open(&self.path)? else { return Ok(false) };
        let path = self.path.join(name);
        let removed = match unlink(&folder, name) {
            // A read-only file system says so even if there is nothing to remove.
            Err(error) if error.errno == Errno::EROFS && matches!(folder.modified(name), Ok(None)) => {
                return Ok(false);
            }
            removed => removed.map_err(|error| error.on(&path))?,
        };
        // Also for a missing file: its remover may have crashed before its sync.
        folder.sync().map_err(|e| e.on(&path))?;
        Ok(removed)
    }

    /// The content of the file of `id`, if there is one.
    ///
    /// # Errors
    /// [`Error::Occupied`] when something else stands there, and any other [`Error`] when it cannot be read.
    pub fn read(&self, id: &FileId) -> Result<Option<Vec<u8>>, Error> {
        let Some(folder) = folder::open(&self.path)? else { return Ok(None) };
        let path = self.path_of(id);
        match folder.find(&file_name::of(&self.kind, id)).map_err(|e| e.on(&path))? {
            Found::File { bytes, .. } => Ok(Some(bytes)),
            Found::Nothing => Ok(None),
            Found::Folder => Err(Error::Occupied { path, what: "a folder" }),
            Found::Other => Err(Error::Occupied { path, what: "a symbolic link or special file" }),
        }
    }

    /// The ids of our files, sorted: those whose name has our form and whose content names our kind. A garbage collector removes
    /// the ones that it holds no record of, and only after it has read all its records.
    ///
    /// # Errors
    /// Any [`Error`] when the folder or a file of ours cannot be read.
    pub fn list(&self) -> Result<Vec<FileId>, Error> {
        let Some(folder) = folder::open(&self.path)? else { return Ok(Vec::new()) };
        let kind = self.kind.to_string();
        let mut ids = Vec::new();
        for name in folder.names().map_err(|e| e.on(&self.path))? {
            let Some(id) = file_name::id_in(&self.kind, &name) else { continue };
            let found = folder.find(&name).map_err(|e| e.on(&self.path.join(&name)))?;
            if let Found::File { bytes, .. } = found
                && parse::kind_of(&bytes).is_some_and(|found| found == kind)
            {
                ids.push(id);
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// All files in the folder that runtimes may read, and the temporary ones of our kind, by name. One that vanishes meanwhile is
    /// left out, as are links and special files.
    ///
    /// # Errors
    /// Any [`Error`] when the folder or a file in it cannot be read.
    pub fn look(&self) -> Result<Vec<FoundFile>, Error> {
        let Some(folder) = folder::open(&self.path)? else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for name in folder.names().map_err(|e| e.on(&self.path))? {
            let owner = match file_name::id_in(&self.kind, &name) {
                Some(id) => FileOwner::Claim(id),
                None if file_name::is_temp(&self.kind, &name) => FileOwner::Temporary,
                None if ForeignFile::new(name.as_str()).is_ok() => FileOwner::Other,
                None => continue,
            };
            let failed = |e: Failed| e.on(&self.path.join(&name));
            let modified = folder.modified(&name).map_err(failed)?;
            if let (Some(modified), Found::File { bytes, .. }) =
                (modified, folder.find(&name).map_err(failed)?)
            {
                let (kind, devices) = parse::names_in(&bytes).unzip();
                files.push(FoundFile {
                    name,
                    owner,
                    modified,
                    kind,
                    devices: devices.unwrap_or_default(),
                    bytes,
                });
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// Removes the temporary files that writers of our kind left behind when they crashed, if they are older than `older_than`
    /// by their time of modification; says how many. A minute is safe: a living writer needs milliseconds.
    ///
    /// # Errors
    /// Any [`Error`] when the folder cannot be read or a file not be removed.
    pub fn sweep_temps(&self, older_than: Duration) -> Result<usize, Error> {
        let Some(folder) = folder::open(&self.path)? else { return Ok(0) };
        let now = SystemTime::now();
        let mut swept = 0;
        for name in folder.names().map_err(|e| e.on(&self.path))? {
            if !file_name::is_temp(&self.kind, &name) {
                continue;
            }
            let failed = |e: Failed| e.on(&self.path.join(&name));
            let Some(modified) = folder.modified(&name).map_err(failed)? else { continue };
            // A time in the future counts as now.
            let age = now.duration_since(modified).unwrap_or_default();
            if age >= older_than && unlink(&folder, &name).map_err(failed)? {
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Makes and removes a temporary file.
    fn try_out(&self) -> Result<(), Error> {
        let folder = folder::open_or_create(&self.path)?;
        match Temp::create(&folder, &file_name::of_trial(&self.kind)) {
            Ok(temp) => drop(temp),
            Err(Failed { errno: Errno::ENOSPC | Errno::EDQUOT, .. }) => {}
            Err(failed) => return Err(failed.on(&self.path)),
        }
        Ok(())
    }

    fn replace(&self, folder: &Folder, name: &str, bytes: &[u8]) -> Result<(), Failed> {
        let mut temp = Temp::create(folder, name)?;
        temp.fill(bytes, self.mode)?;
        temp.rename_to(name)
    }
}

/// Unlinks `name`; says whether it was there.
fn unlink(folder: &Folder, name: &str) -> Result<bool, Failed> {
    let unlinked =
        fault::point("cdi.unlink").and_then(|()| unlinkat(folder, name, UnlinkatFlags::NoRemoveDir));
    match unlinked {
        Err(Errno::ENOENT) => Ok(false),
        other => other.doing("removing").map(|()| true),
    }
}
