//! Whether this process is alone with the records, and so may trust what it remembers of them.
//!
//! `instances.lock` in the driver's folder: each living instance holds a lock on it, shared with rolling updates, alone
//! without. Its first line counts starts; a start raises it under the admission lock. Memory is trusted only by an
//! instance that is alone now, if nobody has started since it read the records while it was alone.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use crate::health::Neighbours;
use crate::lock::{FileLock, LockError, Mode, Span, lock, write_note};
use crate::{mutex::locked, regular_file};

/// This process among the instances of the driver.
#[derive(Debug)]
pub(crate) struct Instance {
    lock: FileLock,
    /// Its own start's count; 0 before that is counted.
    number: AtomicU64,
    /// The start count at the last reading of the records that was done alone.
    read_alone_at: Mutex<Option<u64>>,
    /// Whether it has logged that its lock file was replaced.
    replaced: AtomicBool,
}

/// The start count before a reading of the records, if this process was alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading(Option<u64>);

/// Why this process cannot join.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("another instance runs: {note}")]
    Other { note: String },
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl Instance {
    /// Joins the instances; without `pod_uid` there may be no other, and one that is ending has until `deadline`.
    pub(crate) async fn join(
        data: &Path,
        pod_uid: Option<&str>,
        deadline: Instant,
    ) -> Result<Self, JoinError> {
        let path = path(data);
        let mode = if pod_uid.is_some() { Mode::Shared } else { Mode::Exclusive };
        match lock(&path, Span::WHOLE, mode, deadline).await {
            Ok(lock) => Ok(Self {
                lock,
                number: AtomicU64::default(),
                read_alone_at: Mutex::default(),
                replaced: AtomicBool::default(),
            }),
            Err(LockError::Busy { path }) => {
                let text = regular_file::read_text(&path).unwrap_or_default();
                let note = text.lines().nth(1).unwrap_or("it left no note").to_owned();
                Err(JoinError::Other { note })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Counts this start. The caller has the admission lock.
    pub(crate) fn count_start(&self, pod_uid: Option<&str>) -> Result<(), LockError> {
        let starts = self.starts()? + 1;
        self.number.store(starts, Ordering::Relaxed);
        let pod = pod_uid.map_or_else(|| "rolling updates off".to_owned(), |uid| format!("pod {uid}"));
        self.lock.write_note(&format!("{starts}\npid {}, {pod}\n", std::process::id()))
    }

    /// The number of its start: higher than those of all that started before.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Whether no other instance lives. Holds for as long as the caller has the admission lock.
    pub(crate) fn is_alone(&self) -> Result<bool, LockError> {
        if self.lock.is_current()? {
            return self.lock.is_alone();
        }
        if !self.replaced.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "instances.lock was removed while this instance runs, so it cannot tell whether it is alone: it reads all \
                 records again for each claim until it is restarted"
            );
        }
        Ok(false)
    }

    /// The other instances, as they are now. What cannot be read counts as one that lives: the caller takes more care then.
    pub(crate) fn neighbours(&self) -> Neighbours {
        let alone = self.is_alone().unwrap_or(false);
        Neighbours { any: !alone, starts: self.starts().unwrap_or_default() }
    }

    /// Whether the records can have changed only by this process since it read them. Holds for as long as the caller
    /// has the admission lock.
    pub(crate) fn trusts_memory(&self) -> Result<bool, LockError> {
        let read_at = *locked(&self.read_alone_at);
        Ok(read_at.is_some() && self.is_alone()? && read_at == Some(self.starts()?))
    }

    /// What to ask before the records are read: another instance that ends meanwhile may have changed what was read
    /// already. The caller has the admission lock.
    pub(crate) fn before_reading(&self) -> Result<Reading, LockError> {
        Ok(Reading(if self.is_alone()? { Some(self.starts()?) } else { None }))
    }

    /// Notes that the records have been read. The caller has had the admission lock since before that.
    pub(crate) fn have_read(&self, reading: Reading) {
        *locked(&self.read_alone_at) = reading.0;
    }

    fn starts(&self) -> Result<u64, LockError> {
        Ok(starts(&self.lock.read_note()?))
    }
}

/// Counts a change to the records that no instance has made, as if one had started. The caller has the admission lock.
pub(crate) fn count_change(data: &Path) -> Result<(), LockError> {
    let path = path(data);
    let counted = regular_file::read_text(&path).and_then(|text| {
        let note = text.lines().nth(1).unwrap_or_default();
        write_note(&path, &format!("{}\n{note}\n", starts(&text) + 1))
    });
    match counted {
        // Nobody has ever started, so nobody remembers anything.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        counted => counted.map_err(|source| LockError::Io { path, source }),
    }
}

/// A file that was never written counts as 0.
fn starts(text: &str) -> u64 {
    text.lines().next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn path(data: &Path) -> PathBuf {
    data.join("instances.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn join(data: &Path, pod: Option<&str>) -> Result<Instance, JoinError> {
        let instance = Instance::join(data, pod, Instant::now()).await?;
        instance.count_start(pod)?;
        Ok(instance)
    }

    #[tokio::test]
    async fn memory_is_trusted_only_alone_and_only_if_nobody_came_and_went() {
        let folder = tempfile::tempdir().unwrap();
        let one = join(folder.path(), Some("a")).await.unwrap();
        assert!(!one.trusts_memory().unwrap(), "nothing was read yet");
        one.have_read(one.before_reading().unwrap());
        assert!(one.trusts_memory().unwrap());
        let two = join(folder.path(), Some("b")).await.unwrap();
        assert!(!one.trusts_memory().unwrap(), "another one lives");
        let reading = one.before_reading().unwrap();
        assert_eq!((one.number(), two.number()), (1, 2));
        drop(two);
        one.have_read(reading);
        assert!(!one.trusts_memory().unwrap(), "the other one may have written as the records were read");
        one.have_read(one.before_reading().unwrap());
        assert!(one.trusts_memory().unwrap());
    }

    #[tokio::test]
    async fn a_change_from_outside_ends_the_trust_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let one = join(folder.path(), None).await.unwrap();
        one.have_read(one.before_reading().unwrap());
        count_change(folder.path()).unwrap();
        assert!(!one.trusts_memory().unwrap());
    }

    #[tokio::test]
    async fn without_rolling_updates_a_second_instance_learns_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let _one = join(folder.path(), None).await.unwrap();
        let error = join(folder.path(), None).await.unwrap_err().to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        assert!(join(folder.path(), Some("b")).await.is_err());
    }
}
