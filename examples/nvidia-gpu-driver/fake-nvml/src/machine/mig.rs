//! Instances that a GPU has from the beginning.

use serde::{Deserialize, Serialize};

/// A GPU instance, with one compute instance that is as large, or without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct MigInstance {
    /// The name of its profile, as `3g.20gb`.
    pub profile: String,
    /// Its first memory slice.
    pub start: u32,
    /// Whether it has a compute instance. Without one it is no MIG device.
    #[serde(default = "yes")]
    pub compute: bool,
}

const fn yes() -> bool {
    true
}

impl MigInstance {
    /// One with a compute instance.
    #[must_use]
    pub fn new(profile: &str, start: u32) -> Self {
        Self { profile: profile.to_owned(), start, compute: true }
    }
}
