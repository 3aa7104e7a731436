//! The devices of a node as the scheduler knows them, and how each is.

mod file;
mod watch;
mod yaml;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use dra_kubeletplugin::{Device, DeviceHealth, DeviceName, Pool};
use tokio::sync::watch::{Receiver, channel};

use watch::InventoryFile;

/// All devices of a node.
#[derive(Debug)]
pub(crate) struct Inventory {
    places: BTreeMap<DeviceName, usize>,
    /// Of each device.
    health: BTreeMap<DeviceName, DeviceHealth>,
    pool: Pool,
}

impl Inventory {
    /// These devices, all healthy.
    pub(crate) fn new(pool: Pool) -> Self {
        let names = || pool.devices().map(|device| device.name().clone());
        let places = names().zip(0..).collect();
        let health = names().map(|name| (name, DeviceHealth::healthy())).collect();
        Self { places, health, pool }
    }

    /// What a file says and, from then on, what else it says; or, without one, these devices for ever.
    ///
    /// # Errors
    /// As [`Inventory::from_file`], or as `made_up`.
    pub(crate) fn follow(
        file: Option<PathBuf>,
        made_up: impl FnOnce() -> anyhow::Result<Pool>,
    ) -> anyhow::Result<Receiver<Arc<Self>>> {
        let Some(path) = file else {
            return Ok(channel(Arc::new(Self::new(made_up()?))).1);
        };
        let (mut file, inventory) = InventoryFile::open(path)?;
        let (sender, receiver) = channel(Arc::new(inventory));
        tokio::spawn(async move { while sender.send(Arc::new(file.changed().await)).is_ok() {} });
        Ok(receiver)
    }

    /// What a YAML file lists: devices as in a `ResourceSlice`'s spec, or slices, each with `devices` or `sharedCounters`,
    /// which are published as they are. `health` of a slice says how some of its devices are:
    /// `{"gpu-1": {"status": "Unhealthy", "message": "fell off the bus"}}`.
    ///
    /// # Errors
    /// The file cannot be read, or says something that would not be published; the error names file, line and field.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("inventory {}", path.display()))?;
        file::read(&text).with_context(|| format!("inventory {}", path.display()))
    }

    /// The same devices, of which some are otherwise.
    pub(crate) fn with_health(&self, said: &BTreeMap<DeviceName, DeviceHealth>) -> Self {
        let of = |(name, health): (&DeviceName, &DeviceHealth)| {
            (name.clone(), said.get(name).unwrap_or(health).clone())
        };
        let health = self.health.iter().map(of).collect();
        Self { places: self.places.clone(), health, pool: self.pool.clone() }
    }

    /// How each device is.
    pub(crate) fn health(&self) -> impl Iterator<Item = (&DeviceName, &DeviceHealth)> {
        self.health.iter()
    }

    /// A device as it is published, if there is one of that name.
    pub(crate) fn device(&self, name: &DeviceName) -> Option<&Device> {
        self.pool.devices().nth(*self.places.get(name)?)
    }

    /// The devices as they are published.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}
