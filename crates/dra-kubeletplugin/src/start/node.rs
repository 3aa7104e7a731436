//! What a start needs to know of the node, and to find on it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{error::StartError, paths::Paths};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// New at each start, so that no socket name is ever used twice.
pub(super) fn start_id() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mixed = since.as_nanos() ^ (u128::from(std::process::id()) << 12);
    // Microseconds are what differs between two starts of one pid.
    u32::try_from((mixed >> 10) & 0x00ff_ffff).unwrap_or_default()
}

/// Makes the driver's folder. Those of the kubelet have to be there.
pub(super) fn make_folders(root: &Path, paths: &Paths) -> Result<(), StartError> {
    for folder in [root, &paths.registry] {
        if !folder.is_dir() {
            return Err(StartError::KubeletFolder { path: folder.to_owned() });
        }
    }
    let made = DirBuilder::new().recursive(true).mode(0o750).create(&paths.data);
    made.map_err(|source| StartError::DataFolder { path: paths.data.clone(), source })
}

/// Which boot this is. It becomes the name of a folder.
pub(super) fn boot_id(given: Option<&str>) -> Result<String, StartError> {
    let fail = |source| StartError::BootId { path: BOOT_ID.into(), source };
    let id = match given {
        Some(id) => id.to_owned(),
        None => fs::read_to_string(BOOT_ID).map_err(fail)?.trim().to_owned(),
    };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(fail(io::Error::other(format!("{id:?} is no boot id: letters, digits and '-' only"))));
    }
    Ok(id)
}
