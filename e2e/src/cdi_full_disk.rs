//! `dra-cdi` on a disk that is really full: a small tmpfs. Needs root. Everything here blocks.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dra_cdi::{ContainerEdits, Directory, Ensured, Error, FileId, Kind, Spec};

use crate::small_disk::SmallDisk;

/// Fills a tmpfs of 64 KiB that it mounts on `mount_point`, and makes sure that a failed write leaves the old file and no other, that
/// the folder can still be opened and files removed, and that writing works again with space. Gives a summary.
pub(crate) fn run(mount_point: &Path) -> Result<String> {
    let disk = SmallDisk::mount(mount_point)?;
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

    disk.fill();
    let full = directory.ensure(&second, &file(&kind, 100)?);
    ensure!(matches!(full, Err(Error::Full { .. })), "a write to the full disk gave {full:?}");
    let restarted =
        Directory::open(mount_point.join("cdi"), kind.clone()).context("a start on a full disk")?;
    ensure!(restarted.remove(&first)?, "the file was not there to be removed");
    disk.free()?;
    ensure!(restarted.ensure(&second, &file(&kind, 100)?)? == Ensured::Written, "nothing was written");
    Ok("CDI: a full disk leaves the old file and no other; start and removal work on it".to_owned())
}

fn file(kind: &Kind, size: usize) -> Result<Vec<u8>> {
    let device = ("dev".parse()?, ContainerEdits::new().env("A", "x".repeat(size)));
    Ok(Spec::new(kind.clone(), ContainerEdits::new(), [device])?.encode())
}
