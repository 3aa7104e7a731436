//! What a driver answers to prepare.

use dra_cdi::{ContainerEdits, QualifiedName};

use crate::{
    claim::{AllocatedDevice, DeviceRef},
    claim_status::DeviceStatus,
    metadata::DeviceMetadata,
};

/// What the driver did for a claim: how each device gets into a container, and what unprepare has to know.
///
/// Every device of the claim must be answered, with edits, with own CDI ids, or with neither.
///
/// ```
/// use dra_kubeletplugin::{AllocatedClaim, ContainerEdits, Prepared};
///
/// fn answer(claim: &AllocatedClaim) -> Prepared {
///     let edits = |device: &str| ContainerEdits::new().env("MY_DEVICE", device);
///     claim.devices().iter().map(|d| (d, edits(d.device().as_str()))).collect()
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prepared<S = ()> {
    pub(crate) devices: Vec<PreparedDevice>,
    pub(crate) state: S,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreparedDevice {
    pub(crate) request: String,
    pub(crate) device: DeviceRef,
    pub(crate) share_id: Option<String>,
    pub(crate) access: Access,
    pub(crate) status: Option<DeviceStatus>,
    pub(crate) metadata: Option<DeviceMetadata>,
}

/// How containers get at a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Access {
    /// The SDK writes these edits into the claim's CDI file.
    Edits(Box<ContainerEdits>),
    /// CDI devices that the driver keeps itself.
    Ids(Vec<QualifiedName>),
}

impl<S> Prepared<S> {
    /// Starts with what unprepare must know; `()` if the claim itself says enough.
    pub fn new(state: S) -> Self {
        Self { devices: Vec::new(), state }
    }

    /// Answers one device with the edits that make it usable in a container. Empty edits are fine: the container then
    /// gets nothing for it.
    #[must_use]
    pub fn device(mut self, device: &AllocatedDevice, edits: ContainerEdits) -> Self {
        self.devices.push(PreparedDevice::new(device, Access::Edits(Box::new(edits))));
        self
    }

    /// Answers one device with CDI devices that the driver keeps itself, in a CDI file of its own.
    #[must_use]
    pub fn device_with_ids(
        mut self,
        device: &AllocatedDevice,
        ids: impl IntoIterator<Item = QualifiedName>,
    ) -> Self {
        self.devices.push(PreparedDevice::new(device, Access::Ids(ids.into_iter().collect())));
        self
    }

    /// Has the claim's status say this of a device that is answered already.
    #[must_use]
    pub fn status(mut self, device: &AllocatedDevice, status: DeviceStatus) -> Self {
        if let Some(prepared) = self.devices.iter_mut().find(|prepared| prepared.answers(device)) {
            prepared.status = Some(status);
        }
        self
    }

    /// Tells the claim's containers this of a device that is answered already, by a file ([`metadata`](crate::metadata)).
    ///
    /// If anything is said of one device of a claim, each of its requests gets a file, which lists the devices of that
    /// request. A file that cannot be written fails the claim. It stays as it is while the claim is prepared: a
    /// container would not see a later one.
    #[must_use]
    pub fn metadata(mut self, device: &AllocatedDevice, metadata: DeviceMetadata) -> Self {
        if let Some(prepared) = self.devices.iter_mut().find(|prepared| prepared.answers(device)) {
            prepared.metadata = Some(metadata);
        }
        self
    }
}

impl PreparedDevice {
    fn new(device: &AllocatedDevice, access: Access) -> Self {
        Self {
            request: device.request().to_owned(),
            device: device.device_ref().clone(),
            share_id: device.share_id().map(str::to_owned),
            access,
            status: None,
            metadata: None,
        }
    }

    pub(crate) fn answers(&self, result: &AllocatedDevice) -> bool {
        self.request == result.request()
            && self.device == *result.device_ref()
            && self.share_id.as_deref() == result.share_id()
    }
}

impl<'a> FromIterator<(&'a AllocatedDevice, ContainerEdits)> for Prepared<()> {
    fn from_iter<I: IntoIterator<Item = (&'a AllocatedDevice, ContainerEdits)>>(devices: I) -> Self {
        devices.into_iter().fold(Self::new(()), |prepared, (device, edits)| prepared.device(device, edits))
    }
}
