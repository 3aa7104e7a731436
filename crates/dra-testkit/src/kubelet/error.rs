//! What the kubelet stand-in reports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::claims::ClaimRef;
use super::health::DeviceHealth;

/// Why the kubelet stand-in could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    /// The driver did not register in time.
    #[error(
        "driver {driver:?} did not register within {} ms; {}; start the driver, or correct what its socket was refused for",
        .waited.as_millis(), describe(.refused)
    )]
    NotRegisteredInTime {
        /// Name of the driver.
        driver: String,
        /// How long was waited.
        waited: Duration,
        /// The sockets that could not be registered, with the latest reason.
        refused: BTreeMap<PathBuf, String>,
    },
    /// What a driver said of its devices was not what was waited for.
    #[error("the devices of driver {driver:?} were not as wanted within {} ms; known is {known:?}", .waited.as_millis())]
    NotHealthyInTime {
        /// Name of the driver.
        driver: String,
        /// How long was waited.
        waited: Duration,
        /// What was known, by pool and name.
        known: BTreeMap<(String, String), DeviceHealth>,
    },
    /// No plugin of the driver is registered.
    #[error("{method}: DRA driver {driver} is not registered; {}; wait for its registration first", describe(.refused))]
    NotRegistered {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The sockets that could not be registered, with the latest reason.
        refused: BTreeMap<PathBuf, String>,
    },
    /// The driver's socket cannot be reached.
    #[error("{method} of driver {driver}: no connection to {}: {reason}; is the driver still running?", .endpoint.display())]
    Unavailable {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The driver's socket.
        endpoint: PathBuf,
        /// Why there is no connection.
        reason: String,
    },
    /// The driver failed the whole call.
    #[error(
        "{method} of driver {driver} failed as a whole: {status}; a driver should report errors by claim"
    )]
    Call {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// What the driver answered.
        status: Box<tonic::Status>,
    },
    /// The driver did not answer before the kubelet's deadline.
    #[error("{method} of driver {driver}: no answer within {} s; a driver must answer before the deadline", .deadline.as_secs_f64())]
    Deadline {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The deadline.
        deadline: Duration,
    },
    /// The driver reported an error for one claim.
    #[error("{method} of driver {driver} failed for ResourceClaim {claim}: {message}")]
    Claim {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The claim.
        claim: Box<ClaimRef>,
        /// The driver's text.
        message: String,
    },
    /// The driver answered for a claim that it was not asked for.
    #[error(
        "{method} of driver {driver} returned a result for unknown claim UID {uid:?}; answer only what was asked"
    )]
    UnknownClaim {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The UID in the answer.
        uid: String,
    },
    /// The driver left claims out of its answer.
    #[error("{method} of driver {driver} skipped {} ResourceClaims: {}; answer every claim", .claims.len(), list(.claims))]
    Skipped {
        /// The call.
        method: &'static str,
        /// Name of the driver.
        driver: String,
        /// The claims without an answer.
        claims: Vec<ClaimRef>,
    },
    /// A pod's claim is not in a state in which the kubelet prepares it.
    #[error("pod {pod}: {reason}; allocate and reserve its claims first")]
    Pod {
        /// Namespace and name of the pod.
        pod: String,
        /// What is missing.
        reason: String,
    },
}

fn describe(refused: &BTreeMap<PathBuf, String>) -> String {
    if refused.is_empty() {
        return "no socket was refused".into();
    }
    let lines: Vec<String> =
        refused.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect();
    lines.join("; ")
}

fn list(claims: &[ClaimRef]) -> String {
    let names: Vec<String> = claims.iter().map(ToString::to_string).collect();
    names.join(", ")
}
