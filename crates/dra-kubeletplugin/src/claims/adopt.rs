//! Takes over what another driver program has prepared.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Claims, Failure, record::Record, states::Phase};
use crate::{
    adopt::{Adopt, AdoptedClaim, AdoptedDevice},
    claim::{AllocatedDevice, Allocation, ClaimRef},
    names::ClaimUid,
    plugin::DriverPlugin,
};

/// How long to wait for a claim, for a place, and for admission.
const TIMEOUT: Duration = Duration::from_secs(45);

/// How long to wait for the devices of an adopted claim.
const DEVICES_TIMEOUT: Duration = Duration::from_secs(5);

impl<P: DriverPlugin> Claims<P> {
    /// Makes records of all claims that the driver knows and that have none. One that fails keeps no other from it.
    pub(super) async fn adopt_all(self: &Arc<Self>) -> Result<(), Failure> {
        let question = |plugin: Arc<P>| async move { plugin.adopt(Adopt::All).await };
        let adopted = self.calls.ask_adopt(Instant::now() + TIMEOUT, question).await?;
        let mut all = Ok(());
        for claim in adopted {
            let recorded = self.adopt_unrecorded(claim.uid).await;
            all = all.and(recorded);
        }
        all
    }

    async fn adopt_unrecorded(self: &Arc<Self>, uid: ClaimUid) -> Result<(), Failure> {
        // One of an earlier boot holds its devices until it is undone, however long that takes.
        let recorded =
            !self.load(&uid).await?.has_no_devices() || !self.disk.load_older(&uid).await?.is_empty();
        if recorded {
            return Ok(());
        }
        let deadline = Instant::now() + TIMEOUT;
        let held = self.lock_claim(&uid, deadline).await?;
        let this = Arc::clone(self);
        let work = async move {
            let _held = held;
            // It may be on its way out already: asked again with the claim's lock, the driver knows.
            if this.load(&uid).await?.has_no_devices() {
                this.adopt_one(&ClaimRef::new("", "", uid), deadline).await?;
            }
            Ok(())
        };
        self.calls.work("adopt", work).await
    }

    /// Asks the driver about one claim of which no record has any devices. The caller has the claim's lock.
    pub(super) async fn adopt_one(
        &self,
        claim: &ClaimRef,
        deadline: Instant,
    ) -> Result<Option<Record>, Failure> {
        let wanted = claim.uid.clone();
        let question = |plugin: Arc<P>| async move { plugin.adopt(Adopt::Claim(&wanted)).await };
        let adopted = self.calls.ask_adopt(deadline, question).await?;
        let Some(adopted) = adopted.into_iter().find(|found| found.uid == claim.uid) else { return Ok(None) };
        // A driver that is giving back another share of a device should learn that this claim has one. It is recorded all
        // the same, or one call that hangs would keep all prepares waiting.
        let refs = adopted.devices.iter().map(|device| &device.device);
        let _devices = self.lock_devices(&claim.uid, refs, Instant::now() + DEVICES_TIMEOUT).await.ok();
        // No claim may be given its devices while the record is on its way.
        let _admission = self.up_to_date(deadline).await?;
        self.record_adopted(claim, adopted).await.map(Some)
    }

    async fn record_adopted(
        &self,
        claim: &ClaimRef,
        adopted: AdoptedClaim<P::State>,
    ) -> Result<Record, Failure> {
        let state = serde_json::to_value(&adopted.state);
        let state =
            state.map_err(|error| Failure::Internal(format!("the driver's state is no JSON: {error}")))?;
        let claim = match adopted.name {
            Some((namespace, name)) => ClaimRef::new(namespace, name, adopted.uid),
            // The kubelet's name of it, if the kubelet asks.
            None => claim.clone(),
        };
        let results = adopted.devices.into_iter().map(|device| {
            let AdoptedDevice { device, share_id, admin_access } = device;
            AllocatedDevice::adopted(device, share_id, admin_access)
        });
        let allocation = Allocation { results: results.collect(), ..Allocation::default() };
        let record = Record {
            completed: true,
            adopted: true,
            foreign_cdi: adopted.cdi_file.map(|file| file.as_str().to_owned()),
            state: Some(state),
            ..Record::started(claim, allocation)
        };
        tracing::info!(claim = %record.claim, "adopting a claim that another program has prepared");
        let _change = self.changes.read().await;
        match self.disk.write(record.clone()).await {
            Ok(()) => self.memory().insert(&record, Phase::Prepared),
            Err(error) => {
                self.remember_after_failure(Arc::clone(&self.disk.store), &record.claim.uid, None).await;
                return Err(error);
            }
        }
        Ok(record)
    }
}
