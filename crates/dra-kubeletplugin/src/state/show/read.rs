//! Reads all that a driver keeps on a node, and changes nothing.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use dra_cdi::{Directory, FileOwner, FoundFile, Kind};

use super::{
    locks::held_locks,
    snapshot::{
        CdiFileState, CdiOwner, MetadataState, RecordPhase, RecordState, RecordedDevice, Snapshot, Temporary,
    },
    sockets::{instances, sockets},
};
use crate::{
    boot::boot_id,
    claim::AllocatedDevice,
    claims::{AnsweredDevice, Content, Found, MetadataFiles, Phase, Record, RecordFile, record_files},
    digest::sha256_hex,
    names::ClaimUid,
    state::{StateError, StateLocation},
};

/// Looks at everything once.
pub(super) async fn read(location: &StateLocation) -> Result<Snapshot, StateError> {
    let location = location.clone();
    let read = tokio::task::spawn_blocking(move || read_blocking(location)).await;
    read.map_err(|error| StateError::Other(error.to_string()))?
}

fn read_blocking(location: StateLocation) -> Result<Snapshot, StateError> {
    let (data, registry) = (location.data(), location.registry());
    if !data.is_dir() {
        return Err(StateError::NoState(data));
    }
    let other = |error: &dyn std::fmt::Display| StateError::Other(error.to_string());
    let failed = |operation: &'static str| {
        move |(path, source): (PathBuf, io::Error)| StateError::Io { operation, path, source }
    };
    let now = SystemTime::now();
    let boot_id = boot_id(location.boot_id.as_deref()).map_err(|error| other(&error))?;
    let kind = Kind::for_driver(location.driver.as_str()).map_err(|error| other(&error))?;
    let cdi = Directory::for_reading(&location.cdi_root, kind)?;
    // Files before records: what a record tells of is written before it.
    let mut temporary = Vec::new();
    let found_cdi = cdi.look()?;
    let metadata = metadata(&data, &mut temporary, now)?;
    let records = records(&data, &mut temporary, now)?;
    let cdi_files = cdi_files(cdi.path(), found_cdi, &records, &mut temporary, now);
    let locks = held_locks(&data, &records).map_err(failed("looking at locks"))?;
    let sockets = sockets(&location.driver, &registry, &data).map_err(failed("looking for sockets"))?;
    let (starts, last_start) = starts(&data);
    temporary.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Snapshot {
        cdi_root: cdi.path().to_owned(),
        boot_id,
        records,
        cdi_files,
        metadata,
        temporary,
        locks,
        instances: instances(&sockets, &pod_uids(&data)),
        sockets,
        starts,
        last_start,
        put_aside: put_aside(&data),
        driver: location.driver,
        data,
    })
}

/// Whole seconds; a time in the future counts as now.
pub(super) fn age(modified: SystemTime, now: SystemTime) -> u64 {
    now.duration_since(modified).unwrap_or_default().as_secs()
}

fn records(
    data: &Path,
    temporary: &mut Vec<Temporary>,
    now: SystemTime,
) -> Result<Vec<RecordState>, StateError> {
    let mut records = Vec::new();
    for RecordFile { boot_id, path, modified, content } in
        record_files(data).map_err(|error| StateError::Other(error.to_string()))?
    {
        let age = age(modified, now);
        match content {
            Content::Temporary => temporary.push(Temporary { path, age }),
            Content::Record { uid, found } => records.extend(record(uid, path, boot_id, age, found)),
        }
    }
    Ok(records)
}

fn record(uid: ClaimUid, path: PathBuf, boot_id: String, age: u64, found: Found) -> Option<RecordState> {
    let unread = RecordState {
        uid,
        claim: None,
        path,
        boot_id,
        age,
        phase: RecordPhase::Damaged,
        damage: None,
        newer_format: None,
        devices: Vec::new(),
        former_cdi: Vec::new(),
        adopted: false,
        cdi_file: None,
        foreign_cdi_file: None,
        metadata: BTreeMap::new(),
    };
    match found {
        Found::Nothing => None,
        Found::Damaged { why, .. } => Some(RecordState { damage: Some(why), ..unread }),
        Found::Stored { phase, record } => Some(what_it_says(unread, phase, &record)),
        Found::Newer { format, phase, record } => {
            let read = match record {
                Some(record) => what_it_says(unread, phase, &record),
                None => RecordState { phase: phase.into(), ..unread },
            };
            Some(RecordState { newer_format: Some(format), ..read })
        }
    }
}

