//! Locks that are held, and what for.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::snapshot::{LockState, LockedBy, RecordState};
use crate::{
    claims::{CLAIMS_FROM, DEVICES_FROM, byte_of_claim, byte_of_device},
    lock::{Holder, Locked, holders, locked_parts},
};

/// The lock files of a driver's folder.
const FILES: [&str; 4] = [INSTANCES, SERIALIZE, PUBLISH, PUBLISH_NEXT];
const INSTANCES: &str = "instances.lock";
const SERIALIZE: &str = "serialize.lock";
const PUBLISH: &str = "publish.lock";
const PUBLISH_NEXT: &str = "publish.next";

/// Those of the driver whose folder is `data`. Blocks.
pub(super) fn held_locks(
    data: &Path,
    records: &[RecordState],
) -> Result<Vec<LockState>, (PathBuf, io::Error)> {
    let files = FILES.map(|file| data.join(file));
    let mut parts = Vec::new();
    for path in &files {
        let mut of_file = locked_parts(path).map_err(|error| (path.clone(), error))?;
        of_file.sort_by_key(|part| part.first);
        parts.push(of_file);
    }
    let holders = holders(Path::new("/proc"), &files);
    let mut held = Vec::new();
    for ((file, path), parts) in FILES.iter().zip(&files).zip(parts) {
        for part in parts {
            let of_part = |holder: &&Holder| holder.file == *path && holder.locked.overlaps(&part);
            let pids: BTreeSet<u32> = holders.iter().filter(of_part).map(|holder| holder.pid).collect();
            let Locked { first, last, exclusive } = part;
            let (by, pids) = (held_for(file, part, records), pids.into_iter().collect());
            held.push(LockState { file: (*file).to_owned(), first, last, exclusive, by, pids });
        }
    }
    Ok(held)
}

fn held_for(file: &str, part: Locked, records: &[RecordState]) -> LockedBy {
    match (file, part.first) {
        (INSTANCES, _) => LockedBy::Instances,
        (PUBLISH, _) => LockedBy::Publisher,
        (PUBLISH_NEXT, number) => LockedBy::WaitsToPublish(number),
        // Ours are of one byte each.
        (SERIALIZE, 0) if part.last != Some(0) => LockedBy::GoDriver,
        (SERIALIZE, 0) => LockedBy::Admission,
        (SERIALIZE, CLAIMS_FROM..DEVICES_FROM) => {
            let claims =
                records.iter().map(|record| &record.uid).filter(|uid| byte_of_claim(uid) == part.first);
            LockedBy::Claim(claims.cloned().collect())
        }
        (SERIALIZE, DEVICES_FROM..) => {
            let devices = records.iter().flat_map(|record| &record.devices).map(|recorded| &recorded.device);
            LockedBy::Device(devices.filter(|device| byte_of_device(device) == part.first).cloned().collect())
        }
        _ => LockedBy::Unknown,
    }
}
