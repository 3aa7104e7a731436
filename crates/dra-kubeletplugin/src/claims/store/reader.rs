//! The one reader of record files.

use std::{io, path::PathBuf};

use nix::errno::Errno;

use super::{Found, StoreError, failed};
use crate::{names::ClaimUid, regular_file};

/// Reads the record at `path`; none if there is no such file. What cannot be read for reasons of its own is damaged: a
/// bad sector, a folder or a FIFO under its name. What the machine refuses is an error, as another try may succeed.
pub(in crate::claims) fn read_record(
    path: PathBuf,
    uid: &ClaimUid,
    unpreparing: bool,
) -> Result<Option<Found>, StoreError> {
    match regular_file::read(&path) {
        Ok(bytes) => Ok(Some(Found::from_bytes(path, uid, &bytes, unpreparing))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) if is_of_the_machine(&source) => Err(failed("reading record", &path, source)),
        Err(error) => Ok(Some(Found::Damaged { path, why: error.to_string() })),
    }
}

/// Whether the error says something of the process or the system, and not of the file.
fn is_of_the_machine(error: &io::Error) -> bool {
    const MACHINE: [Errno; 9] = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
        Errno::EACCES,
        Errno::EPERM,
        Errno::EINTR,
        Errno::EAGAIN,
        // A file system that is away: a network share, a FUSE daemon.
        Errno::ENOTCONN,
        Errno::ETIMEDOUT,
    ];
    error.raw_os_error().is_some_and(|code| MACHINE.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener, path::Path};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn read(path: &Path) -> Option<Found> {
        read_record(path.to_owned(), &"a".parse().unwrap(), false).unwrap()
    }

    #[test]
    fn what_is_no_regular_file_is_a_damaged_record_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("folder.json")).unwrap();
        mkfifo(&path("fifo.json"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(path("socket.json")).unwrap();
        std::os::unix::fs::symlink("loop.json", path("loop.json")).unwrap();
        fs::write(path("cut.json"), "dra-claim").unwrap();
        for name in ["folder.json", "fifo.json", "socket.json", "loop.json", "cut.json"] {
            assert!(matches!(read(&path(name)), Some(Found::Damaged { .. })), "{name}");
        }
        assert!(read(&path("none.json")).is_none());
    }

    #[test]
    fn errors_of_the_machine_are_told_from_those_of_the_file() {
        let of = |errno: Errno| is_of_the_machine(&io::Error::from(errno));
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::EACCES, Errno::EPERM, Errno::ENOMEM] {
            assert!(of(errno), "{errno}");
        }
        for errno in [Errno::EIO, Errno::EISDIR, Errno::ELOOP, Errno::ENXIO, Errno::EUCLEAN, Errno::EBADMSG] {
            assert!(!of(errno), "{errno}");
        }
    }
}
