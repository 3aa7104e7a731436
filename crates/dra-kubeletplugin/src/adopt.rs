//! Claims that another driver program has prepared: taking over a node from a driver that kept its own books.

use dra_cdi::ForeignFile;

use crate::{claim::DeviceRef, names::ClaimUid};

/// Which claims a driver is asked about. See [`DriverPlugin::adopt`](crate::DriverPlugin::adopt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adopt<'a> {
    /// All that the earlier program has prepared and that are still prepared; asked at each start. Each one that no record
    /// tells of is asked for by itself then.
    All,
    /// This one: the kubelet wants it prepared or unprepared, and no record tells of it. Until this plugin was
    /// registered, the earlier program went on preparing.
    Claim(&'a ClaimUid),
}

/// A claim that an earlier program has prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdoptedClaim<S> {
    /// UID of the claim.
    pub uid: ClaimUid,
    /// Namespace and name, if known. Without them the claim is never collected as an orphan.
    pub name: Option<(String, String)>,
    /// The devices that it holds.
    pub devices: Vec<AdoptedDevice>,
    /// The CDI file that the earlier program wrote, if it is in the CDI folder. Containers may be started again with its
    /// devices, so it stays until the last claim that names it has been unprepared, and is removed then.
    pub cdi_file: Option<ForeignFile>,
    /// What unprepare must know.
    pub state: S,
}

/// A device of an adopted claim. What is said of it decides which other claims may use it: a device that is neither a
/// share nor held with admin access is the claim's alone.
///
/// ```
/// use dra_kubeletplugin::{AdoptedDevice, DeviceRef};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gpu = DeviceRef::new("node-1".parse()?, "gpu-0".parse()?);
/// let alone = AdoptedDevice::from(gpu.clone());
/// assert!(!alone.admin_access);
/// let monitored = AdoptedDevice::from(gpu.clone()).admin_access(true);
/// let shared = AdoptedDevice::from(gpu).share("1b6cd4e8-5a0c-4b0e-9d4e-6c1d2f8a9b07");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdoptedDevice {
    /// Pool and name.
    pub device: DeviceRef,
    /// The share of the device that the claim has (`status.allocation.devices.results[].shareID`), if it has only one.
    pub share_id: Option<String>,
    /// Whether the claim only watches or manages the device (`results[].adminAccess`).
    pub admin_access: bool,
}

impl From<DeviceRef> for AdoptedDevice {
    fn from(device: DeviceRef) -> Self {
        Self { device, share_id: None, admin_access: false }
    }
}

impl AdoptedDevice {
    /// Says which share of the device the claim has: a lower-case UUID.
    #[must_use]
    pub fn share(mut self, id: impl Into<String>) -> Self {
        self.share_id = Some(id.into());
        self
    }

    /// Says whether the claim has admin access.
    #[must_use]
    pub fn admin_access(mut self, yes: bool) -> Self {
        self.admin_access = yes;
        self
    }
}

impl<S> AdoptedClaim<S> {
    /// Names the claim, its devices, and what unprepare must know.
    pub fn new<D: Into<AdoptedDevice>>(
        uid: ClaimUid,
        devices: impl IntoIterator<Item = D>,
        state: S,
    ) -> Self {
        let devices = devices.into_iter().map(Into::into).collect();
        Self { uid, name: None, devices, cdi_file: None, state }
    }

    /// Adds namespace and name.
    #[must_use]
    pub fn named(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.name = Some((namespace.into(), name.into()));
        self
    }

    /// Names the CDI file that the earlier program wrote for the claim, such as
    /// `k8s.gpu.example.com-claim_<claim UID>.yaml`, which is what the Go library makes of it by default.
    #[must_use]
    pub fn cdi_file(mut self, file: ForeignFile) -> Self {
        self.cdi_file = Some(file);
        self
    }
}