fn what_it_says(unread: RecordState, phase: Phase, record: &Record) -> RecordState {
    let phase = if record.is_vacated() { RecordPhase::Vacated } else { phase.into() };
    let device = |result: &AllocatedDevice| RecordedDevice {
        device: result.device_ref().clone(),
        request: result.request().to_owned(),
        share_id: result.share_id().map(str::to_owned),
        admin_access: result.admin_access(),
        cdi_ids: record.answer.iter().filter(|told| tells_of(told, result)).flat_map(cdi_ids).collect(),
    };
    RecordState {
        claim: Some(record.claim.clone()),
        phase,
        devices: record.allocation.results.iter().map(device).collect(),
        former_cdi: record.former_cdi.clone(),
        adopted: record.adopted,
        cdi_file: record.cdi.as_ref().map(|content| sha256_hex(content.as_bytes())),
        foreign_cdi_file: record.foreign_cdi.clone(),
        metadata: record
            .metadata
            .iter()
            .map(|(request, content)| (request.clone(), sha256_hex(content.as_bytes())))
            .collect(),
        ..unread
    }
}

fn tells_of(told: &AnsweredDevice, result: &AllocatedDevice) -> bool {
    told.pool == result.pool().as_str()
        && told.device == result.device().as_str()
        && told.request == result.base_request()
        && told.share_id.as_deref() == result.share_id()
}

fn cdi_ids(told: &AnsweredDevice) -> Vec<String> {
    told.cdi_ids.clone()
}

impl From<Phase> for RecordPhase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Started => Self::Started,
            Phase::Prepared => Self::Prepared,
            Phase::Unpreparing => Self::Unpreparing,
        }
    }
}

fn cdi_files(
    folder: &Path,
    found: Vec<FoundFile>,
    records: &[RecordState],
    temporary: &mut Vec<Temporary>,
    now: SystemTime,
) -> Vec<CdiFileState> {
    let mut files = Vec::new();
    for file in found {
        let age = age(file.modified, now);
        let owner = match &file.owner {
            FileOwner::Temporary => {
                temporary.push(Temporary { path: folder.join(&file.name), age });
                continue;
            }
            FileOwner::Claim(id) => id.as_str().parse().ok().map(CdiOwner::Claim),
            _ => {
                let needs = |record: &&RecordState| record.foreign_cdi_file.as_ref() == Some(&file.name);
                let claims: Vec<_> = records.iter().filter(needs).map(|record| record.uid.clone()).collect();
                (!claims.is_empty()).then_some(CdiOwner::Foreign(claims))
            }
        };
        files.push(CdiFileState {
            owner: owner.unwrap_or(CdiOwner::Other),
            sha256: sha256_hex(&file.bytes),
            name: file.name,
            kind: file.kind,
            devices: file.devices,
            age,
        });
    }
    files
}

fn metadata(
    data: &Path,
    temporary: &mut Vec<Temporary>,
    now: SystemTime,
) -> Result<Vec<MetadataState>, StateError> {
    let mut files = Vec::new();
    for file in MetadataFiles::in_folder(data).look().map_err(|error| StateError::Other(error.to_string()))? {
        match file.request().map(str::to_owned) {
            Some(request) => {
                let sha256 = sha256_hex(&file.bytes);
                files.push(MetadataState { claim: file.claim, request, path: file.path, sha256 });
            }
            None => temporary.push(Temporary { age: age(file.modified, now), path: file.path }),
        }
    }
    Ok(files)
}

/// The count of starts, and what the last instance has said of itself.
fn starts(data: &Path) -> (u64, Option<String>) {
    let text = fs::read_to_string(data.join("instances.lock")).unwrap_or_default();
    let mut lines = text.lines();
    let starts = lines.next().and_then(|count| count.parse().ok()).unwrap_or_default();
    (starts, lines.next().map(str::to_owned))
}

/// Those that instances have left in lock files.
fn pod_uids(data: &Path) -> Vec<String> {
    let notes = ["instances.lock", "publish.lock"].map(|file| fs::read_to_string(data.join(file)));
    let uid_in = |line: &str| Some(line.split_once(", pod ")?.1.to_owned());
    notes.iter().flatten().flat_map(|note| note.lines().filter_map(uid_in)).collect()
}

fn put_aside(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("damaged")).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
