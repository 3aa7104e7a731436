//! The GPUs of a node: what they are called and what the scheduler may know of them.

use anyhow::Context as _;
use dra_kubeletplugin::{AttributeValue, Device, DeviceName, NodeName, Quantity};
use sha2::{Digest as _, Sha256};

/// All GPUs of a node.
#[derive(Debug)]
pub(crate) struct Inventory {
    gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) name: DeviceName,
    pub(crate) index: u32,
    pub(crate) uuid: String,
}

impl Inventory {
    /// `count` GPUs, the same at each start.
    pub(crate) fn of_node(node: &NodeName, count: u32) -> anyhow::Result<Self> {
        let gpu = |index| {
            let name = format!("gpu-{index}");
            let name = name.parse().with_context(|| format!("device name {name:?}"))?;
            Ok(Gpu { name, index, uuid: uuid(node, index) })
        };
        Ok(Self { gpus: (0..count).map(gpu).collect::<anyhow::Result<_>>()? })
    }

    /// The GPU of that name.
    pub(crate) fn get(&self, name: &DeviceName) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.name == *name)
    }

    /// The GPUs as they are published.
    pub(crate) fn devices(&self) -> anyhow::Result<Vec<Device>> {
        self.gpus.iter().map(Gpu::device).collect()
    }
}

impl Gpu {
    fn device(&self) -> anyhow::Result<Device> {
        Ok(Device::new(self.name.clone())
            .try_attribute("index", i64::from(self.index))?
            .try_attribute("uuid", self.uuid.as_str())?
            .try_attribute("model", "LATEST-GPU-MODEL")?
            .try_attribute("driverVersion", AttributeValue::version("1.0.0"))?
            .try_capacity("memory", Quantity::parse("80Gi")?)?)
    }
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

    fn of(node: &str, count: u32) -> Inventory {
        Inventory::of_node(&node.parse().unwrap(), count).unwrap()
    }

    #[test]
    fn uuids_are_stable_for_a_node_and_unique_among_nodes() {
        assert_eq!(of("node-1", 8).gpus, of("node-1", 8).gpus);
        let all = [of("node-1", 8), of("node-2", 8)];
        let uuids: BTreeSet<_> = all.iter().flat_map(|node| &node.gpus).map(|gpu| &gpu.uuid).collect();
        assert_eq!(uuids.len(), 16);
    }

    #[test]
    fn a_gpu_has_the_attributes_that_selectors_are_written_for() {
        let device = of("node-1", 1).devices().unwrap().remove(0);
        let names: Vec<_> =
            device.attributes().keys().map(dra_kubeletplugin::QualifiedName::as_str).collect();
        assert_eq!(names, ["driverVersion", "index", "model", "uuid"]);
    }
}
