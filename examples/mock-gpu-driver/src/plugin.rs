//! What the driver does for a claim.

use std::time::Duration;

use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, ContainerEdits, DeviceMetadata, DeviceName, DriverName, DriverPlugin,
    HeldClaim, NodeName, PluginError, PrepareContext, Prepared,
};

use crate::inventory::Inventory;

/// Gives containers environment variables that tell which GPUs they have, under the names that the Go example driver
/// uses, and the published attributes of each as device metadata.
#[derive(Debug)]
pub(crate) struct MockGpus {
    pub(crate) inventory: Inventory,
    pub(crate) driver: DriverName,
    pub(crate) node: NodeName,
    /// Whether containers get metadata.
    pub(crate) metadata: bool,
    pub(crate) prepare_delay: Duration,
    /// Those that the delay is for; all if it names none.
    pub(crate) slow_devices: Vec<DeviceName>,
    pub(crate) fail_prepare: Vec<DeviceName>,
}

impl DriverPlugin for MockGpus {
    type State = ();

    async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
        let names = || claim.devices().iter().map(AllocatedDevice::device);
        tracing::debug!(claim = %claim.claim_ref(), devices = list(names()), "prepare");
        if self.slow_devices.is_empty() || names().any(|name| self.slow_devices.contains(name)) {
            tokio::time::sleep(self.prepare_delay).await;
        }
        let mut prepared = Prepared::new(());
        for device in claim.devices() {
            if self.fail_prepare.contains(device.device()) {
                return Err(PluginError::new(format!("device {} is set to fail", device.device())));
            }
            let unknown = || PluginError::new(format!("this node has no GPU {}", device.device()));
            let place = self.inventory.place_of(device.device()).ok_or_else(unknown)?;
            let gpu = self.inventory.gpu(place).ok_or_else(unknown)?;
            prepared = prepared.device(device, self.edits(claim, device, place));
            if self.metadata {
                prepared = prepared.metadata(device, DeviceMetadata::of_device(gpu)?);
            }
        }
        Ok(prepared)
    }

    async fn unprepare(&self, claim: &HeldClaim<()>) -> Result<(), PluginError> {
        let names = claim.devices.iter().map(|held| &held.device_ref().device);
        tracing::debug!(claim = %claim.claim, devices = list(names), reason = ?claim.reason, "unprepare");
        Ok(())
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
