//! Standard attributes of PCI devices, read from sysfs.
//!
//! The attributes have names of Kubernetes' own domain, so that constraints such as `matchAttribute` work across
//! drivers: a GPU and a network card with one `pcieRoot`, for example. Values are those of the Go helper.
//!
//! Reading sysfs blocks, but never for long: nothing of it is on a disk.

mod numa;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use crate::{AttributeValue, InvalidName, QualifiedName};

/// A PCI address, such as `0000:01:00.0`. Domains of more than four digits are accepted, as VMD has them
/// (`10000:e1:00.0`).
///
/// ```
/// use dra_resourceslice::sysfs::PciAddress;
///
/// assert_eq!(PciAddress::new("0000:C1:00.0")?.as_str(), "0000:c1:00.0");
/// assert!(PciAddress::new("01:00.0").is_err());
/// # Ok::<(), dra_resourceslice::InvalidName>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PciAddress(String);

impl PciAddress {
    /// Checks an address; capital letters become small ones, as the kernel writes them.
    ///
    /// # Errors
    /// [`InvalidName`] when it is not `domain:bus:device.function`.
    pub fn new(address: &str) -> Result<Self, InvalidName> {
        if is_pci_address(address) {
            return Ok(Self(address.to_ascii_lowercase()));
        }
        let reason = "must be domain:bus:device.function in hex, such as 0000:01:00.0";
        Err(InvalidName { kind: "PCI address", value: address.to_owned(), reason })
    }

    /// The address as the kernel writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The attribute `resource.kubernetes.io/pciBusID`.
    ///
    /// # Errors
    /// None in practice; the name is checked like any other.
    pub fn bus_id_attribute(&self) -> Result<(QualifiedName, AttributeValue), InvalidName> {
        Ok((standard("pciBusID")?, AttributeValue::String(self.0.clone())))
    }
}

impl FromStr for PciAddress {
    type Err = InvalidName;

    fn from_str(address: &str) -> Result<Self, InvalidName> {
        Self::new(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The form of the attribute `numaNode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NumaForm {
    /// The device's node as a number.
    Scalar,
    /// The device's node first, then the nearest other nodes of its socket. Lists need a cluster with
    /// `DRAListTypeAttributes`.
    List,
}

/// A sysfs tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sysfs {
    root: PathBuf,
}

/// Why an attribute could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysfsError {
    /// A file could not be read.
    #[error("read {}: {source}; is the device there, and sysfs mounted?", .path.display())]
    #[non_exhaustive]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A file says something that makes no sense.
    #[error("{}: {content:?} {reason}", .path.display())]
    #[non_exhaustive]
    Content {
        /// The file.
        path: PathBuf,
        /// What it says.
        content: String,
        /// What it should be.
        reason: &'static str,
    },
    /// A name of ours was refused.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl Sysfs {
    /// The tree that is mounted here, for tests and for containers that have the host's elsewhere.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// All standard attributes of a device that can be read, as [`Device::attribute`](crate::Device::attribute) takes
    /// them. What cannot is left out, with a line in the log at level `debug`: most devices work without it.
    #[must_use]
    pub fn attributes(&self, device: &PciAddress, form: NumaForm) -> Vec<(QualifiedName, AttributeValue)> {
        let told = |error| tracing::debug!(%device, %error, "not in sysfs");
        let root = self.pcie_root(device).map_err(told).ok();
        let numa = self.numa_node(device, form).map_err(told).ok().flatten();
        device.bus_id_attribute().ok().into_iter().chain(root).chain(numa).collect()
    }

    /// The attribute `resource.kubernetes.io/pcieRoot`: the root complex that the device hangs on, such as
    /// `pci0000:00`.
    ///
    /// # Errors
    /// [`SysfsError`] when the device is not there or its link does not lead into `/sys/devices/pci…`.
    pub fn pcie_root(&self, device: &PciAddress) -> Result<(QualifiedName, AttributeValue), SysfsError> {
        let link = self.root.join("bus/pci/devices").join(device.as_str());
        let target =
            std::fs::read_link(&link).map_err(|source| SysfsError::Read { path: link.clone(), source })?;
        let Some(root) = self.root_complex(&target, device) else {
            let content = target.display().to_string();
            return Err(SysfsError::Content {
                path: link,
                content,
                reason: "must lead to /sys/devices/pci…/<device>",
            });
        };
        Ok((standard("pcieRoot")?, AttributeValue::String(root)))
    }

    /// The attribute `resource.kubernetes.io/numaNode`, or `None` if the device belongs to no node.
    ///
    /// # Errors
    /// [`SysfsError`] when the device is not there or the kernel says something odd.
    pub fn numa_node(
        &self,
        device: &PciAddress,
        form: NumaForm,
    ) -> Result<Option<(QualifiedName, AttributeValue)>, SysfsError> {
        let path = self.root.join("bus/pci/devices").join(device.as_str()).join("numa_node");
        let text = read(&path)?;
        let node: i64 = text.trim().parse().map_err(|_| SysfsError::Content {
            path: path.clone(),
            content: text.trim().to_owned(),
            reason: "must be the number of a NUMA node, or -1",
        })?;
        let Ok(node) = u32::try_from(node) else { return Ok(None) };
        if node >= numa::MAX_NODES {
            let reason = "must be below 1024";
            return Err(SysfsError::Content { path, content: node.to_string(), reason });
        }
        let value = match form {
            NumaForm::Scalar => AttributeValue::Int(node.into()),
            NumaForm::List => AttributeValue::Ints(numa::near(&self.root, node)),
        };
        Ok(Some((standard("numaNode")?, value)))
    }

    /// The first folder below `devices/` on the way to the device.
    fn root_complex(&self, target: &Path, device: &PciAddress) -> Option<String> {
        let mut parts = Vec::new();
        // A relative link starts in bus/pci/devices; an absolute one may name the host's /sys or this root.
        let inside =
            target.strip_prefix(&self.root).or_else(|_| target.strip_prefix("/sys")).unwrap_or(target);
        if inside.is_absolute() {
            return None;
        }
        let start: &[&str] = if target.is_absolute() { &[] } else { &["bus", "pci", "devices"] };
        parts.extend(start.iter().map(|part| (*part).to_owned()));
        for component in inside.components() {
            match component {
                Component::ParentDir => {
                    parts.pop()?;
                }
                Component::Normal(part) => parts.push(part.to_str()?.to_owned()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let [devices, root, .., last] = parts.as_slice() else { return None };
        (devices == "devices" && root.starts_with("pci") && last == device.as_str()).then(|| root.clone())
    }
}

fn read(path: &Path) -> Result<String, SysfsError> {
    std::fs::read_to_string(path).map_err(|source| SysfsError::Read { path: path.to_owned(), source })
}

fn standard(id: &str) -> Result<QualifiedName, InvalidName> {
    QualifiedName::new(format!("resource.kubernetes.io/{id}"))
}

fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let [domain, bus, device, function] = parts.as_slice() else { return false };
    let separators: String = text.chars().filter(|c| matches!(c, ':' | '.')).collect();
    let hex = |part: &str| part.bytes().all(|b| b.is_ascii_hexdigit());
    separators == "::."
        && (4..=8).contains(&domain.len())
        && hex(domain)
        && bus.len() == 2
        && hex(bus)
        && device.len() == 2
        && hex(device)
        && matches!(device.as_bytes(), [b'0' | b'1', _])
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}
