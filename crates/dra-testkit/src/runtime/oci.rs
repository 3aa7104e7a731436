//! The parts of an OCI container configuration that CDI can change.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a container gets.
///
/// ```
/// use dra_testkit::runtime::OciSpec;
/// let spec = OciSpec { env: vec!["PATH=/bin".into()], ..OciSpec::default() };
/// assert_eq!(spec.env("PATH"), Some("/bin"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct OciSpec {
    /// Environment, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// User of the process; device nodes without a user of their own get it.
    pub uid: u32,
    /// Group of the process; device nodes without a group of their own get it.
    pub gid: u32,
    /// Further groups of the process.
    pub additional_gids: Vec<u32>,
    /// Device nodes.
    pub devices: Vec<OciDevice>,
    /// Which devices the device cgroup allows.
    pub device_rules: Vec<DeviceRule>,
    /// Mounts, parents before children.
    pub mounts: Vec<Mount>,
    /// Hooks by the name of their stage.
    pub hooks: BTreeMap<String, Vec<Hook>>,
    /// Resource director settings.
    pub intel_rdt: Option<IntelRdt>,
    /// Network interfaces that move in: name on the host to name in the container.
    pub net_devices: BTreeMap<String, String>,
}

/// A device node of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct OciDevice {
    /// Path in the container.
    pub path: String,
    /// `b`, `c`, `u` or `p`.
    pub r#type: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Mode, with the type bits of the host's node if it comes from there.
    pub file_mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
}

/// An entry of the device cgroup that allows access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct DeviceRule {
    /// `b` or `c`.
    pub r#type: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Some of `r`, `w`, `m`.
    pub access: String,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct Mount {
    /// Path on the host.
    pub source: String,
    /// Path in the container.
    pub destination: String,
    /// File system, empty for a bind mount.
    pub r#type: String,
    /// Options, for example `ro`.
    pub options: Vec<String>,
}

/// A program that the runtime runs on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct Hook {
    /// Path of the program.
    pub path: String,
    /// Arguments, the first being the program's name.
    pub args: Vec<String>,
    /// Environment, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Time limit in seconds.
    pub timeout: Option<u32>,
}

/// Resource director settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::exhaustive_structs, reason = "tests write it down in full")]
pub struct IntelRdt {
    /// Class of service.
    pub clos_id: String,
    /// Schema of the L3 cache.
    pub l3_cache_schema: String,
    /// Schema of the memory bandwidth.
    pub mem_bw_schema: String,
    /// Further schemata.
    pub schemata: Vec<String>,
    /// Whether a monitoring group is made.
    pub enable_monitoring: bool,
}

impl OciSpec {
    /// The value of an environment variable.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<&str> {
        self.env.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }
}
