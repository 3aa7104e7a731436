//! What a node offers, made of what its GPUs are.

use std::{collections::BTreeMap, sync::Arc};

use dra_kubeletplugin::{
    Device, DeviceName, Pool,
    resourceslice::{CounterSet, InvalidName, sysfs::PciAddress},
};
use nvidia_nvml::Placement;

use crate::{
    device,
    gpu::{Gpu, Mig, MigProfile},
    vfio::VfioGpu,
};

/// The devices of a node, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    offers: BTreeMap<DeviceName, Offer>,
    devices: Vec<Device>,
    counters: Vec<CounterSet>,
}

/// What stands behind a device.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    /// A whole GPU.
    Gpu(Arc<Gpu>),
    /// A partition that is there.
    Mig(Arc<Gpu>, Mig),
    /// A partition that is made for a claim.
    NewMig(Arc<Gpu>, MigProfile, Placement),
    /// A GPU for a virtual machine.
    Vfio(VfioGpu),
}

impl Offer {
    /// The GPU that it is, or is a part of; none if NVML does not see it.
    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match self {
            Self::Gpu(gpu) | Self::Mig(gpu, _) | Self::NewMig(gpu, ..) => Some(gpu),
            Self::Vfio(_) => None,
        }
    }

    fn pci(&self) -> Option<&PciAddress> {
        match self {
            Self::Gpu(gpu) | Self::Mig(gpu, _) | Self::NewMig(gpu, ..) => gpu.pci.as_ref(),
            Self::Vfio(gpu) => Some(&gpu.pci),
        }
    }

    /// What tells the GPU from others.
    fn identity(&self) -> &str {
        match self {
            Self::Gpu(gpu) | Self::Mig(gpu, _) | Self::NewMig(gpu, ..) => &gpu.uuid,
            Self::Vfio(gpu) => gpu.pci.as_str(),
        }
    }

    /// Memory slices that it takes; none means all.
    fn placement(&self) -> Option<Placement> {
        match self {
            Self::Gpu(_) | Self::Vfio(_) => None,
            Self::Mig(_, mig) => Some(mig.placement),
            Self::NewMig(_, _, placement) => Some(*placement),
        }
    }

    /// Whether both can be had at once.
    fn conflicts(&self, other: &Self) -> bool {
        let same_place = self.pci().is_some_and(|pci| other.pci() == Some(pci));
        if self.identity() != other.identity() && !same_place {
            return false;
        }
        match (self, other) {
            // Compute instances of one GPU instance are at the same place.
            (Self::Mig(..), Self::Mig(..)) => false,
            _ => match (self.placement(), other.placement()) {
                (Some(one), Some(other)) => one.overlaps(other),
                _ => true,
            },
        }
    }
}

impl Inventory {
    /// Makes devices of GPUs. With `make_migs` partitions are made as claims ask for them, else those that are there are
    /// offered.
    ///
    /// # Errors
    /// None in practice: all names are made to be legal.
    pub(crate) fn of(gpus: &[Gpu], vfio: &[VfioGpu], make_migs: bool) -> Result<Self, InvalidName> {
        let mut inventory = Self::default();
        for gpu in vfio {
            inventory.offer(gpu.device()?, Offer::Vfio(gpu.clone()));
        }
        for gpu in gpus {
            inventory.add(&Arc::new(gpu.clone()), make_migs)?;
        }
        Ok(inventory)
    }

    fn add(&mut self, gpu: &Arc<Gpu>, make_migs: bool) -> Result<(), InvalidName> {
        let partitioned = gpu.mig_enabled == Some(true);
        let at_once = gpu.architecture.switches_mig_mode_at_once();
        // Where a change of the mode needs a reset, a GPU is what it is.
        let can_be_partitioned = !gpu.profiles.is_empty() && (partitioned || at_once);
        let shared = make_migs && can_be_partitioned;
        if !partitioned || (shared && at_once && gpu.foreign.is_empty()) {
            self.offer(device::whole(gpu, shared)?, Offer::Gpu(Arc::clone(gpu)));
        }
        if shared {
            self.counters.push(device::counters(gpu)?);
            for profile in &gpu.profiles {
                for placement in profile.placements.iter().filter(|place| !gpu.is_taken(**place)) {
                    let device = device::possible_mig(gpu, profile, *placement)?;
                    self.offer(device, Offer::NewMig(Arc::clone(gpu), profile.clone(), *placement));
                }
            }
        } else if partitioned {
            for mig in &gpu.migs {
                self.offer(device::existing_mig(gpu, mig)?, Offer::Mig(Arc::clone(gpu), mig.clone()));
            }
        }
        Ok(())
    }

