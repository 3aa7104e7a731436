//! Making and destroying instances.

use super::{ComputeInstance, GpuHardware, GpuInstance};
use crate::mig::{ComputeProfile, Profile};
use crate::{Gpu, MigInstance};

/// Why hardware does not do what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no such profile, placement or instance")]
    Invalid,
    #[error("the GPU has no MIG, or it is off")]
    NotSupported,
    #[error("no room is left")]
    NoRoom,
    #[error("it is in use")]
    InUse,
    #[error("it waits for a reset")]
    ResetRequired,
}

impl GpuHardware {
    /// As the machine says that the GPU was before any call, or what is wrong with that.
    pub(crate) fn beginning(gpu: &Gpu) -> Result<Self, String> {
        if gpu.mig && !gpu.model.has_mig() {
            return Err("MIG is on, and the model has none".to_owned());
        }
        let mut hardware = Self { mig: gpu.mig, ..Self::default() };
        for wanted in &gpu.instances {
            hardware.begin_instance(gpu, wanted).map_err(|refusal| {
                format!("instance {} at {} cannot be: {refusal}", wanted.profile, wanted.start)
            })?;
        }
        Ok(hardware)
    }

    fn begin_instance(&mut self, gpu: &Gpu, wanted: &MigInstance) -> Result<(), Refusal> {
        let profiles = gpu.profiles();
        let profile = profiles.iter().find(|profile| profile.name == wanted.profile);
        let profile = profile.ok_or(Refusal::Invalid)?;
        let id = self.create(gpu, profile.id, Some((wanted.start, profile.size)))?;
        match profile.compute_profiles().last() {
            Some(whole) if wanted.compute => self.create_compute(gpu, id, whole.id, None).map(drop),
            _ => Ok(()),
        }
    }

    /// Makes a GPU instance, at a place (first memory slice and size) or at the first that is free. Tells its number.
    pub(crate) fn create(
        &mut self,
        gpu: &Gpu,
        profile: u32,
        place: Option<(u32, u32)>,
    ) -> Result<u32, Refusal> {
        if !self.mig {
            return Err(Refusal::NotSupported);
        }
        let profile = gpu.profile(profile).ok_or(Refusal::Invalid)?;
        let places = profile.starts.iter().map(|start| (*start, profile.size));
        let mut wanted = places.filter(|possible| place.is_none_or(|place| place == *possible)).peekable();
        if wanted.peek().is_none() {
            return Err(Refusal::Invalid);
        }
        let (start, size) = wanted.find(|place| self.is_free(&profile, *place)).ok_or(Refusal::NoRoom)?;
        let taken = |id: &u32| self.instances.iter().any(|instance| instance.id == *id);
        let id = numbers(profile.slices).find(|id| !taken(id)).ok_or(Refusal::NoRoom)?;
        self.made += 1;
        self.instances.push(GpuInstance {
            id,
            profile: profile.id,
            name: profile.name.to_owned(),
            start,
            size,
            compute_instances: Vec::new(),
            made: self.made,
        });
        Ok(id)
    }

    /// How many more GPU instances of a profile could be made now.
    pub(crate) fn remaining(&self, profile: &Profile) -> usize {
        let mut trial = self.clone();
        let mut count = 0;
        for start in profile.starts {
            if trial.is_free(profile, (*start, profile.size)) {
                count += 1;
                trial.instances.push(GpuInstance {
                    id: u32::MAX,
                    profile: profile.id,
                    name: String::new(),
                    start: *start,
                    size: profile.size,
                    compute_instances: Vec::new(),
                    made: 0,
                });
            }
        }
        count
    }

    /// Destroys a GPU instance without compute instances.
    pub(crate) fn destroy(&mut self, id: u32) -> Result<(), Refusal> {
        if !self.instance(id)?.compute_instances.is_empty() {
            return Err(Refusal::InUse);
        }
        self.instances.retain(|instance| instance.id != id);
        Ok(())
    }

    /// Makes a compute instance on a GPU instance, at a place (first slice and how many) or the first that is free. Tells
    /// its number.
    pub(crate) fn create_compute(
        &mut self,
        gpu: &Gpu,
        instance: u32,
        profile: u32,
        place: Option<(u32, u32)>,
    ) -> Result<u32, Refusal> {
        let made = self.made + 1;
        let shapes = self.compute_profiles(gpu, instance)?;
        let shape = shapes.iter().find(|shape| shape.id == profile).ok_or(Refusal::Invalid)?;
        let on = self.instances.iter_mut().find(|on| on.id == instance).ok_or(Refusal::Invalid)?;
        let places = shape.starts.iter().map(|start| (*start, shape.slices));
        let mut wanted = places.filter(|possible| place.is_none_or(|place| place == *possible)).peekable();
        if wanted.peek().is_none() {
            return Err(Refusal::Invalid);
        }
        let is_free = |place: &(u32, u32)| {
            on.compute_instances.iter().all(|other| apart(*place, (other.start, other.slices)))
        };
        let (start, slices) = wanted.find(is_free).ok_or(Refusal::NoRoom)?;
        let taken = |id: &u32| on.compute_instances.iter().any(|other| other.id == *id);
        let id = (0..8).find(|id| !taken(id)).ok_or(Refusal::NoRoom)?;
        on.compute_instances.push(ComputeInstance {
            id,
            profile,
            start,
            slices,
            uuid: mig_uuid(gpu.number, instance, id),
            made,
        });
        self.made = made;
        Ok(id)
    }

