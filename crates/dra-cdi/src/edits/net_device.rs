//! A network device that moves into a container.

use serde::{Deserialize, Serialize};

/// A network device of the host, and its name in the container. Needs CDI 1.1.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct NetDevice {
    /// The name on the host.
    pub host_interface_name: String,
    /// The name in the container.
    pub name: String,
}

impl NetDevice {
    /// Moves `host_interface_name` of the host into the container as `name`. Both are names that Linux allows: 1 to 15
    /// bytes without `/`, `:` and white space, and each stands only once in one set of edits.
    #[must_use]
    pub fn new(host_interface_name: impl Into<String>, name: impl Into<String>) -> Self {
        Self { host_interface_name: host_interface_name.into(), name: name.into() }
    }
}
