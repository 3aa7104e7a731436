//! The kinds of findings.

use serde::{Deserialize, Serialize};

/// What kind of failure a finding tells of. Programs go by this; what people read may be worded otherwise one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FindingKind {
    /// The kubelet's root is another one than the driver was told.
    OtherKubeletRoot,
    /// A driver listens below a folder that is no kubelet's root.
    DriverBelowOtherRoot,
    /// A driver that ought to be on the node has no registration socket.
    NoRegistrationSocket,
    /// Nobody listens at a registration socket.
    DeadRegistrationSocket,
    /// A registration socket cannot be dialled the way the kubelet dials it.
    UndialableSocket,
    /// What listens at a registration socket does not answer as a plugin.
    NoAnswer,
    /// The socket of a driver's service takes no connection.
    ServiceUnreachable,
    /// What a plugin says of itself is not what kubelets take.
    UnacceptablePlugin,
    /// Several registration sockets name the same service, of which the kubelet takes one.
    SameEndpoint,
    /// The kubelet has not registered a driver, or has lost it.
    NotRegistered,
    /// The container runtime has CDI off.
    CdiOff,
    /// The container runtime does not read the folder that the driver writes CDI files to.
    CdiFolderNotRead,
    /// The API server does not serve the version of the API that drivers use.
    ApiNotServed,
    /// The driver's account lacks a right.
    NotPermitted,
    /// A driver has a socket on the node, and no slice that could be for it.
    NothingPublished,
    /// The slices of a pool do not agree how many there are.
    SliceCountsDiffer,
    /// Slices of a pool are missing.
    PoolIncomplete,
    /// A pool has slices of an older generation.
    OldGeneration,
    /// A pool has a device twice.
    DeviceTwice,
    /// A claim that is named does not exist.
    ClaimMissing,
    /// A template that a pod names does not exist.
    TemplateMissing,
    /// A device class that is asked for does not exist.
    ClassMissing,
    /// A pod's claim cannot be made from its template.
    ClaimNotMade,
    /// The API server has dropped fields that were applied.
    FieldsDropped,
    /// A claim is being deleted, and pods that use it keep it.
    ClaimProtected,
    /// A claim is being deleted, and something else than pods keeps it.
    ClaimHeldBack,
    /// A claim is reserved for as many pods as it can be.
    ClaimFull,
    /// Other pods use a claim, so that a pod can only run where its devices are.
    ClaimUsedElsewhere,
    /// The scheduler can make nothing of a claim.
    ClaimInvalid,
    /// No node has devices of a usable pool.
    NoDevices,
    /// Each request of a claim could be had, but not all together.
    NoCombination,
    /// Each device is kept away by something.
    NoFreeDevice,
    /// No pod uses the claim that was asked about.
    ClaimUnused,
    /// Less important pods hold what a pod waits for.
    NotPreempted,
    /// The devices of a pod cannot be prepared.
    NotPrepared,
    /// The container runtime cannot give a container its devices.
    ContainerNotCreated,
}

impl FindingKind {
    /// All of them, in the order of the checks that find them.
    pub const ALL: [Self; 36] = [
        Self::OtherKubeletRoot,
        Self::DriverBelowOtherRoot,
        Self::NoRegistrationSocket,
        Self::DeadRegistrationSocket,
        Self::UndialableSocket,
        Self::NoAnswer,
        Self::ServiceUnreachable,
        Self::UnacceptablePlugin,
        Self::SameEndpoint,
        Self::NotRegistered,
        Self::CdiOff,
        Self::CdiFolderNotRead,
        Self::ApiNotServed,
        Self::NotPermitted,
        Self::NothingPublished,
        Self::SliceCountsDiffer,
        Self::PoolIncomplete,
        Self::OldGeneration,
        Self::DeviceTwice,
        Self::ClaimMissing,
        Self::TemplateMissing,
        Self::ClassMissing,
        Self::ClaimNotMade,
        Self::FieldsDropped,
        Self::ClaimProtected,
        Self::ClaimHeldBack,
        Self::ClaimFull,
        Self::ClaimUsedElsewhere,
        Self::ClaimInvalid,
        Self::NoDevices,
        Self::NoCombination,
        Self::NoFreeDevice,
        Self::ClaimUnused,
        Self::NotPreempted,
        Self::NotPrepared,
        Self::ContainerNotCreated,
    ];
}

#[cfg(test)]
mod tests {
    use dra_allocator::ObstacleKind;

    use super::*;

    fn name(kind: impl Serialize) -> String {
        serde_json::to_string(&kind).unwrap().replace('"', "`")
    }

    #[test]
    fn all_kinds_are_listed() {
        let error = serde_json::from_str::<FindingKind>("\"none\"").unwrap_err().to_string();
        for kind in FindingKind::ALL {
            assert!(error.contains(&name(kind)), "{error} does not tell of {kind:?}");
        }
        // The error lists what there is: itself in quotes, and each kind.
        assert_eq!(error.matches('`').count() / 2, FindingKind::ALL.len() + 1, "{error}");
    }

    #[test]
    fn the_readme_explains_each_kind_and_each_reason_once() {
        let rows = |heading: &str| -> Vec<String> {
            let (_, rest) = include_str!("../README.md").split_once(heading).expect("a heading");
            let table = rest.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
            let rows = table.take_while(|line| line.starts_with('|'));
            rows.filter_map(|row| row.split('|').nth(1).map(|cell| cell.trim().to_owned())).collect()
        };
        assert_eq!(rows("\n## Kinds of findings\n"), FindingKind::ALL.map(name));
        assert_eq!(rows("\n### Kinds of reasons\n"), ObstacleKind::ALL.map(name));
    }
}
