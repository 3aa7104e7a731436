//! Why claims cannot be allocated.

use dra_cel::SelectorError;

/// Why claims cannot be allocated on a node.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AllocationError {
    /// An object that the claim needs does not exist.
    #[error("{wanted_by} needs {kind} {name:?}, which does not exist; create it")]
    Missing {
        /// What needs it.
        wanted_by: String,
        /// Kind of the missing object.
        kind: &'static str,
        /// Its name, with its namespace if it has one.
        name: String,
    },
    /// There are not enough free devices.
    #[error("claim {claim}, request {request:?}: {found} of {wanted} devices are free")]
    NotEnough {
        /// Name of the claim.
        claim: String,
        /// Name of the request.
        request: String,
        /// How many it asks for.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// There are free devices for each request, but no choice of them fits together: for constraints, counters or
    /// capacity that they share.
    #[error(
        "cannot allocate all claims: there are devices for each request, but not for all of them together"
    )]
    NoCombination,
    /// All devices are asked for, and it is not known which these are.
    #[error(
        "claim {claim}, request {request:?}: asks for all devices, but resource pool {pool} is currently {why}"
    )]
    AllOfPool {
        /// Name of the claim.
        claim: String,
        /// Name of the request.
        request: String,
        /// Driver and name of the pool.
        pool: String,
        /// What is the matter with it.
        why: String,
    },
    /// No devices were found, and there is a pool whose slices contradict each other.
    #[error("invalid resource pools were encountered: {pool}: {reason}; correct its ResourceSlices")]
    InvalidPool {
        /// Driver and name of the pool.
        pool: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An allocation cannot have that many devices.
    #[error("claim {claim}, request {request:?}: the claim asks for more than {limit} devices; split it")]
    TooMany {
        /// Name of the claim.
        claim: String,
        /// Name of the request that passes the limit.
        request: String,
        /// How many are allowed.
        limit: usize,
    },
    /// All devices are asked for, and one of them does not go with the others.
    #[error(
        "claim {claim}, request {request:?}: cannot add device {device}: a claim constraint would not be satisfied"
    )]
    Constraint {
        /// Name of the claim.
        claim: String,
        /// Name of the request.
        request: String,
        /// Name of the device.
        device: String,
    },
    /// An amount of a capacity cannot be computed with.
    #[error("claim {claim}, request {request:?}: checking capacity for device {device}: {reason}")]
    Capacity {
        /// Name of the claim.
        claim: String,
        /// Name of the request.
        request: String,
        /// Name of the device.
        device: String,
        /// What is wrong.
        reason: String,
    },
    /// A selector is not valid, or fails for a device. The real scheduler gives the pod up too, whatever other devices
    /// there are.
    #[error("{place}: {error}")]
    Selector {
        /// Where the selector stands, and the device.
        place: String,
        /// What is wrong.
        error: SelectorError,
    },
    /// An object has something that no API server would have stored.
    #[error("cannot read {place}: {reason}")]
    Unreadable {
        /// The object.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What is asked is not done here.
    #[error("{place}: {what} is not supported here; ask a real cluster")]
    Unsupported {
        /// Where it is asked for.
        place: String,
        /// What is asked for.
        what: String,
    },
}

impl AllocationError {
    /// Whether another try may succeed without any help: devices or objects are not there yet.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::NotEnough { .. }
                | Self::NoCombination
                | Self::AllOfPool { .. }
                | Self::InvalidPool { .. }
        )
    }

    /// Whether the scheduler tries no other node: it gives this attempt to schedule the pod up, and repeats it later. The
    /// allocators of 1.37 return such an error where they do not return `ErrFailedAllocationOnNode` or nothing.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::NotEnough { .. } | Self::NoCombination | Self::InvalidPool { .. })
    }
}
