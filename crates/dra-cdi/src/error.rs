//! What can go wrong between a [`Directory`](crate::Directory) and the disk.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// A failed operation on the CDI folder: what was being done, on which path, and what helps.
///
/// Whatever the error, a file has either its old or its new content; a half-written one is never seen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The path is not a plain folder.
    #[error(
        "the CDI folder {path:?} is {what}: name a real folder, the one that the container runtime reads \
         (some runtimes ignore a symbolic link, and some stop reading other folders at it)"
    )]
    NotAFolder {
        /// The folder.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Files of this kind would have names longer than a file system takes.
    #[error(
        "the names of CDI files of the kind {kind} would have up to {length} bytes, {limit} are possible: use a shorter kind"
    )]
    NameTooLong {
        /// The kind.
        kind: String,
        /// The bytes of the longest name that can be needed.
        length: usize,
        /// The most that are possible.
        limit: usize,
    },
    /// Something else stands at the place of a file.
    #[error("{path:?} is {what}, not a CDI file: remove it")]
    Occupied {
        /// The file's place.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
    },
    /// No space (ENOSPC).
    #[error(
        "{doing} {path:?}: no space left on the file system: free some; what was there before is unchanged"
    )]
    Full {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The quota is used up (EDQUOT).
    #[error("{doing} {path:?}: the disk quota is used up: raise it; what was there before is unchanged")]
    Quota {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A read-only file system (EROFS).
    #[error(
        "{doing} {path:?}: the file system is read-only: mount it writable (check the volume mount of the driver's pod)"
    )]
    ReadOnly {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Access denied (EACCES, EPERM).
    #[error("{doing} {path:?}: access denied: run as root, and under SELinux in a privileged container")]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder could be opened, but nothing can be made in it (ENOENT): it was deleted under a bind mount.
    #[error(
        "{doing} {path:?}: the folder was deleted meanwhile: try again; if that fails too, it was deleted on the host \
         and a new one cannot be seen through the volume mount: restart the driver's pod"
    )]
    Gone {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Any other error of the system.
    #[error("{doing} {path:?}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A step that failed; its path is added by whoever knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) doing: &'static str,
    pub(crate) errno: Errno,
}

impl Failed {
    /// Turns the error of a step into an [`Error`] about `path`.
    pub(crate) fn on(self, path: &Path) -> Error {
        let Self { doing, errno } = self;
        let (path, source) = (path.to_owned(), io::Error::from(errno));
        match errno {
            Errno::ENOSPC => Error::Full { doing, path, source },
            Errno::EDQUOT => Error::Quota { doing, path, source },
            Errno::EROFS => Error::ReadOnly { doing, path, source },
            Errno::EACCES | Errno::EPERM => Error::Denied { doing, path, source },
            Errno::ENOENT => Error::Gone { doing, path, source },
            Errno::EISDIR => Error::Occupied { path, what: "a folder" },
            _ => Error::Io { doing, path, source },
        }
    }
}

/// Says what was being done when a step failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, Failed>;
}

impl<T> Doing<T> for nix::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Failed> {
        self.map_err(|errno| Failed { doing, errno })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Failed> {
        self.map_err(|e| Failed { doing, errno: e.raw_os_error().map_or(Errno::EIO, Errno::from_raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_a_quota_a_read_only_disk_denied_access_and_a_dead_folder_are_told_apart() {
        type Is = fn(&Error) -> bool;
        let table: [(Errno, Is, &str); 8] = [
            (Errno::ENOSPC, |e| matches!(e, Error::Full { .. }), "free some"),
            (Errno::EDQUOT, |e| matches!(e, Error::Quota { .. }), "raise it"),
            (Errno::EROFS, |e| matches!(e, Error::ReadOnly { .. }), "mount it writable"),
            (Errno::EACCES, |e| matches!(e, Error::Denied { .. }), "run as root"),
            (Errno::EPERM, |e| matches!(e, Error::Denied { .. }), "run as root"),
            (Errno::ENOENT, |e| matches!(e, Error::Gone { .. }), "restart the driver's pod"),
            (Errno::EISDIR, |e| matches!(e, Error::Occupied { .. }), "remove it"),
            (Errno::EIO, |e| matches!(e, Error::Io { .. }), "Input/output error"),
        ];
        for (errno, is, advice) in table {
            let error = Failed { doing: "writing", errno }.on(Path::new("/var/run/cdi/a.json"));
            let text = error.to_string();
            assert!(is(&error), "{error:?}");
            assert!(text.contains("/var/run/cdi/a.json") && text.contains(advice), "{text}");
        }
    }

    #[test]
    fn an_error_without_a_number_is_an_io_error() {
        let failed: Result<(), Failed> = Err(io::Error::other("x")).doing("reading");
        assert_eq!(failed, Err(Failed { doing: "reading", errno: Errno::EIO }));
    }
}
