//! What a look at a driver's state finds. Plain data, also as JSON.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    claim::{ClaimRef, DeviceRef},
    names::{ClaimUid, DriverName},
};

/// All that a driver keeps on a node, at one moment. Ages are in whole seconds; digests are SHA-256, in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Snapshot {
    /// The driver.
    pub driver: DriverName,
    /// Its own folder.
    pub data: PathBuf,
    /// Folder of the CDI files.
    pub cdi_root: PathBuf,
    /// This boot of the machine.
    pub boot_id: String,
    /// Records of claims, of all boots.
    pub records: Vec<RecordState>,
    /// All CDI files of the folder, other writers' too.
    pub cdi_files: Vec<CdiFileState>,
    /// Metadata files of claims.
    pub metadata: Vec<MetadataState>,
    /// What interrupted writes have left, or writes under way are about to rename.
    pub temporary: Vec<Temporary>,
    /// Locks that are held.
    pub locks: Vec<LockState>,
    /// Sockets of the driver, also those of a Go driver of its name.
    pub sockets: Vec<SocketState>,
    /// Instances that have a registration socket.
    pub instances: Vec<InstanceState>,
    /// How often instances have started on this node; a repair of the state counts too.
    pub starts: u64,
    /// What the last instance that started has said of itself.
    pub last_start: Option<String>,
    /// Records that a repair has put aside.
    pub put_aside: Vec<PathBuf>,
}

/// The record of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordState {
    /// UID of the claim, as the file's name tells it.
    pub uid: ClaimUid,
    /// The claim, if the record can be read.
    pub claim: Option<ClaimRef>,
    /// Where it is.
    pub path: PathBuf,
    /// The boot of the machine in which it was written.
    pub boot_id: String,
    /// How long ago it was written.
    pub age: u64,
    /// How far the claim is.
    pub phase: RecordPhase,
    /// Why it cannot be read, if it is damaged.
    pub damage: Option<String>,
    /// The format that it has, if that is a later one.
    pub newer_format: Option<u32>,
    /// What it holds.
    pub devices: Vec<RecordedDevice>,
    /// CDI devices that the claim had with an earlier allocation and that the kubelet may still ask for.
    pub former_cdi: Vec<String>,
    /// Whether another program has prepared the claim, and this driver has not since.
    pub adopted: bool,
    /// Digest of the claim's CDI file; none if it needs none.
    pub cdi_file: Option<String>,
    /// Name of the CDI file that another program has written for it.
    pub foreign_cdi_file: Option<String>,
    /// Digests of the claim's metadata files, by base request.
    pub metadata: BTreeMap<String, String>,
}

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RecordPhase {
    /// The driver was asked to prepare; whether it has done so is not known.
    Started,
    /// The driver has prepared the devices.
    Prepared,
    /// The claim is on its way out; whether the driver has been told is not known.
    Unpreparing,
    /// It has no devices: the record remembers the names of those that it had before it was allocated anew.
    Vacated,
    /// The record cannot be read.
    Damaged,
}

/// A device that a record tells of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RecordedDevice {
    /// Pool and name.
    #[serde(flatten)]
    pub device: DeviceRef,
    /// The request that it answers, as the result names it; empty if another program has prepared the claim.
    pub request: String,
    /// Which share of it.
    pub share_id: Option<String>,
    /// Whether the claim only watches or manages it.
    pub admin_access: bool,
    /// What the kubelet was told.
    pub cdi_ids: Vec<String>,
}

/// A CDI file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CdiFileState {
    /// Its name in the folder.
    pub name: String,
    /// Whose it is.
    pub owner: CdiOwner,
    /// The kind that it names, if it is JSON.
    pub kind: Option<String>,
    /// The devices that it names, if it is JSON.
    pub devices: Vec<String>,
    /// Digest of its content.
    pub sha256: String,
    /// How long ago it was written.
    pub age: u64,
}

/// Whose a CDI file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum CdiOwner {
    /// The driver's, for this claim.
    Claim(ClaimUid),
    /// Another program's; records of these claims say that they need it.
    Foreign(Vec<ClaimUid>),
    /// Not the driver's.
    Other,
}

/// A metadata file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MetadataState {
    /// The claim whose devices it describes.
    pub claim: ClaimUid,
    /// The base request.
    pub request: String,
    /// Where it is.
    pub path: PathBuf,
    /// Digest of its content.
    pub sha256: String,
}

/// A temporary file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Temporary {
    /// Where it is.
    pub path: PathBuf,
    /// How long ago it was written.
    pub age: u64,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LockState {
    /// Name of the locked file in the driver's folder.
    pub file: String,
    /// The first byte that is locked.
    pub first: u64,
    /// The last one; none if all that follow are.
    pub last: Option<u64>,
    /// Whether it is held by one alone.
    pub exclusive: bool,
    /// What it is held for.
    pub by: LockedBy,
    /// The processes that hold it, as far as they can be seen.
    pub pids: Vec<u32>,
}

/// What a lock is held for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum LockedBy {
    /// Living instances.
    Instances,
    /// An instance that admits a claim.
    Admission,
    /// Work on a claim: one of these, of those with a record.
    Claim(Vec<ClaimUid>),
    /// Work on a device: one of these, of those that a record holds.
    Device(Vec<DeviceRef>),
    /// A call of a Go driver, which locks the whole file.
    GoDriver,
    /// The instance that publishes.
    Publisher,
    /// An instance that waits to publish: the one with this number of starts.
    WaitsToPublish(u64),
    /// Something else.
    Unknown,
}

/// A socket of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SocketState {
    /// Where it is.
    pub path: PathBuf,
    /// What it is for.
    pub kind: SocketKind,
    /// Whether somebody has it.
    pub liveness: Liveness,
    /// Why that is not known.
    pub error: Option<String>,
    /// How long ago it was made.
    pub age: u64,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SocketKind {
    /// The kubelet finds the driver by it.
    Registration,
    /// A registration socket that is not shown to the kubelet yet.
    HiddenRegistration,
    /// The kubelet calls the driver by it.
    Dra,
    /// A registration socket of a Go driver of this name.
    GoRegistration,
    /// The DRA socket of such a one.
    GoDra,
}

/// Whether a process listens at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Liveness {
    /// One does.
    Live,
    /// None does.
    Dead,
    /// It cannot be told.
    Unknown,
}

/// An instance of the driver, as its registration socket tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InstanceState {
    /// UID of its pod; none without rolling updates, or if it did not fit into the socket's name.
    pub pod_uid: Option<String>,
    /// The mark of its start, which all of its sockets have.
    pub start: String,
    /// Whether it lives.
    pub liveness: Liveness,
}
