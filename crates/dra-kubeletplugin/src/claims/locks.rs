//! Locks on claims and devices, within this process and between processes.
//!
//! Between processes they are byte ranges of `serialize.lock`, in the driver's folder, where the Go helper takes a lock
//! on the whole file for each of its calls; so both kinds exclude each other.
//!
//! ```text
//! byte 0           admission: from looking at the records to a durable `Started`
//! bytes from 16    claims, by a hash of the UID
//! bytes from 2^32  devices, by a hash of pool and name; taken after the claim's, in ascending order
//! ```
//!
//! Two keys may share a byte; they then wait for each other. Within the process one mutex for each byte comes first:
//! it is fair, and it keeps tasks from polling against each other.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::Instant,
};

use super::{
    give_way::{GoHelper, Holding, Turns},
    keyed::{Interest, Keyed},
};
use crate::{
    claim::DeviceRef,
    lock::{FileLock, LockError, Mode, Span, lock},
    mutex::locked,
    names::ClaimUid,
};

const ADMISSION: Span = Span::byte(0);
/// Bytes below are not claims'.
pub(crate) const CLAIMS_FROM: u64 = 16;
/// From here on they are devices'.
pub(crate) const DEVICES_FROM: u64 = 1 << 32;

/// The locks of one driver on one node.
pub(crate) struct Locks {
    path: PathBuf,
    bytes: Keyed<u64, Arc<AsyncMutex<()>>>,
    /// Calls of this process share the lock while one has it: among themselves the index keeps them apart.
    admission: Mutex<Shared>,
    admission_turn: AsyncMutex<()>,
    turns: Turns,
}

/// The admission lock of this process.
#[derive(Default)]
struct Shared {
    lock: Weak<FileLock>,
    since: Option<Instant>,
}

/// For how long calls may join the admission lock: overlapping calls would keep other processes out for ever.
const SHARED_FOR: Duration = Duration::from_millis(200);

/// The right to work on a claim or a device. The file lock goes first, the interest last: without it, the next caller
/// would get a mutex of its own.
#[derive(Debug)]
pub(crate) struct Held {
    _file: FileLock,
    _holding: Holding,
    _turn: OwnedMutexGuard<()>,
    _interest: Interest<u64, Arc<AsyncMutex<()>>>,
}

impl Locks {
    /// Locks of the driver whose folder is `data`, for a caller that does not hold them for long.
    pub(crate) fn in_folder(data: &Path) -> Self {
        Self::beside(None, data)
    }

    /// The same for one that gives way to a Go helper.
    pub(crate) fn beside(helper: Option<GoHelper>, data: &Path) -> Self {
        Self {
            path: data.join("serialize.lock"),
            bytes: Keyed::default(),
            admission: Mutex::default(),
            admission_turn: AsyncMutex::default(),
            turns: Turns::with(helper),
        }
    }

    /// Waits for the claim. A caller must not have another claim's lock.
    pub(crate) async fn claim(&self, uid: &ClaimUid, deadline: Instant) -> Result<Held, LockError> {
        // Only here: whoever has a claim takes the rest of what it needs, so that it comes to its end.
        if !self.turns.give_way(deadline).await {
            return Err(LockError::Busy { path: self.path.clone() });
        }
        self.byte(byte_of_claim(uid), deadline).await
    }

    /// Waits for all of the devices, in ascending order, so that two callers never wait for each other. With an error comes
    /// the device that could not be locked.
    pub(crate) async fn devices(
        &self,
        devices: impl Iterator<Item = &DeviceRef>,
        deadline: Instant,
    ) -> Result<Vec<Held>, (DeviceRef, LockError)> {
        let bytes: BTreeMap<u64, &DeviceRef> =
            devices.map(|device| (byte_of_device(device), device)).collect();
        let mut held = Vec::with_capacity(bytes.len());
        for (offset, device) in bytes {
            let locked = self.byte(offset, deadline).await;
            held.push(locked.map_err(|error| (device.clone(), error))?);
        }
        Ok(held)
    }

    /// Keeps other processes from admitting claims.
    pub(crate) async fn admission(&self, deadline: Instant) -> Result<Arc<FileLock>, LockError> {
        let turn = tokio::time::timeout_at(deadline, self.admission_turn.lock()).await;
        let _turn = turn.map_err(|_| LockError::Busy { path: self.path.clone() })?;
        if let Some(shared) = locked(&self.admission).current() {
            return Ok(shared);
        }
        let lock = Arc::new(lock(&self.path, ADMISSION, Mode::Exclusive, deadline).await?);
        *locked(&self.admission) = Shared { lock: Arc::downgrade(&lock), since: Some(Instant::now()) };
        Ok(lock)
    }

    async fn byte(&self, offset: u64, deadline: Instant) -> Result<Held, LockError> {
        let interest = self.bytes.get(&offset);
        let turn = tokio::time::timeout_at(deadline, Arc::clone(&interest).lock_owned());
        let turn = turn.await.map_err(|_| LockError::Busy { path: self.path.clone() })?;
        let file = lock(&self.path, Span::byte(offset), Mode::Exclusive, deadline).await?;
        Ok(Held { _file: file, _holding: self.turns.hold(), _turn: turn, _interest: interest })
    }
}

impl Shared {
    /// The lock, if it is held and may still be joined.
    fn current(&self) -> Option<Arc<FileLock>> {
        let recent = self.since.is_some_and(|since| since.elapsed() < SHARED_FOR);
        self.lock.upgrade().filter(|_| recent)
    }
}

