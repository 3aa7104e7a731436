//! What the driver does for a claim.

use std::sync::Arc;

use dra_kubeletplugin::{
    Adopt, AdoptedClaim, AllocatedClaim, AllocatedDevice, ConfigError, ContainerEdits, DeviceMetadata,
    DeviceName, DeviceRef, DriverName, DriverPlugin, HeldClaim, NodeName, OpaqueConfig, PluginError,
    PrepareContext, Prepared,
};
use tokio::sync::watch;

use crate::{
    faults::Faults,
    go_books::{self, GoBooks},
    inventory::Inventory,
    profile::{DeviceProfile, Profile},
    status,
};

/// Gives containers environment variables that tell which devices they have, under the names that the Go example driver
/// uses, and the published attributes of each as device metadata. The claim's status says that they are ready.
///
/// Devices that do not exist need no work. A driver of real ones does it in `prepare`, before it answers, and undoes it
/// in `unprepare`.
#[derive(Debug)]
pub(crate) struct MockDriver {
    pub(crate) profile: DeviceProfile,
    pub(crate) devices: Box<dyn Profile>,
    /// The devices as they are published.
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    pub(crate) driver: DriverName,
    pub(crate) node: NodeName,
    /// Whether containers get metadata, and claims a status.
    pub(crate) describes_devices: bool,
    pub(crate) faults: Faults,
    /// Of the driver that served the node before, if it is to be taken over.
    pub(crate) go_books: Option<GoBooks>,
}

impl DriverPlugin for MockDriver {
    type State = ();

    async fn prepare(&self, claim: &AllocatedClaim, _: &PrepareContext<()>) -> Result<Prepared, PluginError> {
        let names = claim.devices().iter().map(AllocatedDevice::device);
        tracing::debug!(claim = %claim.claim_ref(), devices = list(names), "prepare");
        self.faults.play(claim).await?;
        let inventory = Arc::clone(&self.inventory.borrow());
        let mut prepared = Prepared::new(());
        for device in claim.devices() {
            let unknown = || PluginError::new(format!("this node has no device {}", device.device()));
            let published = inventory.device(device.device()).ok_or_else(unknown)?;
            prepared = prepared.device(device, self.edits(claim, device)?);
            if self.describes_devices {
                prepared = prepared
                    .metadata(device, DeviceMetadata::of_device(published)?)
                    .status(device, status::of(published)?);
            }
        }
        Ok(prepared)
    }

    async fn unprepare(&self, claim: &HeldClaim<()>) -> Result<(), PluginError> {
        let names = claim.devices.iter().map(|held| &held.device_ref().device);
        tracing::debug!(claim = %claim.claim, devices = list(names), reason = ?claim.reason, "unprepare");
        self.faults.play_unprepare(claim).await;
        go_books::strike(self.go_books.as_ref(), &claim.claim.uid).await
    }

    fn validate(&self, config: &OpaqueConfig) -> Result<(), ConfigError> {
        self.profile.validate(config.parameters())
    }

    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        self.devices.conflicts(held, wanted)
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<()>>, PluginError> {
        go_books::claims(self.go_books.as_ref(), which).await
    }
}

impl MockDriver {
    fn edits(&self, claim: &AllocatedClaim, device: &AllocatedDevice) -> Result<ContainerEdits, ConfigError> {
        let (class, name) = (self.devices.class(), device.device().as_str());
        let variable =
            format!("{class}_DEVICE_{}", upper(name.strip_prefix(self.devices.prefix()).unwrap_or(name)));
        let mut edits = ContainerEdits::new()
            .env("KUBERNETES_NODE_NAME", self.node.as_str())
            .env("DRA_RESOURCE_DRIVER_NAME", self.driver.as_str())
            .env("DRA_ADMIN_ACCESS", device.admin_access().to_string())
            .env(format!("{class}_DEVICE_{}_RESOURCE_CLAIM", upper(name)), claim.uid().as_str())
            .env(variable.as_str(), name);
        if let Some(share) = device.share_id() {
            edits = edits.env(format!("{variable}_SHARE_ID"), share);
        }
        let env = self.devices.env(claim, device)?;
        Ok(env.into_iter().fold(edits, |edits, (end, value)| edits.env(format!("{variable}{end}"), value)))
    }
}

/// A device's name within the name of a variable.
fn upper(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn list<'a>(names: impl Iterator<Item = &'a DeviceName>) -> String {
    names.map(DeviceName::as_str).collect::<Vec<_>>().join(",")
}
