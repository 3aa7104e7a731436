//! What the driver does for a claim.

use std::{
    io,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{
    AllocatedClaim, ConfigError, ContainerEdits, DeviceConfig as _, DeviceName, DriverPlugin, HeldClaim,
    Mount, OpaqueConfig, PluginError, PrepareContext, Prepared,
};
use serde::{Deserialize, Serialize};
use tokio::fs;

use crate::{config::ScratchConfig, disks::Disk};

/// Gives each claim a folder of its own on the disks that it was allocated.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) disks: Vec<Disk>,
}

/// What unprepare has to know.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Folders(Vec<PathBuf>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ScratchError {
    #[error("this node has no disk {0}")]
    NoDisk(DeviceName),
    #[error("making the scratch folder {0}")]
    Make(PathBuf, #[source] io::Error),
    #[error("removing the scratch folder {0}")]
    Remove(PathBuf, #[source] io::Error),
}

impl DriverPlugin for Scratch {
    type State = Folders;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<Folders>,
    ) -> Result<Prepared<Folders>, PluginError> {
        let mut folders = Folders::default();
        let mut edits = Vec::new();
        for device in claim.devices() {
            let config = claim.config::<ScratchConfig>(device)?.unwrap_or_default();
            let folder = self.disk(device.device())?.folder(claim.uid().as_str());
            edits.push((device, mount(&folder, &config)));
            folders.0.push(folder);
        }
        // From here on something may be left behind. If the process dies, the roll-back is told where.
        cx.save(&folders).await?;
        for folder in &folders.0 {
            fs::create_dir_all(folder).await.map_err(|error| ScratchError::Make(folder.clone(), error))?;
        }
        let prepared = Prepared::new(folders);
        Ok(edits.into_iter().fold(prepared, |prepared, (device, edits)| prepared.device(device, edits)))
    }

    async fn unprepare(&self, claim: &HeldClaim<Folders>) -> Result<(), PluginError> {
        let folders = match &claim.state {
            Some(folders) => folders.0.clone(),
            // Nothing was saved yet, or the record cannot be read.
            None => self.disks.iter().map(|disk| disk.folder(claim.claim.uid.as_str())).collect(),
        };
        for folder in folders {
            match fs::remove_dir_all(&folder).await {
                Ok(()) => {}
                // It is asked for again after a failure, or was never made.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(ScratchError::Remove(folder, error).into()),
            }
        }
        Ok(())
    }

    fn validate(&self, config: &OpaqueConfig) -> Result<(), ConfigError> {
        ScratchConfig::decode(config.parameters())?.check()
    }
}

impl Scratch {
    fn disk(&self, name: &DeviceName) -> Result<&Disk, ScratchError> {
        let found = self.disks.iter().find(|disk| disk.name == *name);
        found.ok_or_else(|| ScratchError::NoDisk(name.clone()))
    }
}

fn mount(folder: &Path, config: &ScratchConfig) -> ContainerEdits {
    let mount = Mount::new(folder, &config.mount_path);
    let mount = if config.read_only { mount.read_only() } else { mount };
    ContainerEdits::new().env("SCRATCH", config.mount_path.as_str()).mount(mount)
}
