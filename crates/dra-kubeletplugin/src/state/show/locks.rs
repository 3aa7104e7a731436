//! Locks that are held, and what for.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::snapshot::{LockState, LockedBy, RecordState};
use crate::{
    claims::{CLAIMS_FROM, DEVICES_FROM, byte_of_claim, byte_of_device},
    lock::{Locked, holders, locked_parts},
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
    let mut held = Vec::new();
    for file in FILES {
        let path = data.join(file);
        let mut parts = locked_parts(&path).map_err(|error| (path.clone(), error))?;
        if parts.is_empty() {
            continue;
        }
        parts.sort_by_key(|part| part.first);
        let holders = holders(Path::new("/proc"), &path);
        for part in parts {
            let of_part = holders.iter().filter(|holder| holder.locked.overlaps(&part));
            let mut pids: Vec<u32> = of_part.map(|holder| holder.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            let Locked { first, last, exclusive } = part;
            let by = held_for(file, part, records);
            held.push(LockState { file: file.to_owned(), first, last, exclusive, by, pids });
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
