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
    pub devices: Vec<DeviceRef>,
    /// The CDI file that the earlier program wrote, if it is in the CDI folder. Containers may be started again with its
    /// devices, so it stays until the last claim that names it has been unprepared, and is removed then.
    pub cdi_file: Option<ForeignFile>,
    /// What unprepare must know.
    pub state: S,
}

impl<S> AdoptedClaim<S> {
    /// Names the claim, its devices, and what unprepare must know.
    pub fn new(uid: ClaimUid, devices: impl IntoIterator<Item = DeviceRef>, state: S) -> Self {
        Self { uid, name: None, devices: devices.into_iter().collect(), cdi_file: None, state }
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