    /// How many more compute instances of a shape could be made now.
    pub(crate) fn remaining_compute(&self, instance: u32, shape: &ComputeProfile) -> Result<usize, Refusal> {
        let taken = &self.instance(instance)?.compute_instances;
        let is_free = |start: &&u32| {
            taken.iter().all(|other| apart((**start, shape.slices), (other.start, other.slices)))
        };
        Ok(shape.starts.iter().filter(is_free).count())
    }

    /// Destroys a compute instance without processes.
    pub(crate) fn destroy_compute(&mut self, gpu: &Gpu, instance: u32, id: u32) -> Result<(), Refusal> {
        let ids = (instance, id);
        if gpu.processes.iter().any(|process| (process.gpu_instance, process.compute_instance) == ids) {
            return Err(Refusal::InUse);
        }
        let on = self.instances.iter_mut().find(|on| on.id == instance).ok_or(Refusal::Invalid)?;
        let before = on.compute_instances.len();
        on.compute_instances.retain(|compute| compute.id != id);
        if on.compute_instances.len() == before { Err(Refusal::Invalid) } else { Ok(()) }
    }

    /// Turns MIG on or off, at once or pending; why it is only pending. Setting the mode that counts now takes a pending one
    /// back.
    pub(crate) fn set_mig(&mut self, gpu: &Gpu, on: bool) -> Result<Option<Refusal>, Refusal> {
        if !gpu.model.has_mig() {
            return Err(Refusal::NotSupported);
        }
        self.pending_mig = None;
        if on == self.mig {
            return Ok(None);
        }
        if !self.instances.is_empty() {
            return Err(Refusal::InUse);
        }
        let why = if gpu.mig_needs_reset {
            Refusal::ResetRequired
        } else if gpu.processes.is_empty() {
            self.activate_mig(gpu, on);
            return Ok(None);
        } else {
            Refusal::InUse
        };
        self.pending_mig = Some(on);
        Ok(Some(why))
    }

    /// "May unbind or reset the device to activate the requested mode. Thus, the attributes associated with the device, such
    /// as minor number, might change" (`nvml.h`, `nvmlDeviceSetMigMode`). Compute mode is the default then.
    fn activate_mig(&mut self, gpu: &Gpu, on: bool) {
        self.mig = on;
        self.compute_mode = 0;
        self.minor = gpu.minor_after_mig.or(self.minor);
    }

    /// "On MIG-enabled GPUs, compute mode would be set to DEFAULT and changing it is not supported" (`nvml.h`,
    /// `nvmlDeviceSetComputeMode`).
    pub(crate) fn set_compute_mode(&mut self, mode: u32) -> Result<(), Refusal> {
        if self.mig {
            return Err(Refusal::NotSupported);
        }
        self.compute_mode = mode;
        Ok(())
    }

    /// The N of its `/dev/nvidiaN` now.
    pub(crate) fn minor(&self, gpu: &Gpu) -> u32 {
        self.minor.unwrap_or_else(|| gpu.minor())
    }

    pub(crate) fn instance(&self, id: u32) -> Result<&GpuInstance, Refusal> {
        self.instances.iter().find(|instance| instance.id == id).ok_or(Refusal::Invalid)
    }

    pub(crate) fn compute_profiles(&self, gpu: &Gpu, instance: u32) -> Result<Vec<ComputeProfile>, Refusal> {
        let profile = self.instance(instance)?.profile;
        Ok(gpu.profile(profile).ok_or(Refusal::Invalid)?.compute_profiles())
    }

    fn is_free(&self, profile: &Profile, place: (u32, u32)) -> bool {
        let same = self.instances.iter().filter(|other| other.profile == profile.id).count();
        same < profile.most as usize
            && self.instances.iter().all(|other| apart(place, (other.start, other.size)))
    }
}

/// Whether two ranges of slices, each with its first one and its length, share none.
fn apart(one: (u32, u32), other: (u32, u32)) -> bool {
    one.0 + one.1 <= other.0 || other.0 + other.1 <= one.0
}

/// The numbers that GPU instances of so many slices get: each size has its own, so a number is not a place.
fn numbers(slices: u32) -> std::ops::RangeInclusive<u32> {
    match slices {
        7.. => 0..=0,
        3..=6 => 1..=2,
        2 => 3..=6,
        0..=1 => 7..=14,
    }
}

