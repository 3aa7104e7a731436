//! What the driver does for a claim.

use std::{sync::Arc, time::Duration};

use dra_kubeletplugin::{
    Adopt, AdoptedClaim, AllocatedClaim, AllocatedDevice, ContainerEdits, DeviceMetadata, DeviceName,
    DriverName, DriverPlugin, HeldClaim, NodeName, PluginError, PrepareContext, Prepared,
};
use tokio::sync::watch;

use crate::{go_books::GoBooks, inventory::Inventory, status};

/// Gives containers environment variables that tell which GPUs they have, under the names that the Go example driver
/// uses, and the published attributes of each as device metadata. The claim's status says that they are ready.
#[derive(Debug)]
pub(crate) struct MockGpus {
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) driver: DriverName,
    pub(crate) node: NodeName,
    /// Whether containers get metadata, and claims a status.
    pub(crate) describes_devices: bool,
    pub(crate) prepare_delay: Duration,
    /// Those that the delay is for; all if it names none.
    pub(crate) slow_devices: Vec<DeviceName>,
    pub(crate) fail_prepare: Vec<DeviceName>,
    /// Of the driver that served the node before, if it is to be taken over.
    pub(crate) go_books: Option<GoBooks>,
}

impl DriverPlugin for MockGpus {
    type State = ();

    async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
        let names = || claim.devices().iter().map(AllocatedDevice::device);
        tracing::debug!(claim = %claim.claim_ref(), devices = list(names()), "prepare");
        let slow = self.slow_devices.is_empty() || names().any(|name| self.slow_devices.contains(name));
        // A timer is never less than a millisecond.
        if slow && !self.prepare_delay.is_zero() {
            tokio::time::sleep(self.prepare_delay).await;
        }
        let inventory = Arc::clone(&self.inventory.borrow());
        let mut prepared = Prepared::new(());
        for device in claim.devices() {
            if self.fail_prepare.contains(device.device()) {
                return Err(PluginError::new(format!("device {} is set to fail", device.device())));
            }
            let unknown = || PluginError::new(format!("this node has no GPU {}", device.device()));
            let place = inventory.place_of(device.device()).ok_or_else(unknown)?;
            let gpu = inventory.gpu(place).ok_or_else(unknown)?;
            prepared = prepared.device(device, self.edits(claim, device, place));
            if self.describes_devices {
                prepared = prepared
                    .metadata(device, DeviceMetadata::of_device(gpu)?)
                    .status(device, status::of(gpu)?);
            }
        }
        Ok(prepared)
    }

    async fn unprepare(&self, claim: &HeldClaim<()>) -> Result<(), PluginError> {
        let names = claim.devices.iter().map(|held| &held.device_ref().device);
        tracing::debug!(claim = %claim.claim, devices = list(names), reason = ?claim.reason, "unprepare");
        match &self.go_books {
            Some(books) => books.strike(&claim.claim.uid).await,
            None => Ok(()),
        }
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<()>>, PluginError> {
        match &self.go_books {
            Some(books) => books.claims(which).await,
            None => Ok(Vec::new()),
        }
    }
}

impl MockGpus {
    fn edits(&self, claim: &AllocatedClaim, device: &AllocatedDevice, place: usize) -> ContainerEdits {
        let gpu_env = format!("GPU_DEVICE_{place}");
        ContainerEdits::new()
            .env("KUBERNETES_NODE_NAME", self.node.as_str())
            .env("DRA_RESOURCE_DRIVER_NAME", self.driver.as_str())
            .env("DRA_ADMIN_ACCESS", device.admin_access().to_string())
            .env(gpu_env.as_str(), device.device().as_str())
            .env(format!("{gpu_env}_RESOURCE_CLAIM"), claim.uid().as_str())
            .env(format!("{gpu_env}_SHARING_STRATEGY"), "TimeSlicing")
            .env(format!("{gpu_env}_TIMESLICE_INTERVAL"), "Default")
    }
}

fn list<'a>(names: impl Iterator<Item = &'a DeviceName>) -> String {
    names.map(DeviceName::as_str).collect::<Vec<_>>().join(",")
}
