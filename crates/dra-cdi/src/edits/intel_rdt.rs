//! Intel Resource Director Technology: cache and memory bandwidth allocation.

use serde::{Deserialize, Serialize};

/// Cache and memory bandwidth allocation of the container. Needs CDI 0.7.0, or 1.1.0 with
/// [`schemata`](Self::schemata), [`enable_monitoring`](Self::enable_monitoring) or the class `/`.
///
/// `enableCMT` and `enableMBM` of CDI 0.7 do not exist here: a runtime that knows CDI 1.1 refuses any file that has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct IntelRdt {
    /// The class of service: a file name, or `/` for the root class.
    #[serde(default, rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// The schema for the L3 cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// The schema for memory bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// Schemata lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemata: Vec<String>,
    /// Whether a monitoring group is made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable_monitoring: bool,
}

impl IntelRdt {
    /// Nothing set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the class of service: a file name, or `/` for the root class.
    #[must_use]
    pub fn clos_id(mut self, id: impl Into<String>) -> Self {
        self.clos_id = Some(id.into());
        self
    }

    /// Sets the schema for the L3 cache.
    #[must_use]
    pub fn l3_cache_schema(mut self, schema: impl Into<String>) -> Self {
        self.l3_cache_schema = Some(schema.into());
        self
    }

    /// Sets the schema for memory bandwidth.
    #[must_use]
    pub fn mem_bw_schema(mut self, schema: impl Into<String>) -> Self {
        self.mem_bw_schema = Some(schema.into());
        self
    }

    /// Takes these schemata lines in place of all so far.
    #[must_use]
    pub fn schemata(mut self, lines: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.schemata = lines.into_iter().map(Into::into).collect();
        self
    }

    /// Says whether a monitoring group is made.
    #[must_use]
    pub fn enable_monitoring(mut self, enable: bool) -> Self {
        self.enable_monitoring = enable;
        self
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
