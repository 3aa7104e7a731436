//! Locks between processes: open-file-description locks, the kind that the Go helper takes (`F_OFD_SETLK`).
//!
//! They belong to the open file: they end when it is closed, also by the death of the process, and they exclude other
//! descriptors of the same process too.

mod look;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use tokio::time::Instant;

use crate::error::advice;

pub(crate) use look::{Holder, Locked, holders, locked_parts};

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub(crate) struct FileLock(LockFile);

/// An open file on which this process takes locks and lets go of them again; dropping it lets go of all.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    path: PathBuf,
}

/// Which bytes of a file are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: u64,
    /// 0 means to the end, however long the file gets.
    length: u64,
}

impl Span {
    /// The whole file.
    pub(crate) const WHOLE: Self = Self { start: 0, length: 0 };

    /// One byte; the file need not be that long.
    pub(crate) const fn byte(at: u64) -> Self {
        Self { start: at, length: 1 }
    }

    /// All bytes behind this one.
    pub(crate) const fn behind(at: u64) -> Self {
        Self { start: at.saturating_add(1), length: 0 }
    }
}

/// Alone, or beside others that share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

/// How a lock attempt ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error("{} is locked by another process", path.display())]
    Busy { path: PathBuf },
    #[error("locking {}: {source}{}", path.display(), advice(source))]
    Io { path: PathBuf, source: io::Error },
}

/// Takes a lock, trying until `deadline`: polled, as a blocked lock call would park a thread.
pub(crate) async fn lock(
    path: &Path,
    span: Span,
    mode: Mode,
    deadline: Instant,
) -> Result<FileLock, LockError> {
    // One descriptor for each lock: with a shared one a second holder would get in, and one unlock would free both.
    let mut file = LockFile::open(path)?;
    let mut pause = Duration::from_millis(5);
    loop {
        let locked = file.try_lock(span, mode)?;
        // A lock on a file that was replaced keeps nothing out.
        match (file.is_current()?, locked) {
            (true, true) => return Ok(FileLock(file)),
            (true, false) => {}
            (false, _) => file = LockFile::open(path)?,
        }
        if Instant::now() >= deadline {
            return Err(LockError::Busy { path: path.to_owned() });
        }
        tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

impl FileLock {
    /// Whether the locked file is still the one of its name.
    pub(crate) fn is_current(&self) -> Result<bool, LockError> {
        self.0.is_current()
    }

    /// Whether nobody else has a lock on any part of the file.
    pub(crate) fn is_alone(&self) -> Result<bool, LockError> {
        self.0.is_free(Span::WHOLE)
    }

    /// What the locked file says.
    pub(crate) fn read_note(&self) -> Result<String, LockError> {
        self.0.read_note()
    }

    /// Leaves a note in the locked file, for whoever meets the lock.
    pub(crate) fn write_note(&self, note: &str) -> Result<(), LockError> {
        self.0.write_note(note)
    }
}

impl LockFile {
    /// Opens the file, and makes it if it is not there. Nothing is locked yet.
    pub(crate) fn open(path: &Path) -> Result<Self, LockError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|source| LockError::Io { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Whether the file is still the one of its name: it may have been removed and made again since it was opened.
    fn is_current(&self) -> Result<bool, LockError> {
        let opened = self.file.metadata().map_err(|source| self.fail(source))?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.fail(source)),
        }
    }

    /// Takes a lock if nobody else has one in its way.
    pub(crate) fn try_lock(&self, span: Span, mode: Mode) -> Result<bool, LockError> {
        let kind = match mode {
            Mode::Exclusive => libc::F_WRLCK,
            Mode::Shared => libc::F_RDLCK,
        };
        let range = range(span, kind).map_err(|error| self.fail(error))?;
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(self.fail(errno.into())),
        }
    }

    /// Lets go of what is held of the span.
    pub(crate) fn unlock(&self, span: Span) -> Result<(), LockError> {
        let range = range(span, libc::F_UNLCK).map_err(|error| self.fail(error))?;
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&range)).map_err(|errno| self.fail(errno.into()))?;
        Ok(())
    }

    /// Whether nobody else has a lock on any part of the span.
    pub(crate) fn is_free(&self, span: Span) -> Result<bool, LockError> {
        let mut wanted = range(span, libc::F_WRLCK).map_err(|error| self.fail(error))?;
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut wanted)).map_err(|errno| self.fail(errno.into()))?;
        Ok(libc::c_int::from(wanted.l_type) == libc::F_UNLCK)
    }

    /// What the file says.
    pub(crate) fn read_note(&self) -> Result<String, LockError> {
        crate::regular_file::read_text(&self.path).map_err(|source| self.fail(source))
    }

    /// Leaves a note in the file, for whoever meets a lock.
    pub(crate) fn write_note(&self, note: &str) -> Result<(), LockError> {
        overwrite(&self.file, note).map_err(|source| self.fail(source))
    }

    fn fail(&self, source: io::Error) -> LockError {
        LockError::Io { path: self.path.clone(), source }
    }
}

