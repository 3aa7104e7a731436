//! Devices as they are published: names, attributes, capacities and counters of the Go driver, so that selectors written
//! for it go on working. `docs/nvidia-attributes.md` lists them.

use dra_kubeletplugin::{
    AttributeValue, Device, Quantity,
    resourceslice::{CounterConsumption, CounterSet, Feature, IfDropped, InvalidName},
};
use nvidia_nvml::{GpuInstanceProfile, Placement};

use crate::gpu::{Gpu, Mig, MigProfile, mig_device_name};

const MIB: u64 = 1 << 20;

/// A whole GPU. If it is shared by counters with its partitions, it takes all of them.
///
/// # Errors
/// None in practice: all names are fixed.
pub(crate) fn whole(gpu: &Gpu, with_counters: bool) -> Result<Device, InvalidName> {
    let mut device = Device::named(&format!("gpu-{}", gpu.minor))?
        .try_attribute("type", "gpu")?
        .try_attribute("uuid", AttributeValue::cut(&gpu.uuid))?;
    device = inherited(device, gpu)?;
    if with_counters {
        for (capacity, amount) in most(gpu) {
            device = device.try_capacity(capacity, Quantity::binary(amount))?;
        }
        let all = Placement::new(0, gpu.memory_slices());
        device = device.consumes(consumption(gpu, &most(gpu), all)?);
        // Where there are no counters, there are whole GPUs only.
        device = device.if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
    } else if let Some(bytes) = gpu.memory {
        device = device.try_capacity("memory", Quantity::binary(bytes))?;
    }
    Ok(device)
}

/// A partition that is there.
///
/// # Errors
/// None in practice: all names are made to be legal.
pub(crate) fn existing_mig(gpu: &Gpu, mig: &Mig) -> Result<Device, InvalidName> {
    let device = partition(gpu, &existing_mig_name(gpu, mig), &mig.profile, &mig.shape)?;
    let mut device = device.try_attribute("uuid", AttributeValue::cut(&mig.uuid))?;
    for slice in slices(mig.placement) {
        device = device.try_capacity(&format!("memorySlice{slice}"), Quantity::binary(1))?;
    }
    Ok(device)
}

/// A partition that can be made.
///
/// # Errors
/// None in practice: all names are made to be legal.
pub(crate) fn possible_mig(
    gpu: &Gpu,
    profile: &MigProfile,
    placement: Placement,
) -> Result<Device, InvalidName> {
    let name = mig_device_name(gpu.minor, &profile.name, profile.shape.id, placement.start);
    let device = partition(gpu, &name, &profile.name, &profile.shape)?;
    Ok(device.consumes(consumption(gpu, &capacities(&profile.shape), placement)?))
}

/// What a GPU has for its partitions to share, beside those that somebody else has made.
///
/// # Errors
/// None in practice: all names are fixed.
pub(crate) fn counters(gpu: &Gpu) -> Result<CounterSet, InvalidName> {
    let mut set = CounterSet::new(&counter_set_name(gpu))?;
    let taken: Vec<_> = gpu.foreign.iter().map(|(shape, _)| capacities(shape)).collect();
    for (place, (capacity, amount)) in most(gpu).into_iter().enumerate() {
        let left = taken.iter().fold(amount, |left, taken| left.saturating_sub(taken[place].1));
        set = set.counter(&kebab(capacity), Quantity::binary(left))?;
    }
    for slice in 0..gpu.memory_slices() {
        let is_free = !gpu.is_taken(Placement::new(slice, 1));
        set = set.counter(&format!("memory-slice-{slice}"), Quantity::binary(is_free.into()))?;
    }
    Ok(set)
}

/// The name of a partition that is there. Those that share a GPU instance with another one are told apart.
fn existing_mig_name(gpu: &Gpu, mig: &Mig) -> String {
    let name = mig_device_name(gpu.minor, &mig.profile, mig.shape.id, mig.placement.start);
    match mig.compute_instance {
        0 => name,
        other => format!("{name}-c{other}"),
    }
}

