//! What goes wrong in calls.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::Error;

/// What goes wrong, by the name of the function, as `nvmlDeviceGetUUID`.
///
/// Those of a GPU touch calls on it and on its MIG devices and instances, and getting its handle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Faults {
    /// Does nothing and returns this code, as 3 for "not supported" or 999 for "unknown".
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fail: BTreeMap<String, u32>,
    /// Takes so many milliseconds longer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slow_ms: BTreeMap<String, u64>,
    /// Waits as long as the name stands here, before it does anything.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hold: BTreeSet<String>,
    /// Ends the whole process at once, as `SIGKILL` does.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub crash: BTreeMap<String, Moment>,
}

/// When the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Moment {
    /// Before the call did anything.
    Before,
    /// After the hardware changed, before the caller learns of it.
    After,
}

impl Faults {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, whose: &str) -> Result<(), Error> {
        let known = crate::functions();
        let mut named =
            self.fail.keys().chain(self.slow_ms.keys()).chain(&self.hold).chain(self.crash.keys());
        match named.find(|name| known.binary_search(&name.as_str()).is_err()) {
            Some(name) => Err(Error::Machine(format!(
                "the faults of {whose} name {name:?}, a function that the library does not have"
            ))),
            None => Ok(()),
        }
    }
}