/// The byte of `serialize.lock` that stands for the claim. Others may have the same.
pub(crate) fn byte_of_claim(uid: &ClaimUid) -> u64 {
    CLAIMS_FROM + u64::from(hash(&[uid.as_str()]))
}

/// The byte of `serialize.lock` that stands for the device. Others may have the same.
pub(crate) fn byte_of_device(device: &DeviceRef) -> u64 {
    DEVICES_FROM + u64::from(hash(&[device.pool.as_str(), device.device.as_str()]))
}

/// 31 bits, so that claims stay below devices.
fn hash(parts: &[&str]) -> u32 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let bytes = digest.finalize();
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> DeviceRef {
        DeviceRef::new("node-1".parse().unwrap(), name.parse().unwrap())
    }

    fn now() -> Instant {
        Instant::now()
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn two_processes_exclude_each_other_by_claim_by_device_and_at_admission() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (Locks::in_folder(folder.path()), Locks::in_folder(folder.path()));
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let claim = one.claim(&a, later()).await.unwrap();
        assert!(matches!(two.claim(&a, now()).await, Err(LockError::Busy { .. })));
        two.claim(&b, now()).await.unwrap();
        let devices = one.devices([device("gpu-0"), device("gpu-1")].iter(), later()).await.unwrap();
        assert!(two.devices([device("gpu-1"), device("gpu-2")].iter(), now()).await.is_err());
        let admission = one.admission(later()).await.unwrap();
        assert!(two.admission(now()).await.is_err());
        drop((claim, devices, admission));
        two.claim(&a, now()).await.unwrap();
        two.devices([device("gpu-1")].iter(), now()).await.unwrap();
        two.admission(now()).await.unwrap();
    }

    #[tokio::test]
    async fn tasks_of_one_process_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Locks::in_folder(folder.path());
        let uid = "a".parse().unwrap();
        let held = locks.claim(&uid, later()).await.unwrap();
        assert!(locks.claim(&uid, now()).await.is_err());
        drop(held);
        locks.claim(&uid, now()).await.unwrap();
        // Admission is shared: the index keeps tasks apart.
        let _one = locks.admission(later()).await.unwrap();
        locks.admission(now()).await.unwrap();
    }

    #[tokio::test]
    async fn admission_is_not_joined_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let (locks, other) = (Locks::in_folder(folder.path()), Locks::in_folder(folder.path()));
        let first = locks.admission(later()).await.unwrap();
        tokio::time::sleep(SHARED_FOR).await;
        assert!(locks.admission(now()).await.is_err(), "has to let others in between");
        drop(first);
        other.admission(now()).await.unwrap();
    }

    #[tokio::test]
    async fn a_lock_on_the_whole_file_as_the_go_helper_takes_it_excludes_all() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Locks::in_folder(folder.path());
        let go =
            lock(&folder.path().join("serialize.lock"), Span::WHOLE, Mode::Exclusive, now()).await.unwrap();
        assert!(locks.claim(&"a".parse().unwrap(), now()).await.is_err());
        assert!(locks.admission(now()).await.is_err());
        drop(go);
        let _claim = locks.claim(&"a".parse().unwrap(), now()).await.unwrap();
        assert!(
            lock(&folder.path().join("serialize.lock"), Span::WHOLE, Mode::Exclusive, now()).await.is_err()
        );
    }

    #[tokio::test]
    async fn overlapping_sets_of_devices_are_locked_without_a_dead_lock() {
        let folder = tempfile::tempdir().unwrap();
        let locks = Arc::new(Locks::in_folder(folder.path()));
        let tasks = (0..40u8).map(|i| {
            let locks = Arc::clone(&locks);
            tokio::spawn(async move {
                let names =
                    if i % 2 == 0 { ["gpu-1", "gpu-2", "gpu-3"] } else { ["gpu-3", "gpu-1", "gpu-2"] };
                let held = locks.devices(names.map(device).iter(), later()).await.unwrap();
                tokio::task::yield_now().await;
                held.len()
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(task.await.unwrap(), 3);
        }
    }

    /// As the Go helper does it, in another process: `F_OFD_SETLKW` on the whole file.
    fn wait_for_all(path: &Path) {
        use nix::{fcntl, libc};
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let whole = libc::flock {
            l_type: libc::F_WRLCK.try_into().unwrap(),
            l_whence: libc::SEEK_SET.try_into().unwrap(),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl::fcntl(&file, fcntl::FcntlArg::F_OFD_SETLKW(&whole)).unwrap();
    }

    #[tokio::test]
    async fn a_go_helper_gets_its_turn_among_claims_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let registry = tempfile::tempdir().unwrap();
        let driver = "gpu.example.com".parse().unwrap();
        let _answers =
            std::os::unix::net::UnixListener::bind(registry.path().join("gpu.example.com-reg.sock")).unwrap();
        let helper = GoHelper { registry: registry.path().to_owned(), driver };
        let locks = Arc::new(Locks::beside(Some(helper), folder.path()));
        // Each is held until the next one is: without giving way there is never a gap.
        let claims = tokio::spawn({
            let locks = Arc::clone(&locks);
            async move {
                let mut last = None;
                for number in 0u64.. {
                    let uid: ClaimUid = format!("claim-{number}").parse().unwrap();
                    let next = tokio::time::timeout(Duration::from_secs(1), locks.claim(&uid, later())).await;
                    // Work ends, also while nothing new may begin.
                    last = next.ok().map(Result::unwrap);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                drop(last);
            }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let path = folder.path().join("serialize.lock");
        let waited = tokio::task::spawn_blocking(move || wait_for_all(&path));
        tokio::time::timeout(Duration::from_secs(60), waited).await.expect("its turn never comes").unwrap();
        claims.abort();
    }
}
