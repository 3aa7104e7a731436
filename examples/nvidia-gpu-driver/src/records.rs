//! What the claims of this node have, as the SDK's records tell it. Looked at when something is not as it should be.

use anyhow::ensure;
use dra_kubeletplugin::{
    AllocatedClaim, DeviceName,
    state::{self, RecordPhase, RecordState, StateLocation},
};

/// Where the records are.
#[derive(Clone, Debug)]
pub(crate) struct Records(pub(crate) StateLocation);

impl Records {
    /// Names of the devices that claims have.
    ///
    /// # Errors
    /// The records cannot be read, or it is not known, or not decided yet, what one of them holds.
    pub(crate) async fn held_devices(&self) -> anyhow::Result<Vec<String>> {
        let mut held = Vec::new();
        for record in self.read().await? {
            let (path, phase) = (record.path.display(), record.phase);
            let is_clear =
                matches!(phase, RecordPhase::Started | RecordPhase::Prepared | RecordPhase::Vacated);
            ensure!(is_clear && record.newer_format.is_none(), "{path} is {phase:?}");
            let holders = record.devices.iter().filter(|device| !device.admin_access);
            held.extend(holders.map(|device| device.device.device.to_string()));
        }
        Ok(held)
    }

    /// Whether somebody may use a device that is about to be prepared: the same claim that had it before, or a claim that
    /// has admin access to it or to a device that `overlaps`.
    ///
    /// # Errors
    /// The records cannot be read.
    pub(crate) async fn may_be_used(
        &self,
        claim: &AllocatedClaim,
        overlaps: impl Fn(&DeviceName) -> bool,
    ) -> anyhow::Result<bool> {
        let uses = |record: &RecordState| {
            let mut admins = record.devices.iter().filter(|device| device.admin_access);
            let is_same = record.uid == *claim.uid() && record.phase == RecordPhase::Prepared;
            is_same || admins.any(|device| overlaps(&device.device.device))
        };
        Ok(self.read().await?.iter().any(uses))
    }

    /// All of them.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn read(&self) -> anyhow::Result<Vec<RecordState>> {
        Ok(state::show(&self.0).await?.snapshot.records)
    }
}
