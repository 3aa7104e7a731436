//! Claims that another driver program has prepared: taking over a node from a driver that kept its own books.

use crate::{claim::DeviceRef, names::ClaimUid};

/// Which claims a driver is asked about. See [`DriverPlugin::adopt`](crate::DriverPlugin::adopt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adopt<'a> {
    /// All that the earlier program has prepared and that are still prepared; asked at each start.
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
    pub devices: Vec<DeviceRef>,
    /// What unprepare must know.
    pub state: S,
}

impl<S> AdoptedClaim<S> {
    /// Names the claim, its devices, and what unprepare must know.
    pub fn new(uid: ClaimUid, devices: impl IntoIterator<Item = DeviceRef>, state: S) -> Self {
        Self { uid, name: None, devices: devices.into_iter().collect(), state }
    }

    /// Adds namespace and name.
    #[must_use]
    pub fn named(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.name = Some((namespace.into(), name.into()));
        self
    }
}
