//! Which disks the node has, and how they are.

use std::{
    io,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{Device, DeviceHealth, DeviceName};
use tokio::fs;

/// A disk: a folder with a file `medium` (`ssd`, `hdd`) that describes it, and a folder `data` to use.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) name: DeviceName,
    medium: String,
    data: PathBuf,
}

impl Disk {
    /// As it is published: what claims can be made for.
    pub(crate) fn device(&self) -> anyhow::Result<Device> {
        Ok(Device::new(self.name.clone()).try_attribute("medium", self.medium.as_str())?)
    }

    /// Where a claim has its scratch folder.
    pub(crate) fn folder(&self, claim: &str) -> PathBuf {
        self.data.join(claim)
    }

    /// How the disk is now.
    pub(crate) async fn health(&self) -> DeviceHealth {
        match fs::read_dir(&self.data).await {
            Ok(_) => DeviceHealth::healthy(),
            Err(error) => DeviceHealth::unhealthy(format!("{}: {error}", self.data.display())),
        }
    }
}

/// All disks below `root`. One that cannot be read is logged and left out: it must not hide the others.
pub(crate) async fn discover(root: &Path) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    let mut entries = fs::read_dir(root).await?;
    while let Some(entry) = entries.next_entry().await? {
        match disk(&entry.path()).await {
            Ok(disk) => disks.push(disk),
            Err(error) => {
                tracing::warn!(disk = %entry.path().display(), error = %format!("{error:#}"), "left out");
            }
        }
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(disks)
}

async fn disk(folder: &Path) -> anyhow::Result<Disk> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().parse()?;
    let medium = fs::read_to_string(folder.join("medium")).await?.trim().to_owned();
    Ok(Disk { name, medium, data: folder.join("data") })
}
