//! A driver's state on a node, for the person who has to put it right.

mod release;
mod show;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use dra_cdi::{Directory, Kind};
use dra_resourceslice::DriverName;
use tokio::time::Instant;

use crate::{
    claims::{self, DamagedRecord},
    fault,
    names::ClaimUid,
};

pub use release::{Release, Released, Way, release};
pub use show::{
    CdiFileState, CdiOwner, Finding, FindingKind, InstanceState, Liveness, LockState, LockedBy,
    MetadataState, RecordPhase, RecordState, RecordedDevice, Report, Snapshot, SocketKind, SocketState,
    Temporary, show,
};

/// Where a driver keeps its state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateLocation {
    /// The driver.
    pub driver: DriverName,
    /// Root folder of the kubelet.
    pub kubelet_root: PathBuf,
    /// Folder of the CDI files.
    pub cdi_root: PathBuf,
    /// Which boot of the machine this is, instead of what the kernel says. For tests that play a reboot.
    pub boot_id: Option<String>,
}

impl StateLocation {
    /// The usual folders of a node.
    #[must_use]
    pub fn new(driver: DriverName) -> Self {
        Self {
            driver,
            kubelet_root: "/var/lib/kubelet".into(),
            cdi_root: "/var/run/cdi".into(),
            boot_id: None,
        }
    }

    fn plugins(&self) -> PathBuf {
        self.kubelet_root.join("plugins")
    }

    fn registry(&self) -> PathBuf {
        self.kubelet_root.join("plugins_registry")
    }

    /// The driver's own folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.plugins().join(self.driver.as_str())
    }
}

/// A record that was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// Claim that the record was about.
    pub claim: ClaimUid,
    /// Why it could not be read.
    pub why: String,
    /// Where it is kept now.
    pub kept_at: PathBuf,
}

/// Why a command on the state stopped. What it did before stays done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// There is no such driver on this node.
    #[error("{} does not exist: are the driver's name and the kubelet root right?", .0.display())]
    NoState(PathBuf),
    /// An instance of the driver lives.
    #[error("an instance of the driver runs on this node ({note}): stop it first")]
    Running {
        /// What the instance wrote about itself.
        note: String,
    },
    /// A driver on the Go helper serves the node under the same name.
    #[error(
        "a Go driver named {driver} serves this node, and may have given devices away that these claims held: stop it first"
    )]
    GoDriver {
        /// The name of both.
        driver: String,
    },
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The CDI folder cannot be used.
    #[error("CDI folder: {0}")]
    Cdi(#[from] dra_cdi::Error),
    /// Anything else; the text says what and where.
    #[error("{0}")]
    Other(String),
}

/// How long to wait for a claim that the driver is at work on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Puts aside each record that cannot be read, and removes its claim's CDI and metadata files, so that the driver can give its devices
/// away again. Make sure before that nothing uses them: the record that told which they were is what is unreadable.
/// Running instances of the driver take notice.
///
/// If the claim still exists, it is better to delete its pods: unprepare works without the record.
///
/// # Errors
///
/// There is no state, or a file cannot be moved, or the driver is at work on one of the claims.
pub async fn repair(location: &StateLocation) -> Result<Vec<SetAside>, StateError> {
    let data = location.data();
    if !data.is_dir() {
        return Err(StateError::NoState(data));
    }
    let kind =
        Kind::for_driver(location.driver.as_str()).map_err(|error| StateError::Other(error.to_string()))?;
    let cdi = Directory::open(&location.cdi_root, kind)?;
    let damaged = claims::damaged_records(&data).map_err(|error| StateError::Other(error.to_string()))?;
    let (mut set_aside, mut all) = (Vec::new(), Ok(()));
    for record in damaged {
        // One that fails keeps no other from it.
        match put_aside(&data, &cdi, record).await {
            Ok(put) => set_aside.extend(put),
            Err(error) => all = Err(error),
        }
    }
    // Also if there was nothing to do: an earlier repair may have died before it came to this.
    let told = claims::tell_of_change(&data, Instant::now() + PATIENCE).await;
    told.map_err(|error| StateError::Other(error.to_string()))?;
    all.map(|()| set_aside)
}

/// None if the record can be read by now: its claim was unprepared and prepared again meanwhile.
async fn put_aside(
    data: &Path,
    cdi: &Directory,
    record: DamagedRecord,
) -> Result<Option<SetAside>, StateError> {
    let other = |error: &dyn std::fmt::Display| StateError::Other(format!("claim {}: {error}", record.claim));
    let deadline = Instant::now() + PATIENCE;
    let _held = claims::lock_claim(data, &record.claim, deadline).await.map_err(|error| other(&error))?;
    if !record.is_still_damaged().map_err(|error| other(&error))? {
        return Ok(None);
    }
    let folder = data.join("damaged");
    let fail = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| StateError::Io { operation, path, source }
    };
    let made = fault::point("repair.mkdir").and_then(|()| fs::create_dir_all(&folder));
    made.map_err(fail("creating folder", &folder))?;
    let kept_at = free_name(&folder, &record.claim);
    // The CDI file first: without the record nobody would know of it.
    let id = dra_cdi::FileId::new(record.claim.as_str()).map_err(|error| other(&error))?;
    cdi.remove(&id)?;
    claims::MetadataFiles::in_folder(data).remove(&record.claim).map_err(|error| other(&error))?;
    let moved = fault::point("repair.rename").and_then(|()| fs::rename(&record.path, &kept_at));
    moved.map_err(fail("moving", &record.path))?;
    for folder in [Some(folder.as_path()), record.path.parent()].into_iter().flatten() {
        let synced = File::open(folder).and_then(|folder| {
            fault::point("repair.fsync-folder")?;
            folder.sync_all()
        });
        synced.map_err(fail("syncing folder", folder))?;
    }
    Ok(Some(SetAside { claim: record.claim, why: record.why, kept_at }))
}

