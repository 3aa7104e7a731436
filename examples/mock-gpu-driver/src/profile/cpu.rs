//! NUMA nodes. What claims take of them counts as CPUs of the node (KEP-5517, Kubernetes 1.37).

use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, ConfigError, Device, DriverName, Pool,
    resourceslice::{NodeAllocatable, QualifiedName},
};
use serde_json::Value;

use super::{Env, Profile};

/// The NUMA nodes of a node.
#[derive(Debug)]
pub(crate) struct NumaNodes {
    pub(crate) driver: DriverName,
    pub(crate) count: u32,
    /// Of each.
    pub(crate) cpus: u32,
}

impl NumaNodes {
    /// The capacity that claims take CPUs of, such as `cpu.example.com/cpu`.
    fn capacity(&self) -> String {
        format!("{}/cpu", self.driver)
    }
}

impl Profile for NumaNodes {
    fn class(&self) -> &'static str {
        "CPU"
    }

    fn prefix(&self) -> &'static str {
        "numa-"
    }

    fn pool(&self) -> anyhow::Result<Pool> {
        let cpus = QualifiedName::new(self.capacity())?;
        let node = |index: u32| -> anyhow::Result<Device> {
            Ok(Device::named(&format!("numa-{index}"))?
                .try_attribute("numaNodeID", i64::from(index))?
                .capacity(cpus.clone(), i64::from(self.cpus))
                .allow_multiple_allocations(true)
                .node_allocatable("cpu", NodeAllocatable::per_capacity(cpus.clone(), 1)))
        };
        Ok(Pool::new((0..self.count).map(node).collect::<anyhow::Result<Vec<_>>>()?))
    }

    fn env(&self, _: &AllocatedClaim, device: &AllocatedDevice) -> Result<Env, ConfigError> {
        let consumed = device.consumed_capacity().get(&self.capacity());
        Ok(consumed.map(|cpus| ("_CONSUMED_CPU", cpus.clone())).into_iter().collect())
    }
}

/// # Errors
/// Always: there is nothing to configure.
pub(crate) fn validate(_: &Value) -> Result<(), ConfigError> {
    Err(ConfigError::new("", "this driver takes no configuration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numa_node_has_cpus_that_are_the_nodes() {
        let nodes = NumaNodes { driver: "cpu.example.com".parse().unwrap(), count: 2, cpus: 4 };
        let pool = nodes.pool().unwrap();
        let numa = pool.devices().nth(1).unwrap();
        assert_eq!(numa.name().as_str(), "numa-1");
        let capacities: Vec<_> = numa.capacities().map(|(name, _)| name.as_str()).collect();
        assert_eq!(capacities, ["cpu.example.com/cpu"]);
        assert!(format!("{numa:?}").contains("PerCapacity"), "{numa:?}");
    }

    #[test]
    fn there_is_nothing_to_configure() {
        let error = validate(&serde_json::json!({})).unwrap_err();
        assert_eq!(error.to_string(), "parameters: this driver takes no configuration");
    }
}
