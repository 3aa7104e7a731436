//! Takes out what is stored of a claim: the one way for an unprepare, a roll-back, a reboot, a collection and a release.

use std::{sync::Arc, time::Duration};

use dra_cdi::ForeignFile;
use tokio::time::Instant;

use super::{
    Claims, Failure,
    board::RunningMark,
    calls::{Place, driver_point},
    file_id,
    locks::Held,
    record::Record,
    states::{Phase, Undo},
    store::{Found, Store},
    stored::Stored,
};
use crate::{
    claim::{AllocatedDevice, ClaimRef, DeviceRef},
    held::{HeldClaim, HeldDevice, UnprepareReason},
    mutex::locked,
    names::ClaimUid,
    plugin::DriverPlugin,
};

/// How long the other instance may take to release its claim.
const FOREIGN_FILE_TIMEOUT: Duration = Duration::from_secs(10);

/// What follows when a stored claim has been undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing: the claim is over.
    Forget,
    /// A prepare, by this call or the kubelet's next: the names of its former CDI devices are kept.
    Prepare,
}

/// How a stored claim is undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) reason: UnprepareReason,
    pub(super) then: Then,
    /// Until when to wait for devices and a place.
    pub(super) deadline: Instant,
    /// Until when its call counts against `max_parallel`, if no call of the kubelet waits for it.
    pub(super) place_until: Option<Instant>,
}

/// What an undo holds: the devices and, if the driver is to be called, a place.
#[derive(Debug)]
pub(super) struct UndoLocks {
    /// Kept until the record is gone: of two shares that end at once, the last must see that it is.
    _devices: Vec<Held>,
    place: Option<Place>,
}

impl How {
    /// For a claim that is over.
    pub(super) fn forget(reason: UnprepareReason, deadline: Instant) -> Self {
        Self { reason, then: Then::Forget, deadline, place_until: None }
    }

    /// For a claim of an earlier boot.
    pub(super) fn reboot(deadline: Instant) -> Self {
        Self::forget(UnprepareReason::Reboot, deadline)
    }
}

impl<P: DriverPlugin> Claims<P> {
    /// Undoes what one boot has of a claim, and frees its devices. The caller has the claim's lock.
    pub(super) async fn undo(&self, stored: &Stored, claim: &ClaimRef, how: How) -> Result<(), Failure> {
        let locks = self.undo_locks(stored, claim, how).await?;
        self.undo_with(stored, claim, how, locks).await
    }

    /// Waits for what an undo needs. Dropped, nothing has been done.
    pub(super) async fn undo_locks(
        &self,
        stored: &Stored,
        claim: &ClaimRef,
        how: How,
    ) -> Result<UndoLocks, Failure> {
        let results = stored.record().map(|record| &*record.allocation.results).unwrap_or_default();
        let refs = results.iter().map(AllocatedDevice::device_ref);
        let devices = self.lock_devices(&claim.uid, refs, how.deadline).await?;
        let place = if stored.undo_call().is_some() {
            let place = self.calls.place(how.deadline).await?;
            // The driver has to know of all others that hold a share. None joins or leaves while the devices are locked.
            let (place, _admission) = self.admission_with(place, how.deadline).await?;
            Some(place.kept_until(how.place_until))
        } else {
            None
        };
        Ok(UndoLocks { _devices: devices, place })
    }

    /// Undoes what is stored with what [`undo_locks`](Self::undo_locks) has waited for.
    pub(super) async fn undo_with(
        &self,
        stored: &Stored,
        claim: &ClaimRef,
        how: How,
        mut locks: UndoLocks,
    ) -> Result<(), Failure> {
        self.undo_locked(stored, claim, how, locks.place.as_mut()).await
    }

    /// The same for a caller that has the devices, and a place if the driver is to be called.
    pub(super) async fn undo_locked(
        &self,
        stored: &Stored,
        claim: &ClaimRef,
        how: How,
        place: Option<&mut Place>,
    ) -> Result<(), Failure> {
        let uid = &claim.uid;
        if let Found::Damaged { path, why } = &stored.found {
            tracing::warn!(%claim, path = %path.display(), why, "undoing a claim whose record is damaged");
        }
        if stored.older && !self.load(uid).await?.has_no_devices() {
            // The claim has been prepared in this boot, and nothing of the other one runs any more.
            let (store, uid) = (Arc::clone(&stored.store), uid.clone());
            return self.disk.run(move |_, _| Ok(store.remove(&uid)?)).await;
        }
        if stored.is_unmarked() {
            self.mark_unpreparing(uid).await?;
        }
        if let (Some(place), Some(call)) = (place, stored.undo_call()) {
            let held = if let Some(record) = stored.record() {
                self.held_claim(record, how.reason)
            } else {
                // All that is known is which claim it is.
                let (claim, devices) = (claim.clone(), Vec::new());
                HeldClaim { claim, devices, state: None, reason: how.reason }
            };
            self.call_undo(place, call, held).await?;
        }
        let keeps = how.then == Then::Prepare;
        let rest = stored.record().filter(|_| keeps).map(|record| record.vacated(&self.kind));
        let mut rest = rest.filter(Record::is_vacated);
        // The kubelet's memory of names outlives a reboot. They are kept in this boot's records.
        if stored.older
            && let Some(rest) = rest.take()
            && self.load(uid).await?.is_nothing()
        {
            self.disk.write(rest).await?;
        }
        self.forget(Arc::clone(&stored.store), uid, rest).await
    }

