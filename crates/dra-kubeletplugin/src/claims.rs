//! The claims of this node: what the kubelet asks for, done once, recorded, and undone.
//!
//! One prepare is followed through `prepare` (the order of the steps), `states` (the decisions), `store` and `record`
//! (what is on disk), `cdi` and `metadata` (what the container gets), `index` (who holds which device), `board` (which call waits for
//! which) and `locks` (between processes).

mod adopt;
mod board;
mod cdi;
mod collect;
mod failure;
mod give_way;
mod index;
mod instance;
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
mod unprepare;

use std::{
    collections::HashMap,
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
use dra_cdi::{Directory, FileId, Kind};
use dra_resourceslice::DriverName;
use tokio::{
    sync::{OwnedSemaphorePermit, RwLock, Semaphore, watch},
    time::Instant,
};

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
pub(crate) use repair::{DamagedRecord, any_records, damaged_records, lock_claim, tell_of_change};
pub(crate) use states::Phase;
use store::Store;
pub use store::StoreError;
pub(crate) use store::{Content, FileRecords, Found, RecordFile, Records, record_files};

use crate::{
    background::TellError,
    claim_status::StatusWriter,
    file_threads,
    lock::{FileLock, LockError},
    mutex::locked,
    names::ClaimUid,
    plugin::DriverPlugin,
};

/// A temporary file of this age was left by a process that died: a write takes milliseconds.
pub(crate) const NOBODY_WRITES_FOR: Duration = Duration::from_secs(60);

/// Everything about the claims of one driver on one node.
pub(crate) struct Claims<P: DriverPlugin> {
    plugin: Arc<P>,
    tell: TellError,
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
    parallel: Arc<Semaphore>,
    /// Since when claims have been seen gone, by those whose collection waits.
    gone: Mutex<HashMap<ClaimUid, Instant>>,
    /// Whether what an earlier boot left has been undone; no prepare is served before.
    recovered: watch::Sender<bool>,
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
        let (cdi, alone) = (config.cdi.clone(), config.instance.is_alone()?);
        let opened = spawn_blocking(move || {
            let store = records.of_boot(&boot)?;
            let older = records.of_other_boots(&boot)?;
            let older_than = if alone { Duration::ZERO } else { NOBODY_WRITES_FOR };
            for store in older.iter().chain([&store]) {
                store.sweep_leftovers(older_than)?;
            }
            let memory = Memory::read(&*store, &older, &cdi)?;
            Ok::<_, StoreError>((store, older, memory))
        });
        let (store, older, memory) =
            opened.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        config.instance.have_read()?;
        let permits = Arc::new(Semaphore::new(file_threads::THREADS));
        Ok(Self {
            plugin: config.plugin,
            tell: config.tell,
            lookup: config.lookup,
            driver: config.driver,
            status: config.status,
            disk: Disk { store, older, cdi: config.cdi, metadata: MetadataFiles::in_folder(data), permits },
            kind: config.kind,
            memory: Mutex::new(memory),
            changes: RwLock::default(),
            board: Board::default(),
            locks,
            instance: config.instance,
            parallel: Arc::new(Semaphore::new(config.max_parallel.max(1))),
            gone: Mutex::default(),
            recovered: watch::Sender::new(false),
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
        let older = self.disk.older.clone();
        let memory = self.disk.run(move |store, cdi| Ok(Memory::read(store, &older, cdi)?)).await?;
        *self.memory() = memory;
        Ok(self.instance.have_read()?)
    }

    /// The admission lock, with memory as the records are.
    async fn up_to_date(&self, deadline: Instant) -> Result<Arc<FileLock>, Failure> {
        let admission = self.locks.admission(deadline).await?;
        self.refresh().await?;
        Ok(admission)
    }

    /// The right to keep the driver busy.
    async fn driver_permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.parallel).acquire_owned().await.map_err(|_| Failure::Stopping)
    }
}

/// Records, CDI files and metadata files; all file work goes through here, off the async workers.
#[derive(Clone)]
struct Disk {
    store: Arc<dyn Store>,
    older: Vec<Arc<dyn Store>>,
    cdi: Directory,
    metadata: MetadataFiles,
    permits: Arc<Semaphore>,
}

impl Disk {
    /// Runs blocking file work on a thread of its own.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store, &Directory) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Failure::Stopping)?;
        let (store, cdi) = (Arc::clone(&self.store), self.cdi.clone());
        let span = tracing::Span::current();
        let done = spawn_blocking(move || {
            let (_permit, _entered) = (permit, span.entered());
            work(&*store, &cdi)
        });
        done.await.map_err(|_| Failure::Stopping)?
    }
}

fn file_id(uid: &ClaimUid) -> Result<FileId, Failure> {
    FileId::new(uid.as_str()).map_err(|error| Failure::Internal(error.to_string()))
}
