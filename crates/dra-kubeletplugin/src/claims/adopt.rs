//! Takes over what another driver program has prepared.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Claims, Failure, prepare::panicked, record::Record, states::Phase};
use crate::{
    adopt::{Adopt, AdoptedClaim},
    claim::{AllocatedDevice, Allocation, ClaimRef},
    names::ClaimUid,
    plugin::DriverPlugin,
};

impl<P: DriverPlugin> Claims<P> {
    /// Makes records of all claims that the driver knows of and we do not.
    pub(super) async fn adopt_all(&self, deadline: Instant) -> Result<(), Failure> {
        let plugin = Arc::clone(&self.plugin);
        let adopted = tokio::spawn(async move { plugin.adopt(Adopt::All).await }).await;
        let adopted = adopted.map_err(|error| panicked("adopt", error))?.map_err(Failure::Driver)?;
        for uid in adopted.into_iter().map(|claim| claim.uid) {
            if !self.load(&uid).await?.has_no_devices() {
                continue;
            }
            // The claim may be on its way out already: asked again with its lock, the driver knows.
            let _held = self.locks.claim(&uid, deadline).await?;
            if self.load(&uid).await?.has_no_devices() {
                self.adopt_one(&uid, deadline).await?;
            }
        }
        Ok(())
    }

    /// Asks the driver about one claim of which no record tells any devices. The caller has the claim's lock.
    pub(super) async fn adopt_one(
        &self,
        uid: &ClaimUid,
        deadline: Instant,
    ) -> Result<Option<Record>, Failure> {
        let plugin = Arc::clone(&self.plugin);
        let wanted = uid.clone();
        let adopted = tokio::spawn(async move { plugin.adopt(Adopt::Claim(&wanted)).await }).await;
        let adopted = adopted.map_err(|error| panicked("adopt", error))?.map_err(Failure::Driver)?;
        let Some(claim) = adopted.into_iter().find(|claim| claim.uid == *uid) else { return Ok(None) };
        // Nobody may be given its devices while the record is on its way.
        let _admission = self.up_to_date(deadline).await?;
        self.record_adopted(claim).await.map(Some)
    }

    async fn record_adopted(&self, adopted: AdoptedClaim<P::State>) -> Result<Record, Failure> {
        let state = serde_json::to_value(&adopted.state);
        let state =
            state.map_err(|error| Failure::Internal(format!("the driver's state is no JSON: {error}")))?;
        let (namespace, name) = adopted.name.unwrap_or_default();
        let claim = ClaimRef::new(namespace, name, adopted.uid);
        let results = adopted.devices.into_iter().map(AllocatedDevice::adopted).collect();
        let allocation = Allocation { results, ..Allocation::default() };
        let record = Record {
            completed: true,
            adopted: true,
            foreign_cdi: adopted.cdi_file.map(|file| file.as_str().to_owned()),
            state: Some(state),
            ..Record::started(claim, allocation)
        };
        tracing::info!(claim = %record.claim, "adopting a claim that another program has prepared");
        let _change = self.changes.read().await;
        self.disk.write(record.clone()).await?;
        self.memory().insert(&record, Phase::Prepared);
        Ok(record)
    }
}
