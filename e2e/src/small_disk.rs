//! A disk that is soon full: a tmpfs of 64 KiB. Needs root. Everything here blocks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// A mounted small disk; unmounted when dropped.
pub(crate) struct SmallDisk {
    mount_point: PathBuf,
}

impl SmallDisk {
    /// Mounts one on `mount_point`, which is made if it is missing.
    pub(crate) fn mount(mount_point: &Path) -> Result<Self> {
        fs::create_dir_all(mount_point).with_context(|| format!("making {}", mount_point.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(mount_point);
        let status = mount.status().context("running `mount`")?;
        ensure!(status.success(), "mounting a tmpfs on {} failed: run as root", mount_point.display());
        Ok(Self { mount_point: mount_point.to_owned() })
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) {
        // Fails when the disk is full, which is what it is for.
        let _ = fs::write(self.filler(), vec![0; 128 * 1024]);
    }

    /// Gives it back.
    pub(crate) fn free(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("removing what fills the disk")
    }

    fn filler(&self) -> PathBuf {
        self.mount_point.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A driver may still have its sockets there. What stays mounted has 64 KiB and ends with the namespace.
        let _ = Command::new("umount").arg("--lazy").arg(&self.mount_point).status();
    }
}
