//! What a driver is told when a claim ends.

use crate::claim::{AllocatedDevice, ClaimRef, DeviceRef};

/// A claim that this driver has prepared, or started to, as its record tells it. The claim object may be gone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldClaim<S> {
    /// Which claim.
    pub claim: ClaimRef,
    /// The devices that it holds; none if its record could not be read.
    pub devices: Vec<HeldDevice>,
    /// What prepare returned or saved last; none if it never did, or if the record could not be read.
    pub state: Option<S>,
    /// Why the claim ends.
    pub reason: UnprepareReason,
}

/// A device of a claim that ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldDevice {
    /// The allocation result, as it was when the claim was prepared.
    pub result: AllocatedDevice,
    /// Other claims that hold the device too, as shares of it. Claims with admin access are not counted.
    pub others: Vec<ClaimRef>,
}

impl HeldDevice {
    /// Pool and name of the device.
    #[must_use]
    pub fn device_ref(&self) -> &DeviceRef {
        self.result.device_ref()
    }
}

/// Why a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnprepareReason {
    /// The kubelet asked for it.
    Unprepare,
    /// Prepare failed, or died half-way.
    Rollback,
    /// The claim was allocated anew, with other devices or another configuration.
    Reallocated,
    /// The claim is gone and the kubelet never asked.
    Orphan,
    /// The machine was started anew; nothing of the old boot runs any more.
    Reboot,
    /// A person lets go of the claim, because the driver leaves the node ([`state::release`](crate::state::release)).
    /// Containers may be using its devices: a driver whose undo would hurt them returns an error.
    Released,
}