/// A claim may have been put aside before.
fn free_name(folder: &Path, claim: &ClaimUid) -> PathBuf {
    let mut count = 1;
    loop {
        let path = folder.join(format!("{claim}.{count}.json"));
        if !path.exists() {
            return path;
        }
        count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn damaged_records_are_put_aside_with_their_claims_files_and_nothing_else_is_touched() {
        let node = tempfile::tempdir().unwrap();
        let mut location = StateLocation::new("gpu.example.com".parse().unwrap());
        location.kubelet_root = node.path().join("kubelet");
        location.cdi_root = node.path().join("cdi");
        assert!(matches!(repair(&location).await, Err(StateError::NoState(_))));
        let records = location.data().join("claims/boot");
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join("a.json"), "cut").unwrap();
        let cdi = Directory::open(&location.cdi_root, Kind::for_driver("gpu.example.com").unwrap()).unwrap();
        let metadata = location.data().join("metadata");
        for uid in ["a", "b"] {
            cdi.ensure(&dra_cdi::FileId::new(uid).unwrap(), b"{}").unwrap();
            fs::create_dir_all(metadata.join(uid)).unwrap();
        }
        let [set_aside] = &repair(&location).await.unwrap()[..] else { panic!("one record") };
        assert_eq!(
            (set_aside.claim.as_str(), fs::read(&set_aside.kept_at).unwrap().as_slice()),
            ("a", &b"cut"[..])
        );
        assert_eq!(fs::read_dir(&records).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&location.cdi_root).unwrap().count(), 1);
        assert_eq!((metadata.join("a").exists(), metadata.join("b").exists()), (false, true));
        assert_eq!(repair(&location).await.unwrap(), []);
    }

    /// While `repair` waits for the claim, the kubelet's unprepare heals it and a prepare makes a new record.
    #[tokio::test]
    async fn a_record_that_is_whole_again_once_its_claim_is_locked_is_left_alone() {
        let node = tempfile::tempdir().unwrap();
        let mut location = StateLocation::new("gpu.example.com".parse().unwrap());
        location.kubelet_root = node.path().join("kubelet");
        location.cdi_root = node.path().join("cdi");
        let records = location.data().join("claims/boot");
        fs::create_dir_all(&records).unwrap();
        let path = records.join("a.json");
        fs::write(&path, "cut").unwrap();
        let cdi = Directory::open(&location.cdi_root, Kind::for_driver("gpu.example.com").unwrap()).unwrap();
        let uid: crate::names::ClaimUid = "a".parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let held = claims::lock_claim(&location.data(), &uid, deadline).await.unwrap();
        let (repaired, ()) = tokio::join!(repair(&location), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let payload = serde_json::json!({
                "claim": {"namespace": "ns", "name": "a", "uid": "a"}, "allocation": {"results": [], "configs": []},
            });
            let record: claims::Record = serde_json::from_value(payload).unwrap();
            fs::write(&path, record.encode().unwrap()).unwrap();
            cdi.ensure(&dra_cdi::FileId::new("a").unwrap(), b"{}").unwrap();
            drop(held);
        });
        assert!(
            path.exists() && fs::read_dir(&location.cdi_root).unwrap().count() == 1,
            "put aside: {repaired:?}"
        );
    }

    /// One claim that is busy ends the repair, and running instances do not learn what was put aside before it.
    #[tokio::test(start_paused = true)]
    async fn one_claim_that_is_busy_keeps_no_other_from_its_repair() {
        let node = tempfile::tempdir().unwrap();
        let mut location = StateLocation::new("gpu.example.com".parse().unwrap());
        location.kubelet_root = node.path().join("kubelet");
        location.cdi_root = node.path().join("cdi");
        let records = location.data().join("claims/boot");
        fs::create_dir_all(&records).unwrap();
        for uid in ["a", "b", "c"] {
            fs::write(records.join(format!("{uid}.json")), "cut").unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        let _held = claims::lock_claim(&location.data(), &"b".parse().unwrap(), deadline).await.unwrap();
        fs::write(location.data().join("instances.lock"), "5\npid 1, pod x\n").unwrap();
        let _ = repair(&location).await;
        let text = fs::read_to_string(location.data().join("instances.lock")).unwrap();
        assert!(!records.join("c.json").exists(), "the third was not looked at");
        assert!(text.starts_with("6\n"), "instances did not learn of it: {text:?}");
    }
}
