//! What of a driver's state does not fit together. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::snapshot::{
    CdiFileState, CdiOwner, Liveness, LockedBy, RecordPhase, RecordState, RecordedDevice, Snapshot,
    SocketKind,
};
use crate::{claim::DeviceRef, claims::NOBODY_WRITES_FOR, names::ClaimUid};

/// Something that does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Finding {
    /// What kind of thing it is.
    pub kind: FindingKind,
    /// The claims that it is about.
    pub claims: Vec<ClaimUid>,
    /// The file that it is about.
    pub path: Option<PathBuf>,
    /// What is so, in a sentence for people.
    pub what: String,
    /// What that means, or what to do about it.
    pub advice: String,
}

/// The kinds of things that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FindingKind {
    /// A record cannot be read.
    DamagedRecord,
    /// A later version of the driver has written a record.
    NewerRecord,
    /// A record is of another boot of the machine.
    RecordOfOtherBoot,
    /// A claim has two records.
    TwoRecords,
    /// A claim is half prepared or half unprepared, and nobody is at work on it.
    HalfDone,
    /// Claims hold a device that none of them may share.
    DeviceHeldTwice,
    /// A prepared claim's CDI file is not there.
    CdiFileMissing,
    /// A prepared claim's CDI file is not as it was written.
    CdiFileChanged,
    /// A CDI file is of a claim without a record.
    CdiFileWithoutRecord,
    /// A CDI device is named by two files, so runtimes find it in neither.
    CdiDeviceTwice,
    /// A prepared claim's metadata file is not there.
    MetadataMissing,
    /// A prepared claim's metadata file is not as it was written.
    MetadataChanged,
    /// A metadata file is of a claim without a record.
    MetadataWithoutRecord,
    /// An interrupted write has left a file.
    TemporaryFile,
    /// Nobody listens at a socket.
    DeadSocket,
    /// There are records, and no instance of the driver lives.
    NobodyServes,
    /// An instance lives, and one of its sockets does not.
    InstanceWithoutSocket,
    /// An instance lives, and does not hold the lock that says so.
    InstanceWithoutLock,
}

impl Finding {
    fn new(kind: FindingKind, what: String, advice: &str) -> Self {
        Self { kind, claims: Vec::new(), path: None, what, advice: advice.to_owned() }
    }

    fn of(mut self, record: &RecordState) -> Self {
        self.claims.push(record.uid.clone());
        self.at(&record.path)
    }

    fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Whether it is the same thing in another look.
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        (self.kind, &self.claims, &self.path) == (other.kind, &other.claims, &other.path)
    }
}

