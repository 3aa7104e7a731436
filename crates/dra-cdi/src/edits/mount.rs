//! A mount in a container.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tidy;

/// A mount, by default a recursive bind mount of a file or folder of the host.
///
/// ```
/// use dra_cdi::Mount;
/// let libs = Mount::new("/opt/gpu/lib", "/usr/lib/gpu").read_only();
/// assert_eq!(libs.options, ["rbind", "ro"]);
/// let scratch = Mount::new("tmpfs", "/scratch").mount_type("tmpfs").options(["size=1m"]);
/// assert_eq!(scratch.options, ["size=1m"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Mount {
    /// The file or folder of the host; with a [`mount_type`](Self::mount_type) other than `bind`, whatever that takes.
    pub host_path: PathBuf,
    /// Where it appears in the container.
    pub container_path: PathBuf,
    /// Mount options, as `mount -o` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The file system type, if this is not a bind mount.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub mount_type: Option<String>,
}

impl Mount {
    /// A recursive bind mount (option `rbind`), which runtimes need to be told: CDI knows no default.
    #[must_use]
    pub fn new(host_path: impl Into<PathBuf>, container_path: impl Into<PathBuf>) -> Self {
        Self {
            host_path: tidy(&host_path.into()),
            container_path: tidy(&container_path.into()),
            options: vec!["rbind".to_owned()],
            mount_type: None,
        }
    }

    /// Takes these options in place of all so far. A mount without a type needs `bind` or `rbind` among them.
    #[must_use]
    pub fn options(mut self, options: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options = options.into_iter().map(Into::into).collect();
        self
    }

    /// Adds the option `ro`.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        if !self.options.iter().any(|option| option == "ro") {
            self.options.push("ro".to_owned());
        }
        self
    }

    /// Sets the file system type, such as `tmpfs`, and with it removes the default option `rbind`.
    #[must_use]
    pub fn mount_type(mut self, mount_type: impl Into<String>) -> Self {
        let mount_type = mount_type.into();
        if mount_type != "bind" {
            self.options.retain(|option| option != "rbind");
        }
        self.mount_type = Some(mount_type);
        self
    }
}
