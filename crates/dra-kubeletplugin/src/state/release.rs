//! Takes a driver off a node that has claims: back to the driver that was there before, or to none.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use dra_cdi::{Directory, Kind};
use tokio::time::Instant;

use super::{StateError, StateLocation};
use crate::{
    boot::boot_id,
    claim::{ClaimRef, DeviceRef},
    claim_status::StatusWriter,
    claims::{self, Claims, ClaimsConfig, FileRecords, GoHelper, Instance, JoinError, Lookup},
    names::ClaimUid,
    paths::{is_dra_socket, is_registration_socket_of},
    plugin::DriverPlugin,
    registration::{Sweep, sweep_dead_sockets},
};

/// Which claims to let go of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// All that a record tells of.
    All,
    /// These.
    Claims(BTreeSet<ClaimUid>),
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// The claim; namespace and name are empty if its record does not tell them.
    pub claim: ClaimRef,
    /// The devices that it held, as far as its record tells.
    pub devices: Vec<DeviceRef>,
    /// How the driver has let go of it, or why it could not: then it is held as before.
    pub outcome: Result<Way, String>,
}

/// How a driver lets go of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// The driver has undone it, and nothing of it is left.
    Unprepared,
    /// Another program has prepared it, and its books still tell of it: only our record of that is gone.
    HandedBack,
    /// No record tells of it.
    NotHeld,
}

/// An instance that is ending needs that long.
const INSTANCE_PATIENCE: Duration = Duration::from_secs(5);

/// Lets go of claims though the kubelet has not asked for it, because the driver leaves the node: back to one that keeps
/// other books, say. The API server is not needed, and no statuses of claims are changed.
///
/// Each claim goes the way of an unprepare: [`DriverPlugin::unprepare`] with the saved state and reason
/// [`Released`](crate::UnprepareReason::Released), then its CDI file, its metadata, its record. Containers that run keep
/// what they have been given; one that is started again finds no CDI device and fails, until its pod is deleted. A driver
/// whose undo would hurt them returns an error: the claim stays held, and has to be drained.
///
/// A claim that was adopted and not prepared anew since is handed back: the other program's books, its CDI file and the
/// devices stay as they are. At last the sockets that dead instances have left are removed.
///
/// It may be called again, whatever became of the call before. Dropped half-way it leaves what a death would.
///
/// # Errors
///
/// An instance of the driver, or a Go driver of this name, lives, or the state cannot be opened; nothing has been done
/// then. A claim that cannot be released is no error of the call: see [`Released::outcome`].
pub async fn release<P: DriverPlugin>(
    location: &StateLocation,
    plugin: P,
    which: &Release,
) -> Result<Vec<Released>, StateError> {
    let (plugins, data) = (location.plugins(), location.data());
    if !plugins.is_dir() {
        return Err(StateError::NoState(plugins));
    }
    if !data.is_dir() {
        return Ok(none_held(which));
    }
    let released = if claims::any_records(&data).map_err(|error| other(&error))? {
        release_recorded(location, &data, plugin, which).await?
    } else {
        none_held(which)
    };
    let of_driver = |name: &str| is_registration_socket_of(&location.driver, name);
    let sweeps = [
        Sweep { folder: &location.registry(), ours: &of_driver },
        Sweep { folder: &data, ours: &is_dra_socket },
    ];
    sweep_dead_sockets(&sweeps).await;
    Ok(released)
}

/// Without records nothing is locked, so this may be done beside any driver.
fn none_held(which: &Release) -> Vec<Released> {
    let wanted = match which {
        Release::All => return Vec::new(),
        Release::Claims(wanted) => wanted,
    };
    let unknown = |uid: &ClaimUid| Released {
        claim: ClaimRef::new("", "", uid.clone()),
        devices: Vec::new(),
        outcome: Ok(Way::NotHeld),
    };
    wanted.iter().map(unknown).collect()
}

async fn release_recorded<P: DriverPlugin>(
    location: &StateLocation,
    data: &Path,
    plugin: P,
    which: &Release,
) -> Result<Vec<Released>, StateError> {
    // Its pods may have the devices by now that our claims had.
    let go = GoHelper { registry: location.registry(), driver: location.driver.clone() };
    if go.lives().await {
        return Err(StateError::GoDriver { driver: location.driver.to_string() });
    }
    let deadline = Instant::now() + INSTANCE_PATIENCE;
    let instance = Instance::join(data, None, deadline).await.map_err(|error| match error {
        JoinError::Other { note } => StateError::Running { note },
        JoinError::Lock(error) => other(&error),
    })?;
    let boot = boot_id(location.boot_id.as_deref()).map_err(|error| other(&error))?;
    let kind = Kind::for_driver(location.driver.as_str()).map_err(|error| other(&error))?;
    let cdi = Directory::open(&location.cdi_root, kind.clone())?;
    // Alone, so nobody is writing them.
    cdi.sweep_temps(Duration::ZERO)?;
    let config = ClaimsConfig {
        plugin: Arc::new(plugin),
        // Nothing goes on without a call here.
        tell: Arc::new(|error| tracing::error!(%error, "background work failed")),
        driver: location.driver.clone(),
        lookup: Lookup::without_server(location.driver.clone()),
        records: Arc::new(FileRecords::in_folder(data)),
        cdi,
        kind,
        max_parallel: 1,
        instance: Arc::new(instance),
        status: StatusWriter::new(),
        go_helper: None,
    };
    let claims = Claims::open(config, data, &boot, None, deadline).await.map_err(|error| other(&error))?;
    let claims = Arc::new(claims);
    let wanted = match which {
        Release::All => claims.recorded().await.map_err(|error| other(&error))?,
        Release::Claims(wanted) => wanted.clone(),
    };
    let mut released = Vec::new();
    for uid in &wanted {
        released.push(claims.release(uid).await);
    }
    Ok(released)
}

fn other(error: &dyn std::fmt::Display) -> StateError {
    StateError::Other(error.to_string())
}
