//! The GPUs of a node: what they are called and what the scheduler may know of them.

mod file;
mod watch;

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use dra_kubeletplugin::{AttributeValue, Device, DeviceHealth, DeviceName, NodeName, Pool, Quantity};
use sha2::{Digest as _, Sha256};

pub(crate) use watch::InventoryFile;

/// All GPUs of a node.
#[derive(Debug)]
pub(crate) struct Inventory {
    places: BTreeMap<DeviceName, usize>,
    /// Of each GPU.
    health: BTreeMap<DeviceName, DeviceHealth>,
    pool: Pool,
}

impl Inventory {
    /// `count` GPUs, the same at each start.
    pub(crate) fn of_node(node: &NodeName, count: u32) -> anyhow::Result<Self> {
        let devices: Vec<_> = (0..count).map(|index| gpu(node, index)).collect::<anyhow::Result<_>>()?;
        let names = || devices.iter().map(|device| device.name().clone());
        let places = names().zip(0..).collect();
        let health = names().map(|name| (name, DeviceHealth::healthy())).collect();
        Ok(Self { places, health, pool: Pool::new(devices) })
    }

    /// What a JSON file lists: slices, each with `devices` or `sharedCounters` as in a `ResourceSlice`'s spec. They are
    /// published as they are. `health` of a slice says how some of its devices are:
    /// `{"gpu-1": {"status": "Unhealthy", "message": "fell off the bus"}}`.
    ///
    /// # Errors
    /// The file cannot be read, or says something that would not be published; the error names file and field.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("inventory {}", path.display()))?;
        file::read(&text).with_context(|| format!("inventory {}", path.display()))
    }

    /// How each GPU is.
    pub(crate) fn health(&self) -> impl Iterator<Item = (&DeviceName, &DeviceHealth)> {
        self.health.iter()
    }

    /// The place of a GPU among all of the node, if there is one of that name.
    pub(crate) fn place_of(&self, name: &DeviceName) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// A GPU as it is published, by its place.
    pub(crate) fn gpu(&self, place: usize) -> Option<&Device> {
        self.pool.devices().nth(place)
    }

    /// The GPUs as they are published.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}

fn gpu(node: &NodeName, index: u32) -> anyhow::Result<Device> {
    Ok(Device::named(&format!("gpu-{index}"))?
        .try_attribute("index", i64::from(index))?
        .try_attribute("uuid", uuid(node, index))?
        .try_attribute("model", "LATEST-GPU-MODEL")?
        .try_attribute("driverVersion", AttributeValue::version("1.0.0"))?
        .try_capacity("memory", Quantity::parse("80Gi")?)?)
}

/// Stable for the node, different on each: `gpu-` and a UUID made of a digest.
fn uuid(node: &NodeName, index: u32) -> String {
    let digest = Sha256::digest(format!("{node}/{index}").as_bytes());
    let number = digest.iter().take(16).fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    let hex = format!("{number:032x}");
    format!("gpu-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn gpus_are_stable_for_a_node_and_unique_among_nodes() {
        let of = |node: &str| -> Vec<_> {
            (0..8).map(|index| gpu(&node.parse().unwrap(), index).unwrap()).collect()
        };
        assert_eq!(of("node-1"), of("node-1"));
        let uuid = |device: Device| format!("{:?}", device.attribute_value("uuid"));
        let uuids: BTreeSet<_> = of("node-1").into_iter().chain(of("node-2")).map(uuid).collect();
        assert_eq!(uuids.len(), 16);
    }

    #[test]
    fn a_gpu_has_the_attributes_that_selectors_are_written_for() {
        let device = gpu(&"node-1".parse().unwrap(), 0).unwrap();
        let names: Vec<_> = device.attributes().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["driverVersion", "index", "model", "uuid"]);
    }

    #[test]
    fn a_gpu_is_found_by_its_name() {
        let inventory = Inventory::of_node(&"node-1".parse().unwrap(), 3).unwrap();
        assert_eq!(inventory.place_of(&"gpu-2".parse().unwrap()), Some(2));
        assert_eq!(inventory.gpu(2).unwrap().name().as_str(), "gpu-2");
        assert_eq!(inventory.place_of(&"gpu-3".parse().unwrap()), None);
    }
}
