//! What kind of devices the driver plays. A driver of one kind has no need of this file.

pub(crate) mod cpu;
pub(crate) mod gpu;
pub(crate) mod net;

use std::fmt;

use clap::{Args, ValueEnum};
use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, ConfigError, DeviceRef, DriverName, NodeName, Pool,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// All that the kinds differ in.
pub(crate) trait Profile: fmt::Debug + Send + Sync + 'static {
    /// What the names of variables in containers begin with.
    fn class(&self) -> &'static str;

    /// What the names of devices begin with, which those of variables leave out.
    fn prefix(&self) -> &'static str;

    /// The devices of this node.
    ///
    /// # Errors
    /// There are none with these options.
    fn pool(&self) -> anyhow::Result<Pool>;

    /// What containers are told of a device: the ends of variables, behind `<class>_DEVICE_<id>`, and their values.
    ///
    /// # Errors
    /// The claim has a configuration with a mistake.
    fn env(&self, claim: &AllocatedClaim, device: &AllocatedDevice) -> Result<Env, ConfigError>;

    /// Whether one of two devices of different names keeps the other from being used.
    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        let _ = (held, wanted);
        false
    }
}

/// Ends of variables and their values.
pub(crate) type Env = Vec<(&'static str, String)>;

/// The kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceProfile {
    /// GPUs.
    Gpu,
    /// Network interfaces whose bandwidth is shared.
    Net,
    /// NUMA nodes whose CPUs are those of the node.
    Cpu,
}

/// How many devices there are, and what they can do.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProfileOptions {
    /// How many GPUs, network interfaces or NUMA nodes the node has.
    #[arg(long, env = "NUM_DEVICES", value_name = "COUNT", default_value_t = 8)]
    pub(crate) num_devices: u32,
    #[command(flatten)]
    pub(crate) gpu: gpu::GpuOptions,
    /// How many CPUs each NUMA node has.
    #[arg(long, env = "CPUS_PER_NUMA_NODE", value_name = "COUNT", default_value_t = 4)]
    pub(crate) cpus_per_numa_node: u32,
}

impl DeviceProfile {
    pub(crate) fn build(
        self,
        driver: &DriverName,
        node: &NodeName,
        options: &ProfileOptions,
    ) -> Box<dyn Profile> {
        let (node, count) = (node.clone(), options.num_devices);
        match self {
            Self::Gpu => Box::new(gpu::Gpus { node, count, options: options.gpu.clone() }),
            Self::Net => Box::new(net::Nics { node, count }),
            Self::Cpu => {
                Box::new(cpu::NumaNodes { driver: driver.clone(), count, cpus: options.cpus_per_numa_node })
            }
        }
    }

    /// Reads a configuration that is meant for such a driver. For prepare and webhook alike.
    ///
    /// # Errors
    /// It is none of this kind, or has a mistake; with the path of the field.
    pub(crate) fn validate(self, parameters: &Value) -> Result<(), ConfigError> {
        match self {
            Self::Gpu => gpu::validate(parameters),
            Self::Net => net::validate(parameters),
            Self::Cpu => cpu::validate(parameters),
        }
    }
}

/// Stable for the node, different on each: a UUID made of a digest.
fn uuid(node: &NodeName, index: u32) -> String {
    let digest = Sha256::digest(format!("{node}/{index}").as_bytes());
    let number = digest.iter().take(16).fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    let hex = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
