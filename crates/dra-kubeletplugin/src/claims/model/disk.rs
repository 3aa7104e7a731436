//! The disk as an instance sees it: now and then a read fails for reasons of the machine, such as too many open files.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use nix::errno::Errno;

use super::world::World;
use crate::{
    claims::{
        record::Record,
        store::{Found, Records, Store, StoreError},
    },
    names::ClaimUid,
};

/// The records of a world with a machine that is short of everything.
pub(super) struct Disk(pub(super) Arc<World>);

struct DiskStore {
    inner: Arc<dyn Store>,
    world: Arc<World>,
    other_boot: bool,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl std::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Records for Disk {
    fn of_boot(&self, boot_id: &str) -> Result<Arc<dyn Store>, StoreError> {
        let inner = self.0.records.of_boot(boot_id)?;
        Ok(Arc::new(DiskStore { inner, world: Arc::clone(&self.0), other_boot: false }))
    }

    fn of_other_boots(&self, boot_id: &str) -> Result<Vec<Arc<dyn Store>>, StoreError> {
        let stores = self.0.records.of_other_boots(boot_id)?.into_iter();
        let wrap = |inner| -> Arc<dyn Store> {
            Arc::new(DiskStore { inner, world: Arc::clone(&self.0), other_boot: true })
        };
        Ok(stores.map(wrap).collect())
    }
}

impl DiskStore {
    fn may_fail(&self, what: &str) -> Result<(), StoreError> {
        if self.world.state().calm || !self.world.dice.one_in(60) {
            return Ok(());
        }
        self.world.note(format!("{what} fails, of an earlier boot: {}", self.other_boot));
        let mut state = self.world.state();
        let boot = state.boot;
        state.books.failed_to_read(boot);
        drop(state);
        let source = io::Error::from(Errno::EMFILE);
        Err(StoreError { operation: "reading", path: PathBuf::from("record"), source })
    }
}

impl Store for DiskStore {
    fn load(&self, uid: &ClaimUid) -> Result<Found, StoreError> {
        self.may_fail("a read of a record")?;
        self.inner.load(uid)
    }

    fn claims(&self) -> Result<Vec<ClaimUid>, StoreError> {
        self.may_fail("a list of records")?;
        self.inner.claims()
    }

    fn write(&self, record: &Record) -> Result<(), StoreError> {
        self.inner.write(record)
    }

    fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        self.inner.mark_unpreparing(uid)
    }

    fn write_over(&self, record: &Record) -> Result<(), StoreError> {
        self.inner.write_over(record)
    }

    fn remove(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        self.inner.remove(uid)
    }

    fn sweep_leftovers(&self, older_than: Duration) -> Result<(), StoreError> {
        self.inner.sweep_leftovers(older_than)
    }

    fn remove_if_empty(&self) -> Result<(), StoreError> {
        self.inner.remove_if_empty()
    }
}
