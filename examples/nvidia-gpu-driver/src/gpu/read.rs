//! Asks NVML and sysfs what GPUs there are.

use dra_kubeletplugin::resourceslice::sysfs::{NumaForm, PciAddress, Sysfs};
use nvidia_nvml::{AddressingMode, Device, GpuInstanceProfile, Library, NvmlError, Placement};

use super::{Architecture, Gpu, Mig, MigProfile, names::brand, profile_name};
use crate::{partition, state::Partition, sweep::DynamicMig};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) gpus: Vec<Gpu>,
    /// GPUs that do not answer, by their place in NVML's list. They do not keep the others from being offered.
    pub(crate) broken: Vec<(u32, NvmlError)>,
    /// What NVML says that GPUs take to be well again, by UUID: nothing is 0. It can tell since driver 570.
    pub(crate) recovery: Vec<(String, u32)>,
}

/// Reads all GPUs. Where partitions are made as claims ask for them, only those that no claim has are told of.
///
/// # Errors
/// NVML cannot even say how many there are, or of which version the driver is.
pub(crate) fn read(
    library: &Library,
    sysfs: &Sysfs,
    dynamic_mig: Option<&DynamicMig>,
) -> Result<Reading, NvmlError> {
    let system = System {
        driver_version: library.driver_version()?,
        cuda_driver_version: library.cuda_driver_version()?,
        sysfs,
        dynamic_mig,
    };
    let mut reading = Reading::default();
    for index in 0..library.device_count()? {
        let read = library.device(index).and_then(|device| {
            let gpu = system.gpu(index, &device)?;
            reading.recovery.extend(device.recovery_action().ok().map(|action| (gpu.uuid.clone(), action)));
            Ok(gpu)
        });
        match read {
            Ok(gpu) => reading.gpus.push(gpu),
            Err(error) => reading.broken.push((index, error)),
        }
    }
    Ok(reading)
}

/// What is the same for all GPUs.
struct System<'a> {
    driver_version: String,
    cuda_driver_version: (u32, u32),
    sysfs: &'a Sysfs,
    dynamic_mig: Option<&'a DynamicMig>,
}

impl System<'_> {
    fn gpu(&self, index: u32, device: &Device<'_>) -> Result<Gpu, NvmlError> {
        let pci = pci_address(&device.pci_bus_id()?);
        let memory = supported(device.memory_bytes())?;
        let mig_enabled = supported(device.is_partitioned())?;
        let profiles = match mig_enabled {
            Some(_) => profiles(device, memory.unwrap_or_default())?,
            None => Vec::new(),
        };
        let mut gpu = Gpu {
            index,
            minor: device.minor_number()?,
            uuid: device.uuid()?,
            product_name: device.name()?,
            brand: brand(device.brand()?),
            architecture: Architecture(device.architecture()?),
            cuda_compute_capability: device.cuda_compute_capability()?,
            driver_version: self.driver_version.clone(),
            cuda_driver_version: self.cuda_driver_version,
            place: pci.as_ref().map(|pci| self.sysfs.attributes(pci, NumaForm::Scalar)).unwrap_or_default(),
            pci,
            addressing_mode: supported(device.addressing_mode())?.map(|mode| match mode {
                AddressingMode::Hmm => "HMM",
                AddressingMode::Ats => "ATS",
                _ => "None",
            }),
            memory,
            mig_enabled,
            profiles,
            migs: Vec::new(),
            foreign: Vec::new(),
        };
        match (mig_enabled, self.dynamic_mig) {
            (Some(true), Some(dynamic)) => gpu.foreign = foreign(device, &gpu, dynamic)?,
            (Some(true), None) => gpu.migs = migs(device, &gpu)?,
            _ => {}
        }
        Ok(gpu)
    }
}

/// "Not supported" is an answer.
fn supported<T>(outcome: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_supported() => Ok(None),
        Err(error) => Err(error),
    }
}

/// NVML writes domains with eight digits, the kernel with four where they are enough.
fn pci_address(bus_id: &str) -> Option<PciAddress> {
    let address = match bus_id.strip_prefix("0000") {
        Some(short) if short.find(':') == Some(4) => short,
        _ => bus_id,
    };
    PciAddress::new(address).ok()
}

fn profiles(device: &Device<'_>, gpu_bytes: u64) -> Result<Vec<MigProfile>, NvmlError> {
    let mut found = Vec::new();
    for shape in device.gpu_instance_profiles()? {
        let name = profile_name(&shape, shape.slices, gpu_bytes);
        // A profile that can be placed nowhere is none, and hides neither the others nor the GPU.
        match device.possible_placements(shape.id) {
            Ok(placements) => found.push(MigProfile { name, shape, placements }),
            Err(error) if error.is_not_supported() || error.is_invalid_argument() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Instances that no claim has.
fn foreign(
    device: &Device<'_>,
    gpu: &Gpu,
    dynamic_mig: &DynamicMig,
) -> Result<Vec<(GpuInstanceProfile, Placement)>, NvmlError> {
    let mut found = Vec::new();
    for profile in &gpu.profiles {
        for instance in partition::instances(device, profile.shape.id)? {
            let placement = instance.info()?.placement;
            if !dynamic_mig.is_claimed(&Partition::new(gpu, profile, placement)) {
                found.push((profile.shape, placement));
            }
        }
    }
    Ok(found)
}

fn migs(device: &Device<'_>, gpu: &Gpu) -> Result<Vec<Mig>, NvmlError> {
    let mut found = Vec::new();
    for index in 0..device.max_mig_devices()? {
        let mig = match device.mig_device(index) {
            Ok(mig) => mig,
            Err(error) if error.is_not_found() || error.is_invalid_argument() => continue,
            Err(error) => return Err(error),
        };
        let (gpu_instance, compute_instance) = (mig.gpu_instance_id()?, mig.compute_instance_id()?);
        let instance = device.gpu_instance(gpu_instance)?;
        let info = instance.info()?;
        let Some(profile) = gpu.profiles.iter().find(|profile| profile.shape.id == info.profile_id) else {
            tracing::warn!(gpu_instance, profile = info.profile_id, "a MIG device of an unknown profile");
            continue;
        };
        let mut slices = profile.shape.slices;
        for compute in instance.compute_instances()? {
            if compute.id()? == compute_instance {
                slices = compute.slices();
            }
        }
        found.push(Mig {
            uuid: mig.uuid()?,
            profile: profile_name(&profile.shape, slices, gpu.memory.unwrap_or_default()),
            shape: profile.shape,
            placement: info.placement,
            gpu_instance,
            compute_instance,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_those_of_the_kernel() {
        let table = [
            ("00000000:65:00.0", Some("0000:65:00.0")),
            ("00010000:E1:00.0", Some("00010000:e1:00.0")),
            ("0000:65:00.0", Some("0000:65:00.0")),
            ("", None),
            ("nonsense", None),
        ];
        for (nvml, kernel) in table {
            assert_eq!(pci_address(nvml).as_ref().map(PciAddress::as_str), kernel, "{nvml}");
        }
    }
}
