//! What keeps a device from a request.

use std::fmt;

use dra_cel::Unmet;

/// What keeps a device from a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// A selector does not choose it.
    Selector {
        /// Where the selector stands, such as `DeviceClass "gpu", selector 0`.
        place: String,
        /// The part of it that is not satisfied.
        unmet: Unmet,
    },
    /// It has a taint that the request does not tolerate.
    Taint {
        /// As `key=value:effect`.
        taint: String,
    },
    /// Other claims hold it.
    Held {
        /// Namespace and name of each.
        by: Vec<String>,
    },
    /// The counters of its pool do not suffice.
    Counters {
        /// What is missing.
        shortage: String,
        /// Claims that hold devices of the pool.
        by: Vec<String>,
    },
    /// It has not that much capacity, or not in such amounts.
    Capacity {
        /// What is missing.
        lack: String,
        /// Claims that have a share of the device.
        by: Vec<String>,
    },
    /// It lacks an attribute that a constraint of the claim compares.
    NoAttribute {
        /// Full name of the attribute.
        attribute: String,
    },
    /// It is for other nodes.
    OtherNode,
    /// It has something that no API server would have stored.
    Unreadable {
        /// What.
        reason: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector { place, unmet } => write!(f, "{place}: {unmet}"),
            Self::Taint { taint } => write!(f, "taint {taint} is not tolerated"),
            Self::Held { by } => write!(f, "held by {}", claims(by)),
            Self::Counters { shortage, by } | Self::Capacity { lack: shortage, by } if by.is_empty() => {
                f.write_str(shortage)
            }
            Self::Counters { shortage, by } => {
                write!(f, "{shortage}; devices of the pool are held by {}", claims(by))
            }
            Self::Capacity { lack, by } => write!(f, "{lack}; shares are held by {}", claims(by)),
            Self::NoAttribute { attribute } => {
                write!(f, "has no attribute {attribute}, which a constraint of the claim compares")
            }
            Self::OtherNode => f.write_str("is for other nodes"),
            Self::Unreadable { reason } => write!(f, "cannot be read: {reason}"),
        }
    }
}

fn claims(names: &[String]) -> String {
    let kind = if names.len() == 1 { "claim" } else { "claims" };
    format!("{kind} {}", names.join(", "))
}
