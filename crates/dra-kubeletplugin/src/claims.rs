//! The claims of this node: what the kubelet asks for, done once, recorded, and undone.
//!
//! `prepare` and `unprepare` are what the kubelet asks for; `recover` what a start does about what was left, `collect` what is
//! done for claims that are gone, `release` what a person asks for. They share `stored` (what there is of a claim), `undo`
//! (the one way out), `calls` (how the driver is called) and `locks`; `states` has the decisions, `record` and `store` what
//! is on disk, `cdi` and `metadata` what the container gets, `index` who holds which device, `board` which call waits for
//! which. Order of what is held: claim, devices, place in the driver, admission.

mod adopt;
mod board;
mod calls;
mod cdi;
mod collect;
mod complete;
mod deadlines;
mod failure;
mod files;
mod give_way;
mod index;
mod instance;
mod journal;
mod keyed;
mod locks;
mod lookup;
mod memory;
mod metadata;
mod metadata_files;
#[cfg(test)]
mod model;
mod prepare;
mod record;
mod recover;
mod release;
mod repair;
mod states;
mod store;
mod stored;
#[cfg(test)]
mod tests;
mod told;
mod undo;
mod unprepare;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

// The model test can keep file work on its own thread: only so does a seed repeat what it did.
#[cfg(not(test))]
use crate::file_threads::run as spawn_blocking;
#[cfg(test)]
use model::spawn_blocking;

use board::Board;
use calls::{DriverCalls, Place};
use collect::GoneClocks;
use dra_cdi::{Directory, FileId, Kind};
use dra_resourceslice::DriverName;
use tokio::{
    sync::{RwLock, watch},
    time::Instant,
};
use tokio_util::task::TaskTracker;

pub(crate) use failure::Failure;
pub(crate) use give_way::GoHelper;
pub(crate) use instance::{Instance, JoinError};
use locks::Locks;
pub(crate) use locks::{CLAIMS_FROM, DEVICES_FROM, byte_of_claim, byte_of_device};
pub(crate) use lookup::Lookup;
pub(crate) use memory::ClaimCounts;
use memory::Memory;
pub(crate) use metadata_files::MetadataFiles;
pub(crate) use record::{AnsweredDevice, Record};
use recover::Recovery;
pub(crate) use repair::{DamagedRecord, any_records, damaged_records, lock_claim, tell_of_change};
pub(crate) use states::Phase;
use store::Store;
pub use store::StoreError;
pub(crate) use store::{Content, FileRecords, Found, RecordFile, Records, record_files};
use told::Told;

use crate::{
    background::TellError,
    claim::DeviceRef,
    claim_status::StatusWriter,
    lock::{FileLock, LockError},
    mutex::locked,
    names::ClaimUid,
    plugin::DriverPlugin,
};

/// A temporary file of this age was left by a process that died: a write takes milliseconds.
pub(crate) const NOBODY_WRITES_FOR: Duration = Duration::from_secs(60);

/// Everything about the claims of one driver on one node.
pub(crate) struct Claims<P: DriverPlugin> {
    calls: DriverCalls<P>,
    lookup: Lookup,
    disk: Disk,
    kind: Kind,
    driver: DriverName,
    status: StatusWriter,
    /// What the records say.
    memory: Mutex<Memory>,
    /// Shared by those who change a record and memory, taken alone to make memory anew: otherwise a reading that began
    /// before a change would undo it.
    changes: RwLock<()>,
    board: Board,
    locks: Locks,
    instance: Arc<Instance>,
    /// For how long claims have been gone whose collection waits.
    gone: Mutex<GoneClocks>,
    /// What of the background has failed.
    told: Told,
    /// How far the start is with what was left; no prepare is served before it is done.
    recovery: watch::Sender<Recovery>,
}

/// What [`Claims`] is made of.
pub(crate) struct ClaimsConfig<P> {
    pub(crate) plugin: Arc<P>,
    /// Hears of what goes wrong without a call.
    pub(crate) tell: TellError,
    pub(crate) driver: DriverName,
    pub(crate) lookup: Lookup,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) cdi: Directory,
    pub(crate) kind: Kind,
    pub(crate) max_parallel: usize,
    pub(crate) instance: Arc<Instance>,
    /// Told of claims whose status is to say something.
    pub(crate) status: StatusWriter,
    /// Given a turn from time to time.
    pub(crate) go_helper: Option<GoHelper>,
}