fn partition(
    gpu: &Gpu,
    name: &str,
    profile: &str,
    shape: &GpuInstanceProfile,
) -> Result<Device, InvalidName> {
    let mut device = Device::named(name)?
        .try_attribute("type", "mig")?
        .try_attribute("parentUUID", AttributeValue::cut(&gpu.uuid))?
        .try_attribute("profile", AttributeValue::cut(profile))?;
    for (capacity, amount) in capacities(shape) {
        device = device.try_capacity(capacity, Quantity::binary(amount))?;
    }
    inherited(device, gpu)
}

/// What a partition has of its GPU.
fn inherited(device: Device, gpu: &Gpu) -> Result<Device, InvalidName> {
    let (major, minor) = gpu.cuda_compute_capability;
    let (cuda_major, cuda_minor) = gpu.cuda_driver_version;
    let mut device = device
        .try_attribute("productName", AttributeValue::cut(&gpu.product_name))?
        .try_attribute("brand", gpu.brand)?
        .try_attribute("architecture", gpu.architecture.name())?
        .try_attribute(
            "cudaDriverVersion",
            AttributeValue::version(format!("{cuda_major}.{cuda_minor}.0")),
        )?;
    // A version that is none is left out, and the GPU stays.
    if major >= 0 && minor >= 0 {
        let capability = AttributeValue::version(format!("{major}.{minor}.0"));
        device = device.try_attribute("cudaComputeCapability", capability)?;
    }
    if let Some(mode) = gpu.addressing_mode {
        device = device.try_attribute("addressingMode", mode)?;
    }
    if let Some(version) = AttributeValue::version_from(&gpu.driver_version) {
        device = device.try_attribute("driverVersion", version)?;
    }
    Ok(gpu.place.iter().fold(device, |device, (name, value)| device.attribute(name.clone(), value.clone())))
}

/// Most that any partition has, of each: the GPU itself as its partitions see it.
fn most(gpu: &Gpu) -> Vec<(&'static str, u64)> {
    let mut most: Vec<(&'static str, u64)> = Vec::new();
    for profile in &gpu.profiles {
        let capacities = capacities(&profile.shape);
        if most.is_empty() {
            most = capacities.to_vec();
        }
        for ((_, most), (_, amount)) in most.iter_mut().zip(capacities) {
            *most = (*most).max(amount);
        }
    }
    most
}

fn capacities(shape: &GpuInstanceProfile) -> [(&'static str, u64); 7] {
    [
        ("multiprocessors", shape.multiprocessors.into()),
        ("copyEngines", shape.copy_engines.into()),
        ("decoders", shape.decoders.into()),
        ("encoders", shape.encoders.into()),
        ("jpegEngines", shape.jpeg_engines.into()),
        ("ofaEngines", shape.ofa_engines.into()),
        ("memory", shape.memory_mib.saturating_mul(MIB)),
    ]
}

fn consumption(
    gpu: &Gpu,
    amounts: &[(&str, u64)],
    placement: Placement,
) -> Result<CounterConsumption, InvalidName> {
    let mut consumption = CounterConsumption::new(&counter_set_name(gpu))?;
    for (capacity, amount) in amounts {
        consumption = consumption.counter(&kebab(capacity), Quantity::binary(*amount))?;
    }
    for slice in slices(placement) {
        consumption = consumption.counter(&format!("memory-slice-{slice}"), Quantity::binary(1))?;
    }
    Ok(consumption)
}

fn slices(placement: Placement) -> std::ops::Range<u32> {
    placement.start..placement.start.saturating_add(placement.size)
}

fn counter_set_name(gpu: &Gpu) -> String {
    format!("gpu-{}-counter-set", gpu.minor)
}

/// Counters have no capital letters.
fn kebab(capacity: &str) -> String {
    let mut name = String::new();
    for c in capacity.chars() {
        if c.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests;
