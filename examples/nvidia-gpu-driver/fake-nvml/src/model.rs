//! What the GPUs that can be imitated are, from NVIDIA's public data sheets and the output of `nvidia-smi`.

use serde::{Deserialize, Serialize};

/// A product of NVIDIA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Model {
    /// NVIDIA A100, SXM4, 40 GB: Ampere, with MIG.
    #[serde(rename = "a100-sxm4-40gb")]
    A100Sxm4_40Gb,
    /// NVIDIA A100, SXM4, 80 GB: Ampere, with MIG.
    #[serde(rename = "a100-sxm4-80gb")]
    A100Sxm4_80Gb,
    /// NVIDIA H100, SXM5, 80 GB: Hopper, with MIG.
    #[serde(rename = "h100-sxm5-80gb")]
    H100Sxm5_80Gb,
    /// NVIDIA H200, SXM5, 141 GB: Hopper, with MIG.
    #[serde(rename = "h200-sxm5-141gb")]
    H200Sxm5_141Gb,
    /// NVIDIA L4, 24 GB: Ada Lovelace, without MIG.
    #[serde(rename = "l4")]
    L4,
}

impl Model {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::A100Sxm4_40Gb, Self::A100Sxm4_80Gb, Self::H100Sxm5_80Gb, Self::H200Sxm5_141Gb, Self::L4];

    /// The product's name, as NVML tells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.figures().name
    }

    /// Memory in MiB, as NVML tells it: what ECC and the firmware keep is not in it.
    #[must_use]
    pub const fn memory_mib(self) -> u64 {
        self.figures().memory_mib
    }

    /// Whether it can be cut into instances.
    #[must_use]
    pub const fn has_mig(self) -> bool {
        !matches!(self, Self::L4)
    }

    /// Whether MIG is still on after a restart of the machine, if it was.
    pub(crate) const fn keeps_mig(self) -> bool {
        matches!(self, Self::A100Sxm4_40Gb | Self::A100Sxm4_80Gb)
    }

    pub(crate) const fn figures(self) -> Figures {
        match self {
            Self::A100Sxm4_40Gb => Figures {
                name: "NVIDIA A100-SXM4-40GB",
                memory_mib: 40_960,
                architecture: AMPERE,
                compute_capability: (8, 0),
                pci_device_id: 0x20b0_10de,
                pci_subsystem_id: 0x144e_10de,
            },
            Self::A100Sxm4_80Gb => Figures {
                name: "NVIDIA A100-SXM4-80GB",
                memory_mib: 81_920,
                architecture: AMPERE,
                compute_capability: (8, 0),
                pci_device_id: 0x20b2_10de,
                pci_subsystem_id: 0x1463_10de,
            },
            Self::H100Sxm5_80Gb => Figures {
                name: "NVIDIA H100 80GB HBM3",
                memory_mib: 81_559,
                architecture: HOPPER,
                compute_capability: (9, 0),
                pci_device_id: 0x2330_10de,
                pci_subsystem_id: 0x16c1_10de,
            },
            Self::H200Sxm5_141Gb => Figures {
                name: "NVIDIA H200",
                memory_mib: 143_771,
                architecture: HOPPER,
                compute_capability: (9, 0),
                pci_device_id: 0x2335_10de,
                pci_subsystem_id: 0x18be_10de,
            },
            Self::L4 => Figures {
                name: "NVIDIA L4",
                memory_mib: 23_034,
                architecture: ADA,
                compute_capability: (8, 9),
                pci_device_id: 0x27b8_10de,
                pci_subsystem_id: 0x16ca_10de,
            },
        }
    }
}

const AMPERE: u32 = nvml_wrapper_sys::bindings::NVML_DEVICE_ARCH_AMPERE;
const ADA: u32 = nvml_wrapper_sys::bindings::NVML_DEVICE_ARCH_ADA;
const HOPPER: u32 = nvml_wrapper_sys::bindings::NVML_DEVICE_ARCH_HOPPER;

/// What NVML tells of every GPU of a model.
pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) memory_mib: u64,
    pub(crate) architecture: u32,
    pub(crate) compute_capability: (i32, i32),
    /// Device in the upper half, vendor in the lower.
    pub(crate) pci_device_id: u32,
    pub(crate) pci_subsystem_id: u32,
}