fn mig_uuid(gpu: u32, instance: u32, compute: u32) -> String {
    format!("MIG-{gpu:08x}-fa4e-4000-8000-{instance:06x}{compute:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn empty() -> (Gpu, GpuHardware) {
        let gpu = Gpu::new(Model::A100Sxm4_40Gb, 0);
        (gpu, GpuHardware { mig: true, ..GpuHardware::default() })
    }

    #[test]
    fn instances_that_overlap_are_refused_and_those_beside_are_not() {
        let (gpu, mut hardware) = empty();
        assert_eq!(hardware.create(&gpu, 9, Some((4, 4))), Ok(1), "3g at 4");
        assert_eq!(hardware.create(&gpu, 9, Some((4, 4))), Err(Refusal::NoRoom), "there already");
        assert_eq!(hardware.create(&gpu, 14, Some((4, 2))), Err(Refusal::NoRoom), "2g within it");
        assert_eq!(hardware.create(&gpu, 0, None), Err(Refusal::NoRoom), "7g around it");
        assert_eq!(hardware.create(&gpu, 14, Some((2, 2))), Ok(3), "2g beside it");
        assert_eq!(hardware.create(&gpu, 19, None), Ok(7), "1g at 0");
        assert_eq!(hardware.create(&gpu, 20, None), Ok(8), "1g+me at 1");
        assert_eq!(
            hardware.create(&gpu, 20, None),
            Err(Refusal::NoRoom),
            "only one can have the media engines"
        );
    }

    #[test]
    fn a_place_or_profile_that_does_not_exist_is_invalid() {
        let (gpu, mut hardware) = empty();
        assert_eq!(hardware.create(&gpu, 9, Some((1, 4))), Err(Refusal::Invalid));
        assert_eq!(hardware.create(&gpu, 9, Some((0, 3))), Err(Refusal::Invalid));
        assert_eq!(hardware.create(&gpu, 77, None), Err(Refusal::Invalid));
        assert_eq!(hardware.create_compute(&gpu, 1, 0, None), Err(Refusal::Invalid));
        assert_eq!(hardware.destroy(1), Err(Refusal::Invalid));
        assert_eq!(hardware.destroy_compute(&gpu, 1, 0), Err(Refusal::Invalid));
    }

    #[test]
    fn a_gpu_instance_goes_only_after_its_compute_instances() {
        let (gpu, mut hardware) = empty();
        let instance = hardware.create(&gpu, 9, None).expect("room");
        let compute = hardware.create_compute(&gpu, instance, 2, None).expect("room");
        assert_eq!(hardware.destroy(instance), Err(Refusal::InUse));
        assert_eq!(hardware.set_mig(&gpu, false), Err(Refusal::InUse));
        assert_eq!(hardware.destroy_compute(&gpu, instance, compute), Ok(()));
        assert_eq!(hardware.destroy(instance), Ok(()));
        assert_eq!(hardware.set_mig(&gpu, false), Ok(None));
        assert_eq!(hardware.create(&gpu, 9, None), Err(Refusal::NotSupported));
    }

    #[test]
    fn compute_instances_share_a_gpu_instance_without_overlap() {
        let (gpu, mut hardware) = empty();
        let instance = hardware.create(&gpu, 5, None).expect("4g");
        assert_eq!(hardware.create_compute(&gpu, instance, 1, Some((2, 2))), Ok(0), "2c at 2");
        assert_eq!(hardware.create_compute(&gpu, instance, 3, None), Err(Refusal::NoRoom), "4c");
        assert_eq!(hardware.create_compute(&gpu, instance, 0, Some((3, 1))), Err(Refusal::NoRoom));
        assert_eq!(hardware.create_compute(&gpu, instance, 0, None), Ok(1), "1c at 0");
        assert_eq!(hardware.create_compute(&gpu, instance, 2, None), Err(Refusal::Invalid), "no 3c on 4g");
        let one = gpu.profile(5).expect("4g").compute_profiles()[0];
        assert_eq!(hardware.remaining_compute(instance, &one), Ok(1));
    }

    #[test]
    fn what_remains_is_what_can_be_made() {
        let (gpu, mut hardware) = empty();
        let remaining = |hardware: &GpuHardware, id| hardware.remaining(&gpu.profile(id).expect("a profile"));
        assert_eq!([19, 20, 15, 14, 9, 5, 0].map(|id| remaining(&hardware, id)), [7, 1, 4, 3, 2, 1, 1]);
        hardware.create(&gpu, 14, Some((0, 2))).expect("room");
        assert_eq!([19, 20, 15, 14, 9, 5, 0].map(|id| remaining(&hardware, id)), [5, 1, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn one_with_the_number_of_another_that_went_is_told_from_it() {
        let (gpu, mut hardware) = empty();
        let first = hardware.create(&gpu, 19, None).expect("room");
        let made = hardware.instance(first).expect("there").made;
        hardware.destroy(first).expect("unused");
        assert_eq!(hardware.create(&gpu, 19, None), Ok(first));
        assert_ne!(hardware.instance(first).expect("there").made, made);
    }
}
