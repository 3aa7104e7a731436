//! Container edits: what a device changes in the containers that use it.
//!
//! Collecting edits never fails; [`Spec::new`](crate::Spec::new) checks them and names the field that is wrong.
//! The types' JSON form is that of the CDI specification.

mod device_node;
mod env;
mod hook;
mod intel_rdt;
mod mount;
mod net_device;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::device_node::{DeviceNode, DeviceType, Permissions};
pub use self::env::EnvVar;
pub use self::hook::{Hook, HookName};
pub use self::intel_rdt::IntelRdt;
pub use self::mount::Mount;
pub use self::net_device::NetDevice;

/// What is done to a container that gets a device.
///
/// The fields can be read; they are filled by the methods of the same names.
///
/// ```
/// use dra_cdi::{ContainerEdits, DeviceNode, Mount};
///
/// let edits = ContainerEdits::new()
///     .env("GPU_DEVICE_0", "gpu-0")
///     .device_node(DeviceNode::new("/dev/null"))
///     .mount(Mount::new("/usr/lib/gpu", "/usr/lib/gpu").read_only());
/// assert_eq!(edits.env[0].name, "GPU_DEVICE_0");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ContainerEdits {
    /// Environment variables; of two with one name the later wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Device nodes; of two with one path the later wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network devices that move into the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// Programs that the runtime starts at points of the container's life.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Mounts; of two with one container path the later wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Cache and memory bandwidth allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Group IDs added to those of the container's process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

impl ContainerEdits {
    /// No edits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an environment variable. The value may be any text without NUL, line breaks included.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push(EnvVar { name: name.into(), value: value.into() });
        self
    }

    /// Adds a device node.
    #[must_use]
    pub fn device_node(mut self, node: DeviceNode) -> Self {
        self.device_nodes.push(node);
        self
    }

    /// Adds a mount.
    #[must_use]
    pub fn mount(mut self, mount: Mount) -> Self {
        self.mounts.push(mount);
        self
    }

    /// Adds a hook.
    #[must_use]
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Adds a group to those of the container's process. A runtime ignores group 0, so [`Spec::new`](crate::Spec::new)
    /// refuses it.
    #[must_use]
    pub fn additional_gid(mut self, gid: u32) -> Self {
        self.additional_gids.push(gid);
        self
    }

    /// Moves a network device into the container. Needs CDI 1.1.0, which containerd 2.3 has and 2.2.0 has not.
    #[must_use]
    pub fn net_device(mut self, device: NetDevice) -> Self {
        self.net_devices.push(device);
        self
    }

    /// Sets cache and memory bandwidth allocation, in place of an earlier one.
    #[must_use]
    pub fn intel_rdt(mut self, rdt: IntelRdt) -> Self {
        self.intel_rdt = Some(rdt);
        self
    }

    /// Whether nothing is edited. A device without edits makes a whole CDI file invalid: leave it out, and its ID with it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These edits followed by `other`, which wins where both say something.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.env.extend(other.env);
        self.device_nodes.extend(other.device_nodes);
        self.net_devices.extend(other.net_devices);
        self.hooks.extend(other.hooks);
        self.mounts.extend(other.mounts);
        self.intel_rdt = other.intel_rdt.or(self.intel_rdt);
        self.additional_gids.extend(other.additional_gids);
        self
    }
}

/// `path` without repeated slashes, `.` components and a slash at its end. `..` stays, for the check to refuse.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_empty_until_something_is_added() {
        assert!(ContainerEdits::new().is_empty());
        let filled = [
            ContainerEdits::new().env("A", ""),
            ContainerEdits::new().device_node(DeviceNode::new("/dev/null")),
            ContainerEdits::new().mount(Mount::new("/a", "/a")),
            ContainerEdits::new().hook(Hook::new(HookName::Prestart, "/bin/true")),
            ContainerEdits::new().additional_gid(1),
            ContainerEdits::new().net_device(NetDevice::new("eth1", "eth0")),
            ContainerEdits::new().intel_rdt(IntelRdt::new()),
        ];
        for edits in filled {
            assert!(!edits.is_empty(), "{edits:?}");
        }
    }

    #[test]
    fn merging_appends_lists_and_lets_the_later_rdt_win() {
        let rdt = |id: &str| IntelRdt::new().clos_id(id);
        let one = ContainerEdits::new().env("A", "1").additional_gid(1).intel_rdt(rdt("one"));
        let two = ContainerEdits::new().env("A", "2").additional_gid(2).intel_rdt(rdt("two"));
        let both = ContainerEdits::new()
            .env("A", "1")
            .env("A", "2")
            .additional_gid(1)
            .additional_gid(2)
            .intel_rdt(rdt("two"));
        assert_eq!(one.clone().merge(two), both);
        assert_eq!(one.clone().merge(ContainerEdits::new()), one);
        assert_eq!(ContainerEdits::new().merge(one.clone()), one);
    }

    #[test]
    fn edits_can_be_sent_to_another_thread() {
        fn check<T: Send + Sync + Clone + 'static>() {}
        check::<ContainerEdits>();
    }
}
