//! `dra-cdi` on a disk that is really full: a small tmpfs. Needs root. Everything here blocks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dra_cdi::{ContainerEdits, Directory, Ensured, Error, FileId, Kind, Spec};

/// Fills a tmpfs of 64 KiB that it mounts on `mount_point`, and makes sure that a failed write leaves the old file and no other, that
/// the folder can still be opened and files removed, and that writing works again with space. Gives a summary.
pub(crate) fn run(mount_point: &Path) -> Result<String> {
    std::fs::create_dir_all(mount_point).with_context(|| format!("making {}", mount_point.display()))?;
    let mounted = Mounted::new(mount_point)?;
    let kind = Kind::for_driver("gpu.example.com")?;
    let directory = Directory::open(mount_point.join("cdi"), kind.clone())?;
    let (first, second): (FileId, FileId) = ("claim-1".parse()?, "claim-2".parse()?);
    directory.ensure(&first, &file(&kind, 100)?)?;

    let big = file(&kind, 200 * 1024)?;
    for id in [&first, &second] {
        let failed = directory.ensure(id, &big);
        ensure!(matches!(failed, Err(Error::Full { .. })), "200 KiB on a disk of 64 KiB gave {failed:?}");
    }
    ensure!(directory.read(&first)? == Some(file(&kind, 100)?), "the old file changed");
    let names = std::fs::read_dir(directory.path())?.count();
    ensure!(names == 1, "{names} files are left, not one");

    let filler = mount_point.join("filler");
    // Fails when the disk is full, which is what it is for.
    let _ = std::fs::write(&filler, vec![0; 128 * 1024]);
    let full = directory.ensure(&second, &file(&kind, 100)?);
    ensure!(matches!(full, Err(Error::Full { .. })), "a write to the full disk gave {full:?}");
    let restarted =
        Directory::open(mount_point.join("cdi"), kind.clone()).context("a start on a full disk")?;
    ensure!(restarted.remove(&first)?, "the file was not there to be removed");
    std::fs::remove_file(&filler)?;
    ensure!(restarted.ensure(&second, &file(&kind, 100)?)? == Ensured::Written, "nothing was written");
    drop(mounted);
    Ok("CDI: a full disk leaves the old file and no other; start and removal work on it".to_owned())
}

fn file(kind: &Kind, size: usize) -> Result<Vec<u8>> {
    let device = ("dev".parse()?, ContainerEdits::new().env("A", "x".repeat(size)));
    Ok(Spec::new(kind.clone(), ContainerEdits::new(), [device])?.encode())
}

/// A tmpfs, unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(mount_point: &'a Path) -> Result<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(mount_point)
            .status()
            .context("running `mount`")?;
        ensure!(status.success(), "mounting a tmpfs on {} failed: run as root", mount_point.display());
        Ok(Self(mount_point))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // What stays mounted is in the caller's scratch folder and of 64 KiB.
        let _ = Command::new("umount").arg(self.0).status();
    }
}
