//! A stand-in for the container runtime: it applies CDI ids to a container's configuration.
//!
//! It reads CDI files as strictly as the runtimes do that are in use, and applies edits as the Go library does:
//! common edits once, then each device's, later ones winning. User namespaces are left out.

mod cdi;
mod edits;
mod folder;
mod host;
mod oci;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

pub use oci::{DeviceRule, Hook, IntelRdt, Mount, OciDevice, OciSpec};

use folder::Devices;

/// The container runtime stand-in.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_testkit::{TempNode, runtime::{OciSpec, Runtime}};
///
/// let node = TempNode::new()?;
/// std::fs::write(node.cdi().join("claim.json"), r#"{
///     "cdiVersion": "0.5.0", "kind": "k8s.gpu.example.com/claim",
///     "devices": [{"name": "1-gpu-0", "containerEdits": {"env": ["GPU_DEVICE_0=gpu-0"]}}]
/// }"#)?;
///
/// let mut container = OciSpec::default();
/// let runtime = Runtime::new([node.cdi()]);
/// runtime.apply(&mut container, &["k8s.gpu.example.com/claim=1-gpu-0"])?;
/// assert_eq!(container.env("GPU_DEVICE_0"), Some("gpu-0"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Runtime {
    folders: Vec<PathBuf>,
}

/// CDI ids could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Some ids lead to no device.
    #[error("unresolvable CDI devices: {}{}; check that the driver wrote them to the runtime's folder", list(.ids), also(.broken))]
    Unresolvable {
        /// The ids, and what is wrong with each.
        ids: BTreeMap<String, String>,
        /// Files that could not be used, and why.
        broken: BTreeMap<PathBuf, String>,
    },
    /// The edits of a device cannot be made.
    #[error("CDI device {id} of {}: {reason}; correct the file or the host", .file.display())]
    Edit {
        /// The id.
        id: String,
        /// The file with its edits.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Runtime {
    /// A runtime that reads these folders, in rising priority. They are read anew at each call.
    #[must_use]
    pub fn new<P: Into<PathBuf>>(folders: impl IntoIterator<Item = P>) -> Self {
        Self { folders: folders.into_iter().map(Into::into).collect() }
    }

    /// Ids of all usable devices.
    #[must_use]
    pub fn devices(&self) -> Vec<String> {
        Devices::scan(&self.folders).ids().cloned().collect()
    }

    /// Files that cannot be used, and why.
    #[must_use]
    pub fn broken_files(&self) -> BTreeMap<PathBuf, String> {
        Devices::scan(&self.folders).broken
    }

    /// Applies devices to a container in the order of their ids; an id that is there twice counts once.
    ///
    /// # Errors
    /// If an id cannot be resolved (all such ids are listed) or a device node of the host is not as the file says.
    /// The container is unchanged then.
    pub fn apply<S: AsRef<str>>(&self, container: &mut OciSpec, ids: &[S]) -> Result<(), RuntimeError> {
        let devices = Devices::scan(&self.folders);
        let mut unresolved = BTreeMap::new();
        let mut resolved = Vec::new();
        let mut seen = BTreeSet::new();
        for id in ids.iter().map(AsRef::as_ref).filter(|id| seen.insert(*id)) {
            match devices.resolve(id) {
                Ok(device) => resolved.push((id, device)),
                Err(reason) => {
                    unresolved.insert(id.to_owned(), reason);
                }
            }
        }
        if !unresolved.is_empty() {
            return Err(RuntimeError::Unresolvable { ids: unresolved, broken: devices.broken });
        }
        let mut changed = container.clone();
        let mut files = BTreeSet::new();
        for (id, device) in resolved {
            let common = files.insert(device.file).then_some(device.common);
            for edits in common.into_iter().chain([device.own]) {
                edits::apply(&mut changed, edits).map_err(|reason| RuntimeError::Edit {
                    id: id.to_owned(),
                    file: device.file.to_owned(),
                    reason,
                })?;
            }
        }
        *container = changed;
        Ok(())
    }
}

fn list(ids: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = ids.iter().map(|(id, reason)| format!("{id} {reason}")).collect();
    lines.join(", ")
}

fn also(files: &BTreeMap<PathBuf, String>) -> String {
    let lines: Vec<String> =
        files.iter().map(|(file, reason)| format!("; {} is unusable: {reason}", file.display())).collect();
    lines.concat()
}