impl Snapshot {
    /// What does not fit together, by kind. A driver that is at work may be caught between two steps: only what is in two
    /// snapshots counts.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for record in &self.records {
            findings.extend(self.about_record(record));
            findings.extend(self.about_its_files(record));
        }
        findings.extend(self.held_twice());
        findings.extend(self.two_records());
        findings.extend(self.without_record());
        findings.extend(self.cdi_devices_twice());
        findings.extend(self.leftovers());
        findings.extend(self.about_instances());
        findings.sort_by_key(|finding| finding.kind);
        findings
    }

    fn about_record(&self, record: &RecordState) -> Option<Finding> {
        let path = record.path.display();
        if record.boot_id != self.boot_id {
            return Some(self.of_other_boot(record));
        }
        if let Some(format) = record.newer_format {
            let what = format!("the record {path} is of format {format}, which this version does not know");
            let advice =
                "it can be unprepared; to prepare it again, run the version that wrote it, or a later one";
            return Some(Finding::new(FindingKind::NewerRecord, what, advice).of(record));
        }
        match record.phase {
            RecordPhase::Damaged => Some(self.damaged(record)),
            RecordPhase::Started | RecordPhase::Unpreparing if !self.is_worked_on(&record.uid) => {
                let (half, then) = match record.phase {
                    RecordPhase::Started => ("prepared", "rolls it back"),
                    _ => ("unprepared", "finishes that"),
                };
                let what = format!("claim {} is half {half}, and nobody is at work on it", name(record));
                let advice = format!(
                    "its devices stay held until the driver {then}: when the kubelet calls again, or within ten minutes \
                     once the claim is deleted; if that fails, the driver's log says why"
                );
                Some(Finding::new(FindingKind::HalfDone, what, &advice).of(record))
            }
            _ => None,
        }
    }

    fn of_other_boot(&self, record: &RecordState) -> Finding {
        let what = format!("the record {} was written in another boot of the machine", record.path.display());
        let advice = if self.lives() {
            "the driver undoes it before it prepares anything and tries again each minute: its log says why it cannot"
        } else {
            "nothing of it runs any more; the driver undoes it when it starts"
        };
        Finding::new(FindingKind::RecordOfOtherBoot, what, advice).of(record)
    }

    fn damaged(&self, record: &RecordState) -> Finding {
        let why = record.damage.as_deref().unwrap_or("it cannot be read");
        let what = format!("the record {} is damaged: {why}", record.path.display());
        let of_claim = |file: &&CdiFileState| file.owner == CdiOwner::Claim(record.uid.clone());
        let held = match self.cdi_files.iter().find(of_claim) {
            Some(file) if !file.devices.is_empty() => format!("the claim holds {}", file.devices.join(", ")),
            _ => "no device is given away, as which of them it holds is not known".to_owned(),
        };
        let advice =
            format!("{held}; delete the claim's pods, or if nothing uses its devices run `state repair`");
        Finding::new(FindingKind::DamagedRecord, what, &advice).of(record)
    }

    fn is_worked_on(&self, uid: &ClaimUid) -> bool {
        self.locks.iter().any(|lock| match &lock.by {
            LockedBy::Claim(claims) => claims.contains(uid),
            LockedBy::GoDriver => true,
            _ => false,
        })
    }

    fn about_its_files(&self, record: &RecordState) -> Vec<Finding> {
        if record.phase != RecordPhase::Prepared || record.boot_id != self.boot_id {
            return Vec::new();
        }
        let mut findings: Vec<Finding> = self.about_its_cdi_file(record).into_iter().collect();
        let put_back = "containers that start need it; the driver puts it back when it starts, or when the kubelet asks \
                        for the claim again";
        for (request, sha256) in &record.metadata {
            let is_it = |file: &&super::MetadataState| file.claim == record.uid && file.request == *request;
            let (kind, trouble) = match self.metadata.iter().find(is_it) {
                Some(file) if file.sha256 == *sha256 => continue,
                Some(_) => (FindingKind::MetadataChanged, "is not as it was written"),
                None => (FindingKind::MetadataMissing, "is not there"),
            };
            let what = format!("the metadata of request {request} of claim {} {trouble}", name(record));
            findings.push(Finding::new(kind, what, put_back).of(record));
        }
        if let Some(foreign) = &record.foreign_cdi_file
            && record.adopted
            && !self.cdi_files.iter().any(|file| file.name == *foreign)
        {
            let path = self.cdi_root.join(foreign);
            let what = format!(
                "the CDI file {} that another program has made for claim {} is not there",
                path.display(),
                name(record)
            );
            let advice = "containers of the claim that start again need it; delete their pods";
            findings.push(Finding::new(FindingKind::CdiFileMissing, what, advice).of(record).at(&path));
        }
        findings
    }

    fn about_its_cdi_file(&self, record: &RecordState) -> Option<Finding> {
        let wanted = record.cdi_file.as_ref()?;
        let of_claim = |file: &&CdiFileState| file.owner == CdiOwner::Claim(record.uid.clone());
        let put_back = "containers that start need it; the driver puts it back when it starts, or when the kubelet asks \
                        for the claim again";
        match self.cdi_files.iter().find(of_claim) {
            Some(file) if file.sha256 == *wanted => None,
            Some(file) => {
                let path = self.cdi_root.join(&file.name);
                let what = format!(
                    "the CDI file {} of claim {} is not as the driver has written it",
                    path.display(),
                    name(record)
                );
                Some(Finding::new(FindingKind::CdiFileChanged, what, put_back).of(record).at(&path))
            }
            None => {
                let what = format!(
                    "claim {} is prepared, and its CDI file is not in {}",
                    name(record),
                    self.cdi_root.display()
                );
                Some(Finding::new(FindingKind::CdiFileMissing, what, put_back).of(record))
            }
        }
    }

    /// As a prepare admits claims, but for what only the driver knows. What another program's books say of shares is nothing.
    fn held_twice(&self) -> Vec<Finding> {
        let mut held: BTreeMap<&DeviceRef, Vec<(&RecordState, &RecordedDevice)>> = BTreeMap::new();
        for record in self.records.iter().filter(|record| !record.adopted) {
            for recorded in record.devices.iter().filter(|recorded| !recorded.admin_access) {
                held.entry(&recorded.device).or_default().push((record, recorded));
            }
        }
        let mut findings = Vec::new();
        for (device, holds) in held {
            let claims: BTreeSet<_> = holds.iter().map(|(record, _)| &record.uid).collect();
            if claims.len() < 2 || holds.iter().all(|(_, recorded)| recorded.share_id.is_some()) {
                continue;
            }
            let names: BTreeSet<_> = holds.iter().map(|(record, _)| name(record)).collect();
            let names: Vec<_> = names.into_iter().collect();
            let what = format!("device {device} is held by claims {}", names.join(" and "));
            let advice = "their containers may disturb each other: delete the pods of all but one; and please report it";
            let mut finding = Finding::new(FindingKind::DeviceHeldTwice, what, advice);
            finding.claims = claims.into_iter().cloned().collect();
            findings.push(finding);
        }
        findings
    }

    fn two_records(&self) -> Vec<Finding> {
        let mut seen = BTreeSet::new();
        let again = self.records.iter().filter(|record| !seen.insert((&record.boot_id, &record.uid)));
        again
            .map(|record| {
                let what =
                    format!("claim {} has two records, one of them {}", record.uid, record.path.display());
                let advice = "the one that ends in .json counts; an unprepare removes both";
                Finding::new(FindingKind::TwoRecords, what, advice).of(record)
            })
            .collect()
    }

    fn without_record(&self) -> Vec<Finding> {
        let known: BTreeSet<_> = self.records.iter().map(|record| &record.uid).collect();
        let advice = "the driver removes it when it starts, unless a record is damaged";
        let mut findings = Vec::new();
        for file in &self.cdi_files {
            let CdiOwner::Claim(uid) = &file.owner else { continue };
            if known.contains(uid) {
                continue;
            }
            let path = self.cdi_root.join(&file.name);
            let what = format!("no record tells of the claim of CDI file {}", path.display());
            let mut finding = Finding::new(FindingKind::CdiFileWithoutRecord, what, advice).at(&path);
            finding.claims.push(uid.clone());
            findings.push(finding);
        }
        for file in self.metadata.iter().filter(|file| !known.contains(&file.claim)) {
            let what = format!("no record tells of the claim of metadata file {}", file.path.display());
            let mut finding = Finding::new(FindingKind::MetadataWithoutRecord, what, advice).at(&file.path);
            finding.claims.push(file.claim.clone());
            findings.push(finding);
        }
        findings
    }

    /// Of those that a file of the driver names: the rest is not its business.
    fn cdi_devices_twice(&self) -> Vec<Finding> {
        let mut files: BTreeMap<(&str, &str), Vec<&CdiFileState>> = BTreeMap::new();
        for file in &self.cdi_files {
            for device in &file.devices {
                let kind = file.kind.as_deref().unwrap_or_default();
                files.entry((kind, device)).or_default().push(file);
            }
        }
        let mut findings = Vec::new();
        for ((kind, device), files) in files {
            let ours = files.iter().find_map(|file| match &file.owner {
                CdiOwner::Claim(uid) => Some((uid, *file)),
                _ => None,
            });
            let Some((uid, file)) = ours.filter(|_| files.len() > 1) else { continue };
            let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
            let what = format!(
                "CDI device {kind}={device} is in {} of {}",
                names.join(" and "),
                self.cdi_root.display()
            );
            let advice = "runtimes find it in neither, so containers with it do not start: remove it from the file that is \
                          not the driver's";
            let path = self.cdi_root.join(&file.name);
            let mut finding = Finding::new(FindingKind::CdiDeviceTwice, what, advice).at(&path);
            finding.claims.push(uid.clone());
            findings.push(finding);
        }
        findings
    }

    fn leftovers(&self) -> Vec<Finding> {
        let old = self.temporary.iter().filter(|file| file.age >= NOBODY_WRITES_FOR.as_secs());
        let old = old.map(|file| {
            let what = format!("{} was left by a write that was interrupted", file.path.display());
            let advice = "it is of no use; the driver removes it when it starts, or within ten minutes";
            Finding::new(FindingKind::TemporaryFile, what, advice).at(&file.path)
        });
        let dead = self.sockets.iter().filter(|socket| socket.liveness == Liveness::Dead);
        let dead = dead.map(|socket| {
            let what = format!("nobody listens at {}", socket.path.display());
            let advice = match socket.kind {
                SocketKind::GoDra => "a Go driver has left it; nobody looks for it",
                _ => "an instance has died; the driver removes it within a minute of its registration",
            };
            Finding::new(FindingKind::DeadSocket, what, advice).at(&socket.path)
        });
        old.chain(dead).collect()
    }

    fn about_instances(&self) -> Vec<Finding> {
        let lives =
            |kind| self.sockets.iter().any(|socket| socket.kind == kind && socket.liveness != Liveness::Dead);
        let (registration, dra) = (lives(SocketKind::Registration), lives(SocketKind::Dra));
        let lock = self.data.join("instances.lock");
        if self.lives() {
            let gone = match (registration, dra) {
                (true, true) => return Vec::new(),
                (false, true) => "no living registration socket",
                (true, false) => "no living DRA socket",
                (false, false) => "no living socket",
            };
            let what = format!("an instance holds {}, and has {gone}", lock.display());
            let advice = "the kubelet cannot call it: it has just begun, or is ending, or its sockets were removed; in that \
                          case restart it";
            return vec![Finding::new(FindingKind::InstanceWithoutSocket, what, advice)];
        }
        if dra {
            let what = format!("an instance has a living DRA socket, and does not hold {}", lock.display());
            let advice =
                "somebody has removed the lock file, so instances do not see each other: restart the driver";
            return vec![Finding::new(FindingKind::InstanceWithoutLock, what, advice)];
        }
        if self.records.is_empty() {
            return Vec::new();
        }
        let what = format!("{} records, and no instance of the driver lives", self.records.len());
        let advice = if lives(SocketKind::GoRegistration) {
            "a Go driver of this name serves the node and knows nothing of them: end it, and start this driver or run \
             `state release`"
        } else {
            "pods with claims cannot end: start it, or run `state release` if it is to leave the node"
        };
        vec![Finding::new(FindingKind::NobodyServes, what, advice)]
    }

    fn lives(&self) -> bool {
        self.locks.iter().any(|lock| lock.by == LockedBy::Instances)
    }
}

/// The claim's name, as far as it is known.
fn name(record: &RecordState) -> String {
    match &record.claim {
        Some(claim) if !claim.name.is_empty() => claim.to_string(),
        _ => record.uid.to_string(),
    }
}

#[cfg(test)]
mod tests;