/// Leaves a note in a file that somebody else may have locked.
pub(crate) fn write_note(path: &Path, note: &str) -> io::Result<()> {
    overwrite(&OpenOptions::new().write(true).open(path)?, note)
}

/// Written in one go and cut afterwards: whoever dies in between leaves at least the whole new note.
fn overwrite(file: &File, note: &str) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    file.write_all_at(note.as_bytes(), 0)?;
    file.set_len(u64::try_from(note.len()).map_err(io::Error::other)?)
}

fn range(span: Span, kind: libc::c_int) -> io::Result<libc::flock> {
    let offset = |at: u64| at.try_into().map_err(io::Error::other);
    Ok(libc::flock {
        // The constants are small positive numbers of another C type.
        l_type: kind.try_into().unwrap_or_default(),
        l_whence: libc::SEEK_SET.try_into().unwrap_or_default(),
        l_start: offset(span.start)?,
        l_len: offset(span.length)?,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(path: &Path, mode: Mode) -> Result<FileLock, LockError> {
        lock(path, Span::WHOLE, mode, Instant::now()).await
    }

    #[tokio::test]
    async fn an_exclusive_lock_keeps_everyone_out_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let held = take(&path, Mode::Exclusive).await.unwrap();
        assert!(matches!(take(&path, Mode::Shared).await, Err(LockError::Busy { .. })));
        drop(held);
        let one = take(&path, Mode::Shared).await.unwrap();
        let _two = take(&path, Mode::Shared).await.unwrap();
        assert!(matches!(take(&path, Mode::Exclusive).await, Err(LockError::Busy { .. })));
        drop(one);
    }

    #[tokio::test]
    async fn sharers_know_whether_they_are_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let one = take(&path, Mode::Shared).await.unwrap();
        assert!(one.is_alone().unwrap());
        let two = take(&path, Mode::Shared).await.unwrap();
        assert!(!one.is_alone().unwrap() && !two.is_alone().unwrap());
        drop(two);
        assert!(one.is_alone().unwrap());
    }

    #[tokio::test]
    async fn a_note_replaces_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let held = take(&path, Mode::Exclusive).await.unwrap();
        for note in ["a long note\n", "short\n"] {
            held.write_note(note).unwrap();
            assert_eq!(held.read_note().unwrap(), note);
        }
        write_note(&path, "x\n").unwrap();
        assert_eq!(held.read_note().unwrap(), "x\n");
    }

    #[tokio::test]
    async fn bytes_are_locked_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let far = Span::byte(1 << 40);
        let held = lock(&path, far, Mode::Exclusive, Instant::now()).await.unwrap();
        lock(&path, Span::byte(0), Mode::Exclusive, Instant::now()).await.unwrap();
        assert!(lock(&path, far, Mode::Exclusive, Instant::now()).await.is_err());
        assert!(take(&path, Mode::Shared).await.is_err());
        drop(held);
    }

    #[test]
    fn a_file_that_stays_open_is_locked_and_unlocked_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let (one, two) = (LockFile::open(&path).unwrap(), LockFile::open(&path).unwrap());
        assert!(one.try_lock(Span::byte(5), Mode::Exclusive).unwrap());
        assert!(one.is_free(Span::WHOLE).unwrap(), "its own lock does not count");
        assert!(!two.is_free(Span::behind(4)).unwrap() && two.is_free(Span::behind(5)).unwrap());
        assert!(!two.try_lock(Span::byte(5), Mode::Exclusive).unwrap());
        one.unlock(Span::byte(5)).unwrap();
        assert!(two.try_lock(Span::byte(5), Mode::Exclusive).unwrap());
        drop(two);
        assert!(one.is_free(Span::byte(5)).unwrap());
    }

    #[tokio::test]
    async fn a_lock_is_taken_on_the_file_that_has_the_name_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let replace = || {
            fs::remove_file(&path).unwrap();
            fs::write(&path, "").unwrap();
        };
        let held = take(&path, Mode::Exclusive).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let (waiter, ()) = tokio::join!(lock(&path, Span::WHOLE, Mode::Exclusive, deadline), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            replace();
        });
        let _waiter = waiter.unwrap();
        assert!(take(&path, Mode::Exclusive).await.is_err(), "the waiter has the file that is there now");
        drop(held);
    }

    #[tokio::test]
    async fn a_waiter_gets_the_lock_when_the_holder_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l");
        let held = take(&path, Mode::Exclusive).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let (waiter, ()) = tokio::join!(lock(&path, Span::WHOLE, Mode::Exclusive, deadline), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(held);
        });
        waiter.unwrap();
    }
}
