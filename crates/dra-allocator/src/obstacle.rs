//! What keeps a device from a request.

use std::fmt;

use dra_cel::Unmet;
use serde::{Deserialize, Serialize};

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
        /// Name of the DeviceTaintRule that gives it, or nothing if the driver does.
        rule: Option<String>,
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
}

/// The kind of an [`Obstacle`], for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ObstacleKind {
    /// A selector does not choose the device.
    Selector,
    /// A taint is not tolerated.
    Taint,
    /// Other claims hold the device.
    Held,
    /// Counters do not suffice.
    Counters,
    /// Capacity does not suffice.
    Capacity,
    /// An attribute is missing that a constraint compares.
    NoAttribute,
    /// The device is for other nodes.
    OtherNode,
}

impl ObstacleKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Selector,
        Self::Taint,
        Self::Held,
        Self::Counters,
        Self::Capacity,
        Self::NoAttribute,
        Self::OtherNode,
    ];
}

impl Obstacle {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ObstacleKind {
        match self {
            Self::Selector { .. } => ObstacleKind::Selector,
            Self::Taint { .. } => ObstacleKind::Taint,
            Self::Held { .. } => ObstacleKind::Held,
            Self::Counters { .. } => ObstacleKind::Counters,
            Self::Capacity { .. } => ObstacleKind::Capacity,
            Self::NoAttribute { .. } => ObstacleKind::NoAttribute,
            Self::OtherNode => ObstacleKind::OtherNode,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector { place, unmet } => write!(f, "{place}: {unmet}"),
            Self::Taint { taint, rule: None } => write!(f, "taint {taint} is not tolerated"),
            Self::Taint { taint, rule: Some(rule) } => {
                write!(f, "taint {taint} of DeviceTaintRule {rule} is not tolerated")
            }
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
        }
    }
}

fn claims(names: &[String]) -> String {
    let kind = if names.len() == 1 { "claim" } else { "claims" };
    format!("{kind} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_listed() {
        let error = serde_json::from_str::<ObstacleKind>("\"none\"").unwrap_err().to_string();
        for kind in ObstacleKind::ALL {
            let name = serde_json::to_string(&kind).unwrap();
            assert!(error.contains(&name.replace('"', "`")), "{error} does not tell of {name}");
        }
        // The error lists what there is: itself in quotes, and each kind.
        assert_eq!(error.matches('`').count() / 2, ObstacleKind::ALL.len() + 1, "{error}");
    }
}
