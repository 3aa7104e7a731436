//! Why a pod cannot be scheduled.

use dra_allocator::AllocationError;

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
    /// The claims cannot be allocated.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The claim is allocated elsewhere.
    #[error("claim {claim} is allocated to devices that cannot be used from this node")]
    Elsewhere {
        /// Name of the claim.
        claim: String,
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
    /// Whether somebody else wrote the object meanwhile, so that all is to be read and decided again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { status, .. } if status.code == 409 && status.reason == "Conflict")
    }

    /// Whether another try may succeed without any help: devices or objects are not there yet.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NoNode { .. } => true,
            Self::Allocation(error) => error.is_temporary(),
            _ => false,
        }
    }

    /// Whether other nodes do not help: the scheduler ends there.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Allocation(error) if error.is_final())
    }
}
