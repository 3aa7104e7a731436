//! Lets go of claims on a person's word, because the driver leaves the node. Containers may still run.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Claims, Failure, states::Phase, store::Found, undo::How};
use crate::{
    claim::{AllocatedDevice, ClaimRef, DeviceRef},
    held::UnprepareReason,
    names::ClaimUid,
    plugin::DriverPlugin,
    state::{Released, Way},
};

/// For the driver's part in it, and for its locks.
const PATIENCE: Duration = Duration::from_secs(45);

impl<P: DriverPlugin> Claims<P> {
    /// The claims that a record of any boot tells of.
    pub(crate) async fn recorded(&self) -> Result<BTreeSet<ClaimUid>, Failure> {
        let older = self.disk.older.clone();
        let list = self.disk.run(move |store, _| {
            let mut uids: BTreeSet<ClaimUid> = store.claims()?.into_iter().collect();
            for store in older {
                uids.extend(store.claims()?);
            }
            Ok(uids)
        });
        list.await
    }

    /// Releases one claim. Dropped half-way, the work goes on and keeps its locks.
    pub(crate) async fn release(self: &Arc<Self>, uid: &ClaimUid) -> Released {
        let (claim, devices) = self.describe(uid).await;
        let outcome = self.release_claim(claim.clone()).await.map_err(|error| error.to_string());
        Released { claim, devices, outcome }
    }

    /// What the records say of the claim; at least its UID.
    async fn describe(&self, uid: &ClaimUid) -> (ClaimRef, Vec<DeviceRef>) {
        // Why one cannot be read, the next look at it says.
        let current = self.load(uid).await.map(|found| self.of_this_boot(found));
        let older = self.disk.load_older(uid).await.unwrap_or_default();
        let known = current.into_iter().chain(older).find_map(|stored| stored.record().cloned());
        known.map_or_else(
            || (ClaimRef::new("", "", uid.clone()), Vec::new()),
            |record| {
                let devices = record.allocation.results.iter().map(AllocatedDevice::device_ref);
                (record.claim.clone(), devices.cloned().collect())
            },
        )
    }

    async fn release_claim(self: &Arc<Self>, claim: ClaimRef) -> Result<Way, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let held = self.lock_claim(&claim.uid, deadline).await?;
        let this = Arc::clone(self);
        let work = async move {
            let _held = held;
            this.release_locked(claim, deadline).await
        };
        self.calls.work("unprepare", work).await
    }

    async fn release_locked(&self, claim: ClaimRef, deadline: Instant) -> Result<Way, Failure> {
        let undone = self.undo_older(&claim, How::reboot(deadline)).await?;
        match self.load(&claim.uid).await? {
            Found::Nothing if undone => Ok(Way::Unprepared),
            Found::Nothing => Ok(Way::NotHeld),
            Found::Stored { phase: Phase::Prepared, record } if record.adopted => {
                self.hand_back(claim.uid).await?;
                Ok(Way::HandedBack)
            }
            found => {
                let stored = self.of_this_boot(found);
                self.undo(&stored, &claim, How::forget(UnprepareReason::Released, deadline)).await?;
                Ok(Way::Unprepared)
            }
        }
    }

    /// Forgets a claim that stands in another program's books as it always has. Memory keeps it: it goes on holding its
    /// devices, and its CDI file is needed.
    async fn hand_back(&self, uid: ClaimUid) -> Result<(), Failure> {
        let _change = self.changes.read().await;
        self.disk.run(move |store, _| Ok(store.remove(&uid)?)).await
    }
}
