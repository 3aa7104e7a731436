//! A device node in a container.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::tidy;
use crate::name::InvalidName;

/// A device node that the runtime makes in the container, with access to it in the container's device cgroup.
///
/// Only the path is needed: type, numbers and mode are then taken from the node on the host when the container starts.
///
/// ```
/// use dra_cdi::{DeviceNode, Permissions};
/// let node = DeviceNode::new("/dev/gpu").host_path("/dev/gpu7").permissions(Permissions::READ_WRITE).gid(44);
/// # assert_eq!(node.gid, Some(44));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct DeviceNode {
    /// The path in the container.
    pub path: PathBuf,
    /// The path on the host, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<PathBuf>,
    /// The type of the node.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub device_type: Option<DeviceType>,
    /// The major number, always together with the minor one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// The minor number, always together with the major one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// The permission bits of the node in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// What the container's device cgroup allows; everything if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// The owner of the node in the container. Absent is not 0: the node is then owned by the container's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group of the node in the container. Absent is not 0: the node then gets the group of the container's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

impl DeviceNode {
    /// The node at `path`, the same on the host and in the container.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: tidy(&path.into()),
            host_path: None,
            device_type: None,
            major: None,
            minor: None,
            file_mode: None,
            permissions: None,
            uid: None,
            gid: None,
        }
    }

    /// Takes the node from another path of the host. A runtime does not follow a symbolic link there: see
    /// [`resolve_host_paths`](crate::resolve_host_paths).
    #[must_use]
    pub fn host_path(mut self, path: impl Into<PathBuf>) -> Self {
        // Naming the same path twice would only raise the version that the file needs.
        self.host_path = Some(tidy(&path.into())).filter(|host| *host != self.path);
        self
    }

    /// Sets the type of the node.
    #[must_use]
    pub fn device_type(mut self, device_type: DeviceType) -> Self {
        self.device_type = Some(device_type);
        self
    }

    /// Sets the device numbers. With the type they make the node independent of what is at its path on the host. Major 0
    /// means "not given" to a runtime, so [`Spec::new`](crate::Spec::new) refuses it.
    #[must_use]
    pub fn major_minor(mut self, major: u32, minor: u32) -> Self {
        self.major = Some(major);
        self.minor = Some(minor);
        self
    }

    /// Sets the permission bits of the node in the container, at most `0o777`.
    #[must_use]
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = Some(mode);
        self
    }

    /// Narrows what the container's device cgroup allows.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = Some(permissions);
        self
    }

    /// Sets the owner of the node in the container.
    #[must_use]
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Sets the group of the node in the container.
    #[must_use]
    pub fn gid(mut self, gid: u32) -> Self {
        self.gid = Some(gid);
        self
    }
}

/// The type of a device node.
///
/// CDI's `u` is left out: runtimes let a container use no such node, and Linux makes no difference between it and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeviceType {
    /// A block device.
    #[serde(rename = "b")]
    Block,
    /// A character device.
    #[serde(rename = "c")]
    Char,
    /// A named pipe. It needs no numbers, and a container may always use it.
    #[serde(rename = "p")]
    Fifo,
}

/// What a container may do with a device node, as a non-empty set of read, write and mknod.
///
/// Read from and written as letters of `rwm`. CDI's `none` is left out: containerd up to 2.3 refuses a file with it.
///
/// ```
/// use dra_cdi::Permissions;
/// assert_eq!("wr".parse::<Permissions>()?, Permissions::READ_WRITE);
/// assert!("rx".parse::<Permissions>().is_err());
/// # Ok::<(), dra_cdi::InvalidName>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Permissions {
    read: bool,
    write: bool,
    mknod: bool,
}

impl Permissions {
    /// Reading only.
    pub const READ: Self = Self { read: true, write: false, mknod: false };
    /// Reading and writing.
    pub const READ_WRITE: Self = Self { read: true, write: true, mknod: false };
    /// Everything, which is also what a runtime takes if nothing is said.
    pub const READ_WRITE_MKNOD: Self = Self { read: true, write: true, mknod: true };
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [(self.read, "r"), (self.write, "w"), (self.mknod, "m")];
        letters.iter().filter(|(set, _)| *set).try_for_each(|(_, letter)| f.write_str(letter))
    }
}

impl FromStr for Permissions {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || !text.chars().all(|c| "rwm".contains(c)) {
            return Err(InvalidName::new(
                "device permissions",
                text,
                "one or more letters of rwm are allowed",
            ));
        }
        Ok(Self { read: text.contains('r'), write: text.contains('w'), mknod: text.contains('m') })
    }
}

impl TryFrom<String> for Permissions {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Permissions> for String {
    fn from(permissions: Permissions) -> Self {
        permissions.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_a_non_empty_set_of_r_w_and_m() {
        for (text, canonical) in [("r", "r"), ("mwr", "rwm"), ("rrww", "rw"), ("m", "m"), ("wm", "wm")] {
            assert_eq!(text.parse::<Permissions>().unwrap().to_string(), canonical);
        }
        for text in ["", "none", "x", "rw ", "RW"] {
            assert_eq!(text.parse::<Permissions>().unwrap_err().value, text);
        }
    }

    #[test]
    fn a_host_path_equal_to_the_path_is_left_out() {
        assert_eq!(DeviceNode::new("/dev/a").host_path("/dev//a/"), DeviceNode::new("/dev/a"));
        assert_eq!(DeviceNode::new("/dev/a").host_path("/dev/b").host_path.unwrap().to_str(), Some("/dev/b"));
    }
}