    async fn mark_unpreparing(&self, uid: &ClaimUid) -> Result<(), Failure> {
        let _change = self.changes.read().await;
        let marked = uid.clone();
        self.disk.run(move |store, _| Ok(store.mark_unpreparing(&marked)?)).await?;
        self.memory().set_phase(uid, Phase::Unpreparing);
        Ok(())
    }

    async fn call_undo(
        &self,
        place: &mut Place,
        undo: Undo,
        held: HeldClaim<P::State>,
    ) -> Result<(), Failure> {
        let name = match undo {
            Undo::Unprepare => "unprepare",
            Undo::Rollback => "rollback",
        };
        let _running = RunningMark::new(self.board.get(&held.claim.uid), name);
        driver_point("driver.before-undo")?;
        let called = self.calls.call(place, name, |plugin| async move {
            match undo {
                Undo::Unprepare => plugin.unprepare(&held).await,
                Undo::Rollback => plugin.rollback(&held).await,
            }
        });
        let undone = called.await;
        driver_point("driver.after-undo")?;
        undone
    }

    /// What the driver learns of a claim that ends.
    pub(super) fn held_claim(&self, record: &Record, reason: UnprepareReason) -> HeldClaim<P::State> {
        let memory = self.memory();
        let others = |device: &DeviceRef| memory.others(&record.claim.uid, device);
        let device = |result: &AllocatedDevice| HeldDevice {
            result: result.clone(),
            others: others(result.device_ref()),
        };
        let devices = record.allocation.results.iter().map(device).collect();
        HeldClaim { claim: record.claim.clone(), devices, state: record.decoded_state(), reason }
    }

    /// Removes what is left of a claim that the driver has undone: the CDI file first, then the metadata that it names,
    /// then the record, so that no file is left without one. The caller has the claim's lock.
    pub(super) async fn forget(
        &self,
        store: Arc<dyn Store>,
        uid: &ClaimUid,
        rest: Option<Record>,
    ) -> Result<(), Failure> {
        let id = file_id(uid)?;
        // Of two instances that each release one of the last two claims of a foreign file, the second must see it.
        let _admission = if self.memory().has_foreign_cdi(uid) {
            Some(self.up_to_date(Instant::now() + FOREIGN_FILE_TIMEOUT).await?)
        } else {
            None
        };
        let _change = self.changes.read().await;
        let foreign = self.memory().drop_foreign_cdi(uid);
        let unused =
            foreign.clone().filter(|(_, last)| *last).and_then(|(file, _)| ForeignFile::new(file).ok());
        let (metadata, kept, stored, forgotten) =
            (self.disk.metadata.clone(), rest.clone(), store.clone(), uid.clone());
        let removed = self.disk.run(move |_, cdi| {
            if let Some(file) = unused {
                cdi.remove_foreign(&file)?;
            }
            cdi.remove(&id)?;
            metadata.remove(&forgotten)?;
            match &kept {
                None => store.remove(&forgotten)?,
                Some(rest) => store.write_over(rest)?,
            }
            Ok(())
        });
        let removed = removed.await;
        match &removed {
            Ok(()) => self.remember(uid, rest.map(|rest| (Phase::Started, rest))),
            Err(_) => self.remember_after_failure(stored, uid, foreign.map(|(file, _)| file)).await,
        }
        removed
    }

    /// A change of a record has failed, perhaps only in its last step, after which the record is changed, but not durably.
    pub(super) async fn remember_after_failure(
        &self,
        store: Arc<dyn Store>,
        uid: &ClaimUid,
        foreign_cdi: Option<String>,
    ) {
        let wanted = uid.clone();
        match self.disk.run(move |_, _| Ok(store.load(&wanted)?)).await {
            Ok(Found::Nothing) => self.remember(uid, None),
            Ok(Found::Stored { phase, record }) if record.is_vacated() => {
                self.remember(uid, Some((phase, *record)));
            }
            Ok(Found::Stored { phase, record }) => self.memory().insert(&record, phase),
            // What is there, or may be there, goes on holding the devices.
            _ => {
                if let Some(file) = foreign_cdi {
                    self.memory().keep_foreign_cdi(uid.clone(), file);
                }
            }
        }
    }

    /// The claim has no devices any more; a record of it that is left keeps names only.
    fn remember(&self, uid: &ClaimUid, rest: Option<(Phase, Record)>) {
        let mut memory = self.memory();
        memory.release(uid);
        if let Some((phase, rest)) = rest {
            memory.insert(&rest, phase);
        }
        drop(memory);
        locked(&self.gone).forget(uid);
        self.status.clear(uid);
    }
}
