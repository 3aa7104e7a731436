//! GPUs, whole or in parts, for one claim each or shared.

pub(crate) mod config;

use clap::Args;
use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, AttributeValue, ConfigError, Device, DeviceConfig as _, DeviceRef,
    NodeName, Pool, Quantity,
    resourceslice::{Capacity, CounterConsumption, CounterSet, Feature, IfDropped, RequestPolicy},
};
use serde_json::Value;

pub(crate) use config::{GpuConfig, Sharing};

use super::{Env, Profile, uuid};

/// Of each GPU, in GiB.
const MEMORY: u32 = 80;
/// Of each GPU, in units of this driver's own.
const COMPUTE: u32 = 100;

/// A pod is bound to its node when a controller has said this of its GPU, or not at all when it has said the other.
const READY: &str = "BindingConditions";
const FAILED: &str = "BindingFailureConditions";

/// What the GPUs can do.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GpuOptions {
    /// Offer each GPU in so many partitions too, beside the whole of it; whichever is allocated first keeps the other from
    /// being. 0 offers it only as a whole.
    #[arg(long, env = "GPU_PARTITIONS", value_name = "COUNT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MEMORY)))]
    pub(crate) gpu_partitions: u32,
    /// Let several claims share a GPU or partition; each takes a part of its memory and compute.
    #[arg(long, env = "GPU_ALLOW_MULTIPLE_ALLOCATIONS")]
    pub(crate) gpu_allow_multiple_allocations: bool,
    /// Have pods wait until a controller (`mock-gpu-driver binding-controller`) has said that their GPU is ready.
    #[arg(long, env = "BINDING_CONDITIONS")]
    pub(crate) binding_conditions: bool,
}

/// The GPUs of a node.
#[derive(Debug)]
pub(crate) struct Gpus {
    pub(crate) node: NodeName,
    pub(crate) count: u32,
    pub(crate) options: GpuOptions,
}

impl Profile for Gpus {
    fn class(&self) -> &'static str {
        "GPU"
    }

    fn prefix(&self) -> &'static str {
        "gpu-"
    }

    fn pool(&self) -> anyhow::Result<Pool> {
        let (mut devices, mut counters) = (Vec::new(), Vec::new());
        for index in 0..self.count {
            match self.options.gpu_partitions {
                0 => devices.push(self.device(&format!("gpu-{index}"), index, MEMORY, COMPUTE)?),
                parts => {
                    devices.extend(self.partitions(index, parts)?);
                    let set = CounterSet::new(&counter_set(index))?.counter("memory", gibibytes(MEMORY)?)?;
                    counters.push(set.counter("compute", i64::from(COMPUTE))?);
                }
            }
        }
        Ok(Pool::new(devices).counter_sets(counters))
    }

    fn env(&self, claim: &AllocatedClaim, device: &AllocatedDevice) -> Result<Env, ConfigError> {
        let config = claim.config::<GpuConfig>(device)?.unwrap_or_default();
        let mut env = match config.sharing {
            Sharing::TimeSlicing(interval) => vec![
                ("_SHARING_STRATEGY", "TimeSlicing".to_owned()),
                ("_TIMESLICE_INTERVAL", interval.to_string()),
            ],
            Sharing::SpacePartitioning(count) => vec![
                ("_SHARING_STRATEGY", "SpacePartitioning".to_owned()),
                ("_PARTITION_COUNT", count.to_string()),
            ],
        };
        for (capacity, variable) in [("memory", "_MEMORY"), ("compute", "_COMPUTE")] {
            let consumed = device.consumed_capacity().get(capacity);
            env.extend(consumed.map(|amount| (variable, amount.clone())));
        }
        Ok(env)
    }

    /// The whole of a GPU and its partitions. The scheduler sees to it by the counters; the driver does not rely on that.
    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        let pair = (board_of(held), board_of(wanted));
        matches!(pair, (Some((a, whole)), Some((b, other_whole))) if a == b && (whole || other_whole))
    }
}

/// Reads a configuration for a driver of GPUs.
///
/// # Errors
/// It is no `GpuConfig`, or has a mistake; with the path of the field.
pub(crate) fn validate(parameters: &Value) -> Result<(), ConfigError> {
    GpuConfig::decode(parameters).map(drop)
}

impl Gpus {
    fn device(&self, name: &str, index: u32, memory: u32, compute: u32) -> anyhow::Result<Device> {
        let mut device = Device::named(name)?
            .try_attribute("index", i64::from(index))?
            .try_attribute("uuid", format!("gpu-{}", uuid(&self.node, index)))?
            .try_attribute("model", "LATEST-GPU-MODEL")?
            .try_attribute("driverVersion", AttributeValue::version("1.0.0"))?;
        for (name, amount, least) in
            [("memory", gibibytes(memory)?, gibibytes(1)?), ("compute", i64::from(compute).into(), 1.into())]
        {
            let mut capacity = Capacity::new(amount.clone());
            if self.options.gpu_allow_multiple_allocations {
                // Who says nothing gets all that there is.
                let policy = RequestPolicy::range(amount.clone(), least.clone(), Some(amount), Some(least));
                capacity = capacity.with_policy(policy);
            }
            device = device.try_capacity(name, capacity)?;
        }
        if self.options.binding_conditions {
            device = device.binding_conditions([READY], [FAILED]);
        }
        Ok(device.allow_multiple_allocations(self.options.gpu_allow_multiple_allocations))
    }

    /// The partitions of a GPU and, behind them, the whole of it: the scheduler takes what comes first.
    fn partitions(&self, index: u32, parts: u32) -> anyhow::Result<Vec<Device>> {
        let part = |name: &str, memory: u32, compute: u32| -> anyhow::Result<Device> {
            let taken =
                CounterConsumption::new(&counter_set(index))?.counter("memory", gibibytes(memory)?)?;
            let taken = taken.counter("compute", i64::from(compute))?;
            let device = self.device(name, index, memory, compute)?.consumes(taken);
            Ok(device.try_attribute("partitionable", true)?)
        };
        let mut devices = Vec::new();
        for number in 0..parts {
            let device = part(&format!("gpu-{index}-partition-{number}"), MEMORY / parts, COMPUTE / parts)?;
            devices.push(device.try_attribute("partition", i64::from(number))?);
        }
        let whole = part(&format!("gpu-{index}-full"), MEMORY, COMPUTE)?.try_attribute("full", true)?;
        // Where there are no counters, there are whole GPUs only.
        devices.push(whole.if_dropped(Feature::PartitionableDevices, IfDropped::Keep));
        Ok(devices)
    }
}

fn counter_set(index: u32) -> String {
    format!("gpu-{index}-counters")
}

fn gibibytes(count: u32) -> anyhow::Result<Quantity> {
    Ok(Quantity::parse(format!("{count}Gi"))?)
}

/// Which GPU a device is of, in which pool, and whether it is the whole of it.
fn board_of(device: &DeviceRef) -> Option<((&str, &str), bool)> {
    let (pool, name) = (device.pool.as_str(), device.device.as_str());
    let whole = name.strip_suffix("-full").map(|board| ((pool, board), true));
    whole.or_else(|| name.split_once("-partition-").map(|(board, _)| ((pool, board), false)))
}

#[cfg(test)]
mod tests;
