//! What a start needs to know of the node, and to find on it.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{error::StartError, paths::Paths};

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
