//! A folder that is read-only for a while: it is mounted on itself. Needs root. Everything here blocks.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// A folder in which nothing can be opened for writing, made or removed. Files that were open before stay so, and
/// sockets can be connected to, as after the kernel has made a broken file system read-only. Dropped, it is writable.
pub(crate) struct ReadOnly {
    folder: PathBuf,
}

impl ReadOnly {
    /// From now on.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        mount([OsStr::new("--bind"), folder.as_os_str(), folder.as_os_str()])?;
        let made = Self { folder: folder.to_owned() };
        mount(["-o".as_ref(), "remount,bind,ro".as_ref(), folder.as_os_str()])?;
        Ok(made)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // What stays mounted ends with the namespace; a scenario that needs the folder fails and says so.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

fn mount<const N: usize>(arguments: [&OsStr; N]) -> Result<()> {
    let status = Command::new("mount").args(arguments).status().context("running `mount`")?;
    ensure!(status.success(), "mount {arguments:?} failed: run as root");
    Ok(())
}
