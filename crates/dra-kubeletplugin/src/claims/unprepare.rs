//! Takes a claim out: on the kubelet's word, or because prepare has to begin anew.

use std::{sync::Arc, time::Duration};

use dra_cdi::ForeignFile;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::Instrument as _;

use super::{
    Claims, Failure, file_id,
    locks::Held,
    prepare::{driver_point, panicked},
    record::Record,
    states::{Phase, Undo, undo},
    store::{Found, Store},
};
use crate::{
    claim::{AllocatedDevice, ClaimRef},
    held::{HeldClaim, HeldDevice, UnprepareReason},
    lock::LockError,
    names::ClaimUid,
    plugin::DriverPlugin,
};

/// Kept back from the caller's deadline for the answer that a prepare is still running.
const LAST_WORD: Duration = Duration::from_secs(5);

/// How long the other instance may take to let go of its claim.
const FOREIGN_FILE_PATIENCE: Duration = Duration::from_secs(10);

/// What follows when a stored claim has been undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: nobody will ask for it any more.
    Forget,
    /// A prepare, by this call or the kubelet's next: the names of its former CDI devices are kept.
    Prepare,
}

impl<P: DriverPlugin> Claims<P> {
    /// Unprepares a claim from its record. Needs no API server; a claim that nothing is known of is a success.
    pub(crate) async fn unprepare(
        self: &Arc<Self>,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let place = self.board.get(&claim.uid);
        place.announce_unprepare();
        let patience = deadline.checked_sub(LAST_WORD).unwrap_or(deadline);
        let turn = tokio::time::timeout_at(patience, async {
            let held = self.locks.claim(&claim.uid, patience).await?;
            Ok::<_, Failure>((held, self.driver_permit().await?))
        });
        let (held, permit) = match turn.await {
            Ok(Ok(turn)) => turn,
            Ok(Err(Failure::Lock(LockError::Busy { .. }))) | Err(_) => {
                return Err(place.running_for().map_or(Failure::Busy, Failure::StillRunning));
            }
            Ok(Err(error)) => return Err(error),
        };
        let work = Arc::clone(self).unprepare_locked(held, permit, claim, deadline).in_current_span();
        tokio::spawn(work).await.map_err(|error| panicked("unprepare", error))?
    }

    /// Owns the claim's lock to its end.
    async fn unprepare_locked(
        self: Arc<Self>,
        _held: Held,
        _permit: OwnedSemaphorePermit,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let (found, of_older_boot) = self.find(&claim.uid, Then::Forget, deadline).await?;
        match found {
            Found::Nothing if of_older_boot => Ok(()),
            Found::Nothing => self.unprepare_unknown(claim).await,
            found => self.undo_found(found, claim, UnprepareReason::Unprepare, deadline).await,
        }
    }

    /// Undoes whatever was found stored of a claim. The caller has the claim's lock.
    pub(super) async fn undo_found(
        &self,
        found: Found,
        claim: ClaimRef,
        reason: UnprepareReason,
        deadline: Instant,
    ) -> Result<(), Failure> {
        match found {
            Found::Nothing => Ok(()),
            // What can be read of a later format's record is enough for that.
            Found::Stored { phase, record } | Found::Newer { phase, record: Some(record), .. } => {
                self.undo(phase, &record, reason, Then::Forget, deadline).await
            }
            Found::Newer { record: None, .. } => self.unprepare_unread(claim, reason).await,
            Found::Damaged { path, why } => {
                tracing::warn!(%claim, path = %path.display(), why, "unpreparing a claim whose record is damaged");
                self.unprepare_unread(claim, reason).await
            }
        }
    }

    /// What there is of the claim, and whether it was an earlier boot's and is undone: an earlier boot and another
    /// program may have something of it that this boot's records do not tell. The caller has the claim's lock.
    pub(super) async fn find(
        &self,
        uid: &ClaimUid,
        then: Then,
        deadline: Instant,
    ) -> Result<(Found, bool), Failure> {
        let mut found = self.load(uid).await?;
        if !found.has_no_devices() {
            return Ok((found, false));
        }
        let undone = self.undo_older_locked(uid, then, deadline).await;
        let of_older_boot = undone.map_err(|error| match then {
            Then::Prepare => Failure::Undo(Box::new(error)),
            Then::Forget => error,
        })?;
        if of_older_boot {
            found = self.load(uid).await?;
        }
        if let Some(record) = self.adopt_one(uid, deadline).await? {
            found = Found::Stored { phase: Phase::Prepared, record: Box::new(record) };
        }
        Ok((found, of_older_boot))
    }

    /// Undoes a stored claim and frees its devices.
    pub(super) async fn undo(
        &self,
        phase: Phase,
        record: &Record,
        reason: UnprepareReason,
        then: Then,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let refs = record.allocation.results.iter().map(AllocatedDevice::device_ref);
        let _devices = self.locks.devices(refs, deadline).await?;
        self.catch_up(deadline).await?;
        self.undo_locked(phase, record, reason, then).await
    }

    /// Whoever else holds a share of the devices must be known to the driver. The caller has their locks, so nobody
    /// joins or leaves after that.
    pub(super) async fn catch_up(&self, deadline: Instant) -> Result<(), Failure> {
        self.up_to_date(deadline).await.map(drop)
    }

