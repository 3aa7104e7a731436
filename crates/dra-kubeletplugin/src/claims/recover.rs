//! What a start has to do about what earlier processes left.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dra_cdi::Directory;
use tokio::time::Instant;

use super::{
    Claims, Failure, file_id,
    locks::Held,
    record::Record,
    states::{Phase, Undo},
    store::{Found, Store},
    unprepare::Then,
};
use crate::{
    claim::AllocatedDevice, error::BackgroundError, held::UnprepareReason, names::ClaimUid,
    plugin::DriverPlugin,
};

/// How long to wait before what could not be undone is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Pods are waiting for it.
const ADOPT_AGAIN: Duration = Duration::from_secs(5);

/// How long to wait for a lock when no caller sets a limit.
const PATIENCE: Duration = Duration::from_secs(45);

impl<P: DriverPlugin> Claims<P> {
    /// Undoes what an earlier boot left, then lets prepares in; makes CDI and metadata files what the records say. What
    /// cannot be undone keeps its devices and is tried again every minute.
    pub(crate) async fn recover(self: Arc<Self>) {
        let mut left = self.undo_older_boots().await;
        while let Err(error) = self.adopt_all(Instant::now() + PATIENCE).await {
            let message =
                format!("claims of another program cannot be adopted, so none are prepared: {error}");
            (self.tell)(BackgroundError::Recovery { message });
            tokio::time::sleep(ADOPT_AGAIN).await;
        }
        self.recovered.send_replace(true);
        if let Err(error) = self.heal_files().await {
            (self.tell)(BackgroundError::Recovery { message: error.to_string() });
        }
        while left > 0 {
            tokio::time::sleep(RETRY).await;
            left = self.undo_older_boots().await;
        }
    }

    /// Gives how many records could not be undone.
    async fn undo_older_boots(self: &Arc<Self>) -> usize {
        let mut left = 0;
        for store in self.disk.older.clone() {
            let listed = store.clone();
            let uids = self.disk.run(move |_, _| Ok(listed.claims()?)).await;
            for uid in uids.unwrap_or_default() {
                if let Err(error) = self.undo_older(&uid).await {
                    left += 1;
                    let message = format!("claim {uid} of an earlier boot could not be undone: {error}");
                    (self.tell)(BackgroundError::Recovery { message });
                }
            }
            // Another try comes with the next start.
            let _ = self.disk.run(move |_, _| Ok(store.remove_if_empty()?)).await;
        }
        left
    }

    /// Undoes what an earlier boot left of a claim, if it left anything.
    async fn undo_older(self: &Arc<Self>, uid: &ClaimUid) -> Result<bool, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let _held = self.locks.claim(uid, deadline).await?;
        self.undo_older_locked(uid, Then::Prepare, deadline).await
    }

    /// The same for a caller that has the claim's lock.
    pub(super) async fn undo_older_locked(
        &self,
        uid: &ClaimUid,
        then: Then,
        deadline: Instant,
    ) -> Result<bool, Failure> {
        let (older, wanted) = (self.disk.older.clone(), uid.clone());
        let stored = self.disk.run(move |_, _| stored_in(&older, &wanted)).await?;
        self.undo_stored_in_older(stored, uid, then, deadline).await
    }

    /// The same with what is stored there. Says whether that was anything.
    pub(super) async fn undo_stored_in_older(
        &self,
        stored: StoredOlder,
        uid: &ClaimUid,
        then: Then,
        deadline: Instant,
    ) -> Result<bool, Failure> {
        let any = !stored.is_empty();
        for (store, found) in stored {
            // Kept until the record is gone: of two shares that end at once, the last must see that it is.
            let _devices = match found {
                Found::Stored { record, .. } | Found::Newer { record: Some(record), .. } => {
                    let devices = self.undo_rebooted(&record, deadline).await?;
                    if then == Then::Prepare {
                        self.keep_names(&record).await?;
                    }
                    devices
                }
                // After a reboot nothing runs that could use its devices.
                Found::Nothing | Found::Damaged { .. } | Found::Newer { record: None, .. } => Vec::new(),
            };
            self.forget_in(store, uid, None).await?;
        }
        Ok(any)
    }

    /// Gives the locks of the devices.
    async fn undo_rebooted(&self, record: &Record, deadline: Instant) -> Result<Vec<Held>, Failure> {
        let refs = record.allocation.results.iter().map(AllocatedDevice::device_ref);
        let devices = self.locks.devices(refs, deadline).await?;
        self.catch_up(deadline).await?;
        if !record.is_vacated() {
            let held = self.held_claim(record, UnprepareReason::Reboot);
            self.call_undo(Undo::Unprepare, held).await?;
        }
        Ok(devices)
    }

    /// The kubelet's memory of CDI names outlives a reboot.
    async fn keep_names(&self, record: &Record) -> Result<(), Failure> {
        let rest = record.vacated(&self.kind);
        if rest.is_vacated() && matches!(self.load(&record.claim.uid).await?, Found::Nothing) {
            self.disk.write(rest).await?;
        }
        Ok(())
    }

    /// Writes CDI and metadata files that somebody removed, removes those that no record tells of. The kubelet does not
    /// prepare running pods again, so nobody else would.
    async fn heal_files(&self) -> Result<(), Failure> {
        let intact = self.memory().is_intact();
        let metadata = self.disk.metadata.clone();
        let list = move |store: &dyn Store, cdi: &Directory| {
            let listed = cdi.list()?;
            let mut files: BTreeSet<ClaimUid> =
                listed.iter().filter_map(|file| file.as_str().parse().ok()).collect();
            files.extend(metadata.claims()?);
            Ok((files, store.claims()?))
        };
        let (files, uids) = self.disk.run(list).await?;
        for uid in &uids {
            let _held = self.locks.claim(uid, Instant::now() + PATIENCE).await?;
            let Found::Stored { phase: Phase::Prepared, record } = self.load(uid).await? else { continue };
            // An earlier process may have died before it was written.
            self.show_status(&record);
            self.restore_files(*record).await?;
        }
        for uid in files.into_iter().filter(|uid| intact && !uids.contains(uid)) {
            let _held = self.locks.claim(&uid, Instant::now() + PATIENCE).await?;
            // A prepare may have begun since.
            if matches!(self.load(&uid).await?, Found::Nothing) {
                tracing::info!(claim = %uid, "removing the files of a claim that no record tells of");
                let (id, metadata) = (file_id(&uid)?, self.disk.metadata.clone());
                let removed = self.disk.run(move |_, cdi| {
                    cdi.remove(&id)?;
                    Ok(metadata.remove(&uid)?)
                });
                removed.await?;
            }
        }
        Ok(())
    }
}

/// What earlier boots have of a claim, each with its store.
pub(super) type StoredOlder = Vec<(Arc<dyn Store>, Found)>;

/// What these stores have of a claim. Blocks.
pub(super) fn stored_in(stores: &[Arc<dyn Store>], uid: &ClaimUid) -> Result<StoredOlder, Failure> {
    let mut older = Vec::new();
    for store in stores {
        let found = store.load(uid)?;
        if !matches!(found, Found::Nothing) {
            older.push((Arc::clone(store), found));
        }
    }
    Ok(older)
}
