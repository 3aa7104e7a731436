//! What a check says.

use dra_allocator::{Obstacle, ObstacleKind};
use serde::{Deserialize, Serialize};

use crate::kind::FindingKind;

/// Something that is wrong: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// What kind of failure it is.
    pub kind: FindingKind,
    /// What it is about, such as `ResourceClaim default/gpu`, a path or a driver.
    pub subject: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub advice: String,
    /// More that a person may want to know.
    pub details: Vec<String>,
    /// Devices that a claim cannot have, and why.
    pub devices: Vec<Device>,
}

/// A device that a claim cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Device {
    /// Name of the claim.
    pub claim: String,
    /// Name of the request, or `request/alternative`.
    pub request: String,
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// All that keeps it away. Empty if the request could have it, if it asked for nothing else.
    pub reasons: Vec<Reason>,
}

/// Something that keeps a device from a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reason {
    /// What kind of thing it is.
    pub kind: ObstacleKind,
    /// In words.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(
        kind: FindingKind,
        subject: impl Into<String>,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            subject: subject.into(),
            problem: problem.into(),
            advice: advice.into(),
            details: Vec::new(),
            devices: Vec::new(),
        }
    }

    pub(crate) fn details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

impl From<&Obstacle> for Reason {
    fn from(obstacle: &Obstacle) -> Self {
        Self { kind: obstacle.kind(), text: obstacle.to_string() }
    }
}

/// What a check has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It looked, and this is wrong.
    Looked(Vec<Finding>),
    /// It could not look: why.
    CouldNot(String),
    /// It was not asked to look: what to say so that it does.
    NotAsked(String),
}

impl Verdict {
    #[cfg(test)]
    pub(crate) const HEALTHY: Self = Self::Looked(Vec::new());

    /// What is wrong.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Looked(findings) => findings,
            Self::CouldNot(_) | Self::NotAsked(_) => &[],
        }
    }
}