    /// Undoes a stored claim whose devices are locked already.
    pub(super) async fn undo_locked(
        &self,
        phase: Phase,
        record: &Record,
        reason: UnprepareReason,
        then: Then,
    ) -> Result<(), Failure> {
        let uid = record.claim.uid.clone();
        if phase == Phase::Prepared {
            let _change = self.changes.read().await;
            let marked = uid.clone();
            self.disk.run(move |store, _| Ok(store.mark_unpreparing(&marked)?)).await?;
            self.memory().set_phase(&uid, Phase::Unpreparing);
        }
        if !record.is_vacated() {
            self.call_undo(undo(phase), self.held_claim(record, reason)).await?;
        }
        let left = (then == Then::Prepare).then(|| record.vacated(&self.kind)).filter(Record::is_vacated);
        self.forget_in(Arc::clone(&self.disk.store), &uid, left).await
    }

    pub(super) fn held_claim(&self, record: &Record, reason: UnprepareReason) -> HeldClaim<P::State> {
        let memory = self.memory();
        let devices = record.allocation.results.iter().map(|result| HeldDevice {
            result: result.clone(),
            others: memory.others(&record.claim.uid, result.device_ref()),
        });
        let (claim, state) = (record.claim.clone(), record.decoded_state());
        HeldClaim { claim, devices: devices.collect(), state, reason }
    }

    async fn unprepare_unknown(&self, claim: ClaimRef) -> Result<(), Failure> {
        let plugin = Arc::clone(&self.plugin);
        let uid = claim.uid.clone();
        driver_point("driver.before-unprepare-unknown")?;
        let called =
            tokio::spawn(async move { plugin.unprepare_unknown(&claim).await }.in_current_span()).await;
        called.map_err(|error| panicked("unprepare_unknown", error))?.map_err(Failure::Driver)?;
        self.forget(uid).await
    }

    /// All that is known is which claim it is.
    async fn unprepare_unread(&self, claim: ClaimRef, reason: UnprepareReason) -> Result<(), Failure> {
        let uid = claim.uid.clone();
        let held = HeldClaim { claim, devices: Vec::new(), state: None, reason };
        self.call_undo(Undo::Unprepare, held).await?;
        self.forget(uid).await
    }

    /// Lets the driver undo, in a task of its own, so that a panic is this claim's error.
    pub(super) async fn call_undo(&self, undo: Undo, held: HeldClaim<P::State>) -> Result<(), Failure> {
        let plugin = Arc::clone(&self.plugin);
        let name = match undo {
            Undo::Unprepare => "unprepare",
            Undo::Rollback => "rollback",
        };
        driver_point("driver.before-undo")?;
        let call = async move {
            match undo {
                Undo::Unprepare => plugin.unprepare(&held).await,
                Undo::Rollback => plugin.rollback(&held).await,
            }
        };
        let called = tokio::spawn(call.in_current_span()).await;
        driver_point("driver.after-undo")?;
        called.map_err(|error| panicked(name, error))?.map_err(Failure::Driver)
    }

    /// The driver has let go: CDI file first, then the metadata that it names, then the record, so that no file is left
    /// without one.
    async fn forget(&self, uid: ClaimUid) -> Result<(), Failure> {
        self.forget_in(Arc::clone(&self.disk.store), &uid, None).await
    }

    /// The same for a record of any boot, of which something may be left. The caller has the claim's lock.
    pub(super) async fn forget_in(
        &self,
        store: Arc<dyn Store>,
        uid: &ClaimUid,
        left: Option<Record>,
    ) -> Result<(), Failure> {
        let (id, stored) = (file_id(uid)?, uid.clone());
        // Of two instances that each let go of one of the last two claims of a foreign file, the second must see it.
        let _admission = if self.memory().has_foreign_cdi(uid) {
            Some(self.up_to_date(Instant::now() + FOREIGN_FILE_PATIENCE).await?)
        } else {
            None
        };
        let _change = self.changes.read().await;
        let foreign = self.memory().drop_foreign_cdi(uid);
        let removed =
            foreign.clone().filter(|(_, last)| *last).and_then(|(file, _)| ForeignFile::new(file).ok());
        let (metadata, rest) = (self.disk.metadata.clone(), left.clone());
        let forgotten = self.disk.run(move |_, cdi| {
            if let Some(file) = removed {
                cdi.remove_foreign(&file)?;
            }
            cdi.remove(&id)?;
            metadata.remove(&stored)?;
            match &rest {
                None => store.remove(&stored)?,
                Some(rest) => store.write_over(rest)?,
            }
            Ok(())
        });
        match (forgotten.await, foreign) {
            (Ok(()), _) => {
                self.memory().release(uid);
                if let Some(rest) = &left {
                    self.memory().insert(rest, Phase::Started);
                }
                self.status.clear(uid);
            }
            (Err(error), Some((file, _))) => {
                self.memory().keep_foreign_cdi(uid.clone(), file);
                return Err(error);
            }
            (Err(error), None) => return Err(error),
        }
        Ok(())
    }

    pub(super) async fn load(&self, uid: &ClaimUid) -> Result<Found, Failure> {
        let uid = uid.clone();
        self.disk.run(move |store, _| Ok(store.load(&uid)?)).await
    }
}
