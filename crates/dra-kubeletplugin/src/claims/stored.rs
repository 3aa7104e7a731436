//! What there is of a claim: in the records of this boot, in those of earlier boots, and with another program.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Claims, Disk, Failure,
    record::Record,
    states::{Phase, Undo, undo},
    store::{Found, Store},
    undo::{How, Then},
};
use crate::{claim::ClaimRef, names::ClaimUid, plugin::DriverPlugin};

/// What one boot has of a claim.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) store: Arc<dyn Store>,
    pub(super) found: Found,
    /// Whether the boot is over: nothing of it runs any more, and its records are never answered from.
    pub(super) older: bool,
}

/// What this boot has of a claim once earlier boots have nothing of it.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) found: Found,
    /// Whether an earlier boot had something, which has been undone.
    pub(super) undone: bool,
}

impl Stored {
    /// As much of the record as can be read: what a later format tells is enough to undo it.
    pub(super) fn record(&self) -> Option<&Record> {
        self.found.record()
    }

    /// Which call of the driver undoes it; none if there is nothing that the driver could undo.
    pub(super) fn undo_call(&self) -> Option<Undo> {
        match &self.found {
            Found::Nothing => None,
            Found::Stored { phase, record } | Found::Newer { phase, record: Some(record), .. } => {
                // A record of an earlier boot is not marked as unpreparing, so its state does not tell.
                let call = if self.older { Undo::Unprepare } else { undo(*phase) };
                (!record.is_vacated()).then_some(call)
            }
            // After a reboot nothing runs that could use the devices.
            Found::Newer { record: None, .. } | Found::Damaged { .. } => {
                (!self.older).then_some(Undo::Unprepare)
            }
        }
    }

    /// Whether it still has to be marked as on its way out.
    pub(super) fn is_unmarked(&self) -> bool {
        let prepared = match &self.found {
            Found::Stored { phase, .. } | Found::Newer { phase, record: Some(_), .. } => {
                *phase == Phase::Prepared
            }
            Found::Nothing | Found::Newer { record: None, .. } | Found::Damaged { .. } => false,
        };
        prepared && !self.older
    }
}

impl<P: DriverPlugin> Claims<P> {
    /// What there is of the claim. What an earlier boot has left is undone, and what another program has prepared is
    /// recorded, so that this boot's record says it all. The caller has the claim's lock.
    pub(super) async fn find(
        &self,
        claim: &ClaimRef,
        then: Then,
        deadline: Instant,
    ) -> Result<Current, Failure> {
        let found = self.load(&claim.uid).await?;
        if !found.has_no_devices() {
            return Ok(Current { found, undone: false });
        }
        let undone = self.undo_older(claim, How { then, ..How::reboot(deadline) }).await?;
        let found = match self.adopt_one(claim, deadline).await? {
            Some(record) => Found::Stored { phase: Phase::Prepared, record: Box::new(record) },
            // Names may have been kept since.
            None if undone => self.load(&claim.uid).await?,
            None => found,
        };
        Ok(Current { found, undone })
    }

    /// Undoes what earlier boots have left of the claim. Says whether there was anything. The caller has the claim's
    /// lock.
    pub(super) async fn undo_older(&self, claim: &ClaimRef, how: How) -> Result<bool, Failure> {
        let older = self.disk.load_older(&claim.uid).await?;
        let mut all = Ok(());
        for stored in &older {
            let undone = self.undo(stored, claim, how).await;
            if let Err(error) = undone {
                all = Err(Failure::OlderBoot(Box::new(error)));
            }
        }
        all.map(|()| !older.is_empty())
    }

    /// What this boot has stored of the claim.
    pub(super) async fn load(&self, uid: &ClaimUid) -> Result<Found, Failure> {
        let uid = uid.clone();
        self.disk.run(move |store, _| Ok(store.load(&uid)?)).await
    }

    /// The same as something that can be undone.
    pub(super) fn of_this_boot(&self, found: Found) -> Stored {
        Stored { store: Arc::clone(&self.disk.store), found, older: false }
    }
}

impl Disk {
    /// What earlier boots have of the claim.
    pub(super) async fn load_older(&self, uid: &ClaimUid) -> Result<Vec<Stored>, Failure> {
        if self.older.is_empty() {
            return Ok(Vec::new());
        }
        let (stores, uid) = (self.older.clone(), uid.clone());
        let load = move || {
            let mut older = Vec::new();
            for store in stores {
                let found = store.load(&uid)?;
                if !matches!(found, Found::Nothing) {
                    older.push(Stored { store, found, older: true });
                }
            }
            Ok(older)
        };
        self.run(move |_, _| load()).await
    }

    pub(super) async fn write(&self, record: Record) -> Result<(), Failure> {
        self.run(move |store, _| Ok(store.write(&record)?)).await
    }
}