/// Why the records cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl<P: DriverPlugin> Claims<P> {
    /// Opens the records below `data` and counts this start. [`recover`](Self::recover) has to follow before prepares
    /// are served.
    pub(crate) async fn open(
        config: ClaimsConfig<P>,
        data: &Path,
        boot_id: &str,
        pod_uid: Option<&str>,
        deadline: Instant,
    ) -> Result<Self, OpenError> {
        let locks = Locks::beside(config.go_helper, data);
        let _admission = locks.admission(deadline).await?;
        config.instance.count_start(pod_uid)?;
        let (records, boot) = (config.records, boot_id.to_owned());
        let (cdi, alone, reading) =
            (config.cdi.clone(), config.instance.is_alone()?, config.instance.before_reading()?);
        let opened = spawn_blocking(move || {
            let store = records.of_boot(&boot)?;
            let older = records.of_other_boots(&boot)?;
            let older_than = if alone { Duration::ZERO } else { NOBODY_WRITES_FOR };
            for store in older.iter().chain([&store]) {
                // They are in nothing's way, and the next round tries again.
                if let Err(error) = store.sweep_leftovers(older_than) {
                    tracing::warn!(%error, "what interrupted writes have left could not be removed");
                }
            }
            let memory = Memory::read(&*store, &older, &cdi)?;
            Ok::<_, StoreError>((store, older, memory))
        });
        let (store, older, memory) =
            opened.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        config.instance.have_read(reading);
        Ok(Self {
            calls: DriverCalls::new(config.plugin, config.max_parallel),
            lookup: config.lookup,
            driver: config.driver,
            status: config.status,
            disk: Disk {
                store,
                older,
                cdi: config.cdi,
                metadata: MetadataFiles::in_folder(data),
                #[cfg(test)]
                gate: Arc::new(tokio::sync::Semaphore::new(crate::file_threads::THREADS)),
            },
            kind: config.kind,
            memory: Mutex::new(memory),
            changes: RwLock::default(),
            board: Board::default(),
            locks,
            instance: config.instance,
            gone: Mutex::default(),
            told: Told::new(config.tell),
            recovery: watch::Sender::new(Recovery::Undoing),
        })
    }

    /// What writes the statuses of claims; it does so once it is run.
    pub(crate) fn status_writer(&self) -> StatusWriter {
        self.status.clone()
    }

    /// How many claims there are in each state, as far as this process knows: while another instance runs, what that
    /// one does is seen with the next new claim.
    pub(crate) fn counts(&self) -> ClaimCounts {
        self.memory().counts()
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        locked(&self.memory)
    }

    /// Makes memory say what the records say. The caller has the admission lock.
    async fn refresh(&self) -> Result<(), Failure> {
        if self.instance.trusts_memory()? {
            return Ok(());
        }
        let _alone = self.changes.write().await;
        let (older, reading) = (self.disk.older.clone(), self.instance.before_reading()?);
        let memory = self.disk.run(move |store, cdi| Ok(Memory::read(store, &older, cdi)?)).await?;
        *self.memory() = memory;
        self.instance.have_read(reading);
        Ok(())
    }

    /// The admission lock, with memory as the records are.
    async fn up_to_date(&self, deadline: Instant) -> Result<Arc<FileLock>, Failure> {
        let admission = self.locks.admission(deadline).await?;
        self.refresh().await?;
        Ok(admission)
    }

    /// Waits for admission with a place in the driver, without keeping the place while another process has the admission
    /// lock. Memory is as the records are then.
    async fn admission_with(
        &self,
        mut place: Place,
        deadline: Instant,
    ) -> Result<(Place, Arc<FileLock>), Failure> {
        loop {
            match self.up_to_date(Instant::now()).await {
                Ok(admission) => return Ok((place, admission)),
                Err(Failure::Lock(LockError::Busy { .. })) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
            drop(place);
            drop(self.locks.admission(deadline).await?);
            // A task that has used up its budget of tokio's finds nothing ready until it has yielded.
            tokio::task::yield_now().await;
            place = self.calls.place(deadline).await?;
        }
    }

    /// Waits for devices of the claim. The caller has its lock.
    async fn lock_devices<'a>(
        &self,
        claim: &ClaimUid,
        devices: impl Iterator<Item = &'a DeviceRef>,
        deadline: Instant,
    ) -> Result<Vec<locks::Held>, Failure> {
        self.locks.devices(devices, deadline).await.map_err(|(device, error)| match error {
            LockError::Busy { .. } => {
                let holders = self.memory().others(claim, &device);
                Failure::DeviceBusy { device, holders }
            }
            error @ LockError::Io { .. } => error.into(),
        })
    }

    /// Has all work on claims: to wait for what is under way.
    pub(crate) fn work(&self) -> TaskTracker {
        self.calls.tracker()
    }
}

/// Records, CDI files and metadata files; all file work goes through here, off the async workers.
#[derive(Clone)]
struct Disk {
    store: Arc<dyn Store>,
    older: Vec<Arc<dyn Store>>,
    cdi: Directory,
    metadata: MetadataFiles,
    /// Lets the model test stop an instance before its next piece of file work.
    #[cfg(test)]
    gate: Arc<tokio::sync::Semaphore>,
}

impl Disk {
    /// Runs blocking file work on a thread of its own.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store, &Directory) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        #[cfg(test)]
        let gate = Arc::clone(&self.gate).acquire_owned().await;
        let (store, cdi) = (Arc::clone(&self.store), self.cdi.clone());
        let span = tracing::Span::current();
        let done = spawn_blocking(move || {
            let _entered = span.entered();
            #[cfg(test)]
            let _gate = gate;
            work(&*store, &cdi)
        });
        done.await.map_err(|_| Failure::Stopping)?
    }
}

fn file_id(uid: &ClaimUid) -> Result<FileId, Failure> {
    FileId::new(uid.as_str()).map_err(|error| Failure::Internal(error.to_string()))
}
