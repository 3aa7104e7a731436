//! An open folder, and looking at what is in it. Knows nothing of CDI.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open as open_path, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat};
use nix::unistd::{fsync, mkdir};

use crate::error::{Doing, Error, Failed};
use crate::fault;

/// A folder, held by a descriptor: what is done through it happens in this folder, whatever becomes of its path.
pub(crate) struct Folder(OwnedFd);

/// What stands under a name of a folder.
pub(crate) enum Found {
    Nothing,
    File {
        bytes: Vec<u8>,
        /// The permission bits.
        mode: u32,
    },
    Folder,
    /// A symbolic link, socket, pipe or device node.
    Other,
}

/// Opens the folder at `path`, unless there is none.
pub(crate) fn open(path: &Path) -> Result<Option<Folder>, Error> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match open_path(path, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(Folder(fd))),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            let what = if path.is_symlink() { "a symbolic link" } else { "not a folder" };
            Err(Error::NotAFolder { path: path.to_owned(), what })
        }
        Err(errno) => Err(Failed { doing: "opening the folder", errno }.on(path)),
    }
}

/// Opens the folder at `path`; makes it, and the folders above it, if they are missing.
pub(crate) fn open_or_create(path: &Path) -> Result<Folder, Error> {
    if let Some(folder) = open(path)? {
        return Ok(folder);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent
        && std::fs::metadata(parent).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    {
        open_or_create(parent)?;
    }
    let failed = |e: Failed| match e.errno {
        // Not the dead folder that `Failed::on` takes it for.
        Errno::ENOENT => Error::Io { doing: e.doing, path: path.to_owned(), source: e.errno.into() },
        _ => e.on(path),
    };
    let mode = Mode::from_bits_truncate(0o755);
    match fault::point("cdi.mkdir").and_then(|()| mkdir(path, mode)) {
        Err(Errno::EEXIST) => {}
        other => other.doing("making the folder").map_err(failed)?,
    }
    let folder = open(path)?.ok_or(Errno::ENOENT).doing("opening the folder").map_err(failed)?;
    // The umask may have taken bits away.
    fchmod(&folder, mode).doing("setting the mode of the folder").map_err(failed)?;
    if let Some(parent) = parent {
        let parent = File::open(parent).doing("opening the folder above").map_err(failed)?;
        fault::point("cdi.fsync-parent")
            .and_then(|()| fsync(&parent))
            .doing("syncing the folder above")
            .map_err(failed)?;
    }
    Ok(folder)
}

impl Folder {
    /// What stands under `name`. A link is not followed.
    pub(crate) fn find(&self, name: &str) -> Result<Found, Failed> {
        let Some(stat) = self.stat(name)? else { return Ok(Found::Nothing) };
        match file_type(&stat) {
            SFlag::S_IFREG => {}
            SFlag::S_IFDIR => return Ok(Found::Folder),
            _ => return Ok(Found::Other),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = match openat(self, name, flags, Mode::empty()) {
            Err(Errno::ENOENT) => return Ok(Found::Nothing),
            other => File::from(other.doing("opening")?),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).doing("reading")?;
        Ok(Found::File { bytes, mode: stat.st_mode & 0o777 })
    }

    /// When the content of `name` last changed, if there is such a file.
    pub(crate) fn modified(&self, name: &str) -> Result<Option<SystemTime>, Failed> {
        let modified = |stat: FileStat| {
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        };
        Ok(self.stat(name)?.filter(|stat| file_type(stat) == SFlag::S_IFREG).map(modified))
    }

    /// The names in the folder, less those that are not UTF-8: none of ours.
    pub(crate) fn names(&self) -> Result<Vec<String>, Failed> {
        // Opened anew: a copy of the descriptor would share its position in the list.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::openat(self, ".", flags, Mode::empty()).doing("listing")?.iter() {
            let entry = entry.doing("listing")?;
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// Makes all renames and removals in the folder durable.
    pub(crate) fn sync(&self) -> Result<(), Failed> {
        fault::point("cdi.fsync-folder").and_then(|()| fsync(self)).doing("syncing the folder of")
    }

    fn stat(&self, name: &str) -> Result<Option<FileStat>, Failed> {
        match fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            other => other.doing("looking at").map(Some),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}
