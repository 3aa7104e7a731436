//! What calls did to the GPUs: it outlives the process, as it does on real hardware.

mod holders;
mod instances;
mod store;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use instances::Refusal;

use crate::Gpu;

/// The GPUs that calls have changed, in `hardware.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Hardware {
    /// By PCI address, as `00000000:07:00.0`.
    pub gpus: BTreeMap<String, GpuHardware>,
}

/// What calls did to one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GpuHardware {
    /// Whether MIG is on.
    pub mig: bool,
    /// The MIG mode that waits for a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_mig: Option<bool>,
    /// Its minor number, if a change of MIG mode gave it another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// A number of `nvmlComputeMode_t`.
    pub compute_mode: u32,
    /// Its GPU instances.
    pub instances: Vec<GpuInstance>,
    /// How many instances were ever made: tells one from another that had its number.
    pub made: u64,
}

/// A part of a GPU with memory of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct GpuInstance {
    /// Its number on this GPU, not given to two at once.
    pub id: u32,
    /// The id of its profile, as 19.
    pub profile: u32,
    /// The profile's name, as `1g.5gb`.
    pub name: String,
    /// Its first memory slice.
    pub start: u32,
    /// How many memory slices it has.
    pub size: u32,
    /// Its compute instances.
    pub compute_instances: Vec<ComputeInstance>,
    /// Which of all that were ever made on this GPU.
    pub made: u64,
}

/// A part of a GPU instance that can compute: a MIG device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct ComputeInstance {
    /// Its number on this GPU instance.
    pub id: u32,
    /// The id of its profile.
    pub profile: u32,
    /// Its first slice.
    pub start: u32,
    /// How many compute slices it has.
    pub slices: u32,
    /// As `MIG-…`. The same for the same numbers on the same GPU.
    pub uuid: String,
    /// Which of all that were ever made on this GPU.
    pub made: u64,
}

impl Hardware {
    /// The GPU as it is: as calls left it, or as the machine says that it began (which was checked with the machine).
    #[must_use]
    pub fn gpu(&self, gpu: &Gpu) -> GpuHardware {
        let key = gpu.pci_address().map(|address| address.to_string()).unwrap_or_default();
        self.gpus.get(&key).cloned().unwrap_or_else(|| GpuHardware::beginning(gpu).unwrap_or_default())
    }
}
