//! What is known of a GPU, as plain data.

mod names;
mod read;

use dra_kubeletplugin::{AttributeValue, QualifiedName, resourceslice::sysfs::PciAddress};
use nvidia_nvml::{GpuInstanceProfile, Placement};

pub(crate) use names::{mig_device_name, profile_name};
pub(crate) use read::{Reading, read};

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gpu {
    /// Its place in NVML's list, which changes when another GPU comes or goes.
    pub(crate) index: u32,
    /// The N of `/dev/nvidiaN`.
    pub(crate) minor: u32,
    pub(crate) uuid: String,
    pub(crate) product_name: String,
    pub(crate) brand: &'static str,
    pub(crate) architecture: Architecture,
    pub(crate) cuda_compute_capability: (i32, i32),
    pub(crate) driver_version: String,
    pub(crate) cuda_driver_version: (u32, u32),
    /// None if NVML says something that is no address.
    pub(crate) pci: Option<PciAddress>,
    /// What sysfs tells of its place in the machine, under the standard names.
    pub(crate) place: Vec<(QualifiedName, AttributeValue)>,
    pub(crate) addressing_mode: Option<&'static str>,
    /// In bytes; none where the GPU uses the system's memory.
    pub(crate) memory: Option<u64>,
    /// Whether it is partitioned; none if it cannot be.
    pub(crate) mig_enabled: Option<bool>,
    /// The shapes that its partitions may have; empty if it cannot be partitioned.
    pub(crate) profiles: Vec<MigProfile>,
    /// The partitions that are there, unless they are made as claims ask for them.
    pub(crate) migs: Vec<Mig>,
    /// Those that are in the way of others then: this driver has not made them, or cannot remove them.
    pub(crate) foreign: Vec<(GpuInstanceProfile, Placement)>,
}

/// An architecture, as a number of NVML: later ones are greater.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Architecture(pub(crate) u32);

/// A shape of partitions of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MigProfile {
    /// Such as `1g.5gb`.
    pub(crate) name: String,
    pub(crate) shape: GpuInstanceProfile,
    pub(crate) placements: Vec<Placement>,
}

/// A partition that is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mig {
    pub(crate) uuid: String,
    /// Such as `1g.5gb`, or `1c.2g.10gb` if it has only a part of its GPU instance's processors.
    pub(crate) profile: String,
    pub(crate) shape: GpuInstanceProfile,
    pub(crate) placement: Placement,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

impl Architecture {
    const HOPPER: Self = Self(9);

    /// Whether MIG mode changes without a reset of the GPU.
    pub(crate) fn switches_mig_mode_at_once(self) -> bool {
        self >= Self::HOPPER && self.0 != u32::MAX
    }
}

impl Gpu {
    /// How many memory slices it has, as far as its partitions tell.
    pub(crate) fn memory_slices(&self) -> u32 {
        let placements = self.profiles.iter().flat_map(|profile| &profile.placements);
        placements.map(|placement| placement.start.saturating_add(placement.size)).max().unwrap_or_default()
    }

    /// Whether something is there that this driver has not made.
    pub(crate) fn is_taken(&self, place: Placement) -> bool {
        self.foreign.iter().any(|(_, taken)| taken.overlaps(place))
    }
}

/// GPUs for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// An A100 with 40 GB, two shapes and a partition.
    pub(crate) fn a100() -> Gpu {
        let mut small = GpuInstanceProfile::new(0, 19, 1, 4_864);
        small.multiprocessors = 14;
        small.copy_engines = 1;
        let mut large = GpuInstanceProfile::new(4, 0, 7, 40_192);
        large.multiprocessors = 98;
        large.copy_engines = 7;
        large.decoders = 5;
        let pci = PciAddress::new("0000:65:00.0").unwrap();
        let root = ("resource.kubernetes.io/pcieRoot".parse().unwrap(), "pci0000:64".into());
        let numa = ("resource.kubernetes.io/numaNode".parse().unwrap(), 1.into());
        Gpu {
            index: 0,
            minor: 0,
            uuid: "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c".to_owned(),
            product_name: "NVIDIA A100-SXM4-40GB".to_owned(),
            brand: "Nvidia",
            architecture: Architecture(7),
            cuda_compute_capability: (8, 0),
            driver_version: "550.127.08".to_owned(),
            cuda_driver_version: (12, 4),
            place: vec![pci.bus_id_attribute().unwrap(), root, numa],
            pci: Some(pci),
            addressing_mode: Some("HMM"),
            memory: Some(40 << 30),
            mig_enabled: Some(true),
            migs: vec![Mig {
                uuid: "MIG-0f4b1c3a-7e1a-5d2c-8a55-6f6d3a9c0e01".to_owned(),
                profile: "1g.5gb".to_owned(),
                shape: small,
                placement: Placement::new(2, 1),
                gpu_instance: 9,
                compute_instance: 0,
            }],
            foreign: Vec::new(),
            profiles: vec![
                MigProfile {
                    name: "1g.5gb".to_owned(),
                    shape: small,
                    placements: (0..7).map(|start| Placement::new(start, 1)).collect(),
                },
                MigProfile {
                    name: "7g.40gb".to_owned(),
                    shape: large,
                    placements: vec![Placement::new(0, 8)],
                },
            ],
        }
    }

    /// An H100 on the same node, not partitioned.
    pub(crate) fn h100() -> Gpu {
        Gpu {
            index: 1,
            minor: 1,
            uuid: "GPU-9a2b7c11-52ef-43cf-8d01-7be0bb1fd3aa".to_owned(),
            product_name: "NVIDIA H100 80GB HBM3".to_owned(),
            architecture: Architecture(9),
            cuda_compute_capability: (9, 0),
            memory: Some(80 << 30),
            mig_enabled: Some(false),
            migs: Vec::new(),
            ..a100()
        }
    }
}
