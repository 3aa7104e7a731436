//! Lets go of claims on a person's word, because the driver leaves the node. Containers may still run.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{Claims, Failure, states::Phase, store::Found, unprepare::Then};
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

    /// Lets go of one claim.
    pub(crate) async fn release(&self, uid: &ClaimUid) -> Released {
        let (claim, devices) = self.describe(uid).await;
        let outcome = self.let_go(claim.clone()).await.map_err(|error| error.to_string());
        Released { claim, devices, outcome }
    }

    /// What is known of the claim; at least its UID.
    async fn describe(&self, uid: &ClaimUid) -> (ClaimRef, Vec<DeviceRef>) {
        let (older, wanted) = (self.disk.older.clone(), uid.clone());
        let record = self.disk.run(move |store, _| {
            let stores = std::iter::once(store).chain(older.iter().map(|store| &**store));
            for store in stores {
                if let Found::Stored { record, .. } | Found::Newer { record: Some(record), .. } =
                    store.load(&wanted)?
                {
                    return Ok(Some(record));
                }
            }
            Ok(None)
        });
        match record.await {
            Ok(Some(record)) => {
                let devices = record.allocation.results.iter().map(AllocatedDevice::device_ref);
                (record.claim.clone(), devices.cloned().collect())
            }
            // Why it cannot be read, the next look at it says.
            Ok(None) | Err(_) => (ClaimRef::new("", "", uid.clone()), Vec::new()),
        }
    }

    async fn let_go(&self, claim: ClaimRef) -> Result<Way, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let uid = claim.uid.clone();
        let _held = self.locks.claim(&uid, deadline).await?;
        let undone = self.undo_older_locked(&uid, Then::Forget, deadline).await?;
        match self.load(&uid).await? {
            Found::Nothing if undone => Ok(Way::Unprepared),
            Found::Nothing => Ok(Way::NotHeld),
            Found::Stored { phase: Phase::Prepared, record } if record.adopted => {
                self.hand_back(uid).await?;
                Ok(Way::HandedBack)
            }
            found => {
                self.undo_found(found, claim, UnprepareReason::Released, deadline).await?;
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