    fn offer(&mut self, device: Device, offer: Offer) {
        let name = device.name().clone();
        if let Some(before) = self.offers.get(&name) {
            let (first, second) = (before.identity(), offer.identity());
            tracing::error!(device = %name, first, second, "two devices of one name: the second is left out");
            return;
        }
        self.offers.insert(name, offer);
        self.devices.push(device);
    }

    /// What stands behind the device of this name.
    pub(crate) fn get(&self, name: &DeviceName) -> Option<&Offer> {
        self.offers.get(name)
    }

    /// All devices with what stands behind them.
    pub(crate) fn offers(&self) -> impl Iterator<Item = (&DeviceName, &Offer)> {
        self.offers.iter()
    }

    /// The pool to publish.
    pub(crate) fn pool(&self) -> Pool {
        let pool = Pool::new(self.devices.iter().cloned());
        if self.counters.is_empty() { pool } else { pool.counter_sets(self.counters.iter().cloned()) }
    }

    /// Whether devices of these names are parts of the same silicon.
    pub(crate) fn conflict(&self, one: &DeviceName, other: &DeviceName) -> bool {
        match (self.get(one), self.get(other)) {
            (Some(one), Some(other)) => one.conflicts(other),
            // One of them is gone. The names still tell.
            _ => names_conflict(one.as_str(), other.as_str()),
        }
    }
}

/// A whole GPU and its partition.
fn names_conflict(one: &str, other: &str) -> bool {
    let part_of = |part: &str, whole: &str| {
        !whole.contains("-mig-") && part.strip_prefix(whole).is_some_and(|rest| rest.starts_with("-mig-"))
    };
    part_of(one, other) || part_of(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::{a100, h100};

    fn names(inventory: &Inventory) -> Vec<&str> {
        inventory.offers().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_gpu_is_offered_whole_or_as_the_partitions_that_it_has() {
        let inventory = Inventory::of(&[a100(), h100()], &[], false).unwrap();
        assert_eq!(names(&inventory), ["gpu-0-mig-1g5gb-19-2", "gpu-1"]);
    }

    #[test]
    fn partitions_are_offered_where_they_can_be_made_without_a_reset() {
        let mut unpartitioned_a100 = a100();
        unpartitioned_a100.mig_enabled = Some(false);
        let inventory = Inventory::of(&[unpartitioned_a100], &[], true).unwrap();
        assert_eq!(names(&inventory), ["gpu-0"]);

        let inventory = Inventory::of(&[a100()], &[], true).unwrap();
        assert_eq!(inventory.offers().count(), 8);
        assert!(!names(&inventory).contains(&"gpu-0"), "its mode cannot be turned off at once");

        let inventory = Inventory::of(&[h100()], &[], true).unwrap();
        assert_eq!(inventory.offers().count(), 9);
        assert!(names(&inventory).contains(&"gpu-1"));
        assert_eq!(inventory.counters.len(), 1);
    }

    #[test]
    fn nothing_is_offered_over_a_partition_that_somebody_else_has_made() {
        let mut gpu = h100();
        gpu.mig_enabled = Some(true);
        gpu.foreign = vec![(gpu.profiles[0].shape, Placement::new(2, 1))];
        let inventory = Inventory::of(&[gpu], &[], true).unwrap();
        let left = [0, 1, 3, 4, 5, 6].map(|start| format!("gpu-1-mig-1g5gb-19-{start}"));
        assert_eq!(names(&inventory), left);
    }

    #[test]
    fn what_overlaps_conflicts() {
        let inventory = Inventory::of(&[h100()], &[], true).unwrap();
        let conflict =
            |one: &str, other: &str| inventory.conflict(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(conflict("gpu-1", "gpu-1-mig-1g5gb-19-2"));
        assert!(conflict("gpu-1-mig-7g40gb-0-0", "gpu-1-mig-1g5gb-19-2"));
        assert!(!conflict("gpu-1-mig-1g5gb-19-3", "gpu-1-mig-1g5gb-19-2"));
        assert!(conflict("gpu-7", "gpu-7-mig-1g5gb-19-2"));
        assert!(!conflict("gpu-7", "gpu-77-mig-1g5gb-19-2"));
        assert!(!conflict("gpu-7", "gpu-1"));
    }

    #[test]
    fn two_gpus_of_one_minor_number_do_not_replace_each_other() {
        let mut twin = h100();
        twin.minor = 0;
        let mut first = a100();
        first.mig_enabled = Some(false);
        let inventory = Inventory::of(&[first.clone(), twin], &[], false).unwrap();
        assert_eq!(inventory.get(&"gpu-0".parse().unwrap()).unwrap().identity(), first.uuid);
        assert_eq!(inventory.pool().devices().count(), 1);
    }
}
