//! Why a pod cannot be scheduled.

use crate::api::{ApiStatus, WaitError};

/// Why the control-plane stand-in could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// An object that the pod needs does not exist.
    #[error("{wanted_by} needs {kind} {name:?}, which does not exist; create it")]
    Missing {
        /// What needs it.
        wanted_by: String,
        /// Kind of the missing object.
        kind: &'static str,
        /// Its name, with its namespace if it has one.
        name: String,
    },
    /// No node has what the pod's claims ask for.
    #[error("pod {pod} fits on no node: {}; publish more devices or free some", .reasons.join("; "))]
    NoNode {
        /// Namespace and name of the pod.
        pod: String,
        /// What is missing, by node.
        reasons: Vec<String>,
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
    /// The claim is allocated elsewhere.
    #[error("claim {claim} is allocated to devices that cannot be used from this node")]
    Elsewhere {
        /// Name of the claim.
        claim: String,
    },
    /// The stand-in does not do what is asked.
    #[error("{place}: {what} is not supported by the stand-in; use a real cluster to test it")]
    Unsupported {
        /// Where it is asked for.
        place: String,
        /// What is asked for.
        what: String,
    },
    /// The API server stand-in refused a write.
    #[error("cannot write {what}: {status}")]
    Api {
        /// What was to be written.
        what: String,
        /// Why it was refused.
        status: Box<ApiStatus>,
    },
    /// The pod could not be scheduled in time.
    #[error("{wait}; the last try said: {last}")]
    NotInTime {
        /// How long was waited.
        wait: WaitError,
        /// The latest reason.
        last: Box<Self>,
    },
}

impl SchedulerError {
    /// Whether another try may succeed without any help: devices or objects are not there yet.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NoNode { .. } | Self::NotEnough { .. })
    }
}
