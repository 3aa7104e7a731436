//! Work on GPUs that may change them: finding one that is still what was published, and making and removing partitions.

use anyhow::{Context as _, bail, ensure};
use nvidia_nvml::{Device, GpuInstance, Library, NvmlError, Placement};

use crate::{
    gpu::{Gpu, Mig, MigProfile},
    hardware::HardwareError,
    made::Made,
    state::Partition,
};

/// The numbers by which the kernel knows a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instances {
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

/// The GPU, if it is still what was published.
///
/// # Errors
/// It is gone, or has another minor number than its name says: a container would get another GPU.
pub(crate) fn find<'l>(library: &'l Library, gpu: &Gpu) -> anyhow::Result<Device<'l>> {
    let uuid = &gpu.uuid;
    // By UUID takes seconds on a node with many GPUs.
    let expected =
        library.device(gpu.index).ok().filter(|device| device.uuid().is_ok_and(|found| found == *uuid));
    let device = match expected {
        Some(device) => device,
        None => library.device_by_uuid(uuid).with_context(|| format!("GPU {uuid} is gone"))?,
    };
    let minor = device.minor_number().with_context(|| format!("GPU {uuid}"))?;
    ensure!(
        minor == gpu.minor,
        "GPU {uuid} was published as gpu-{} and is /dev/nvidia{minor} now; its device will be published anew",
        gpu.minor
    );
    Ok(device)
}

/// Checks that a GPU is whole.
///
/// # Errors
/// It is partitioned.
pub(crate) fn check_whole(library: &Library, gpu: &Gpu) -> anyhow::Result<()> {
    let partitioned = is_partitioned(&find(library, gpu)?)?;
    ensure!(
        !partitioned,
        "MIG mode of gpu-{} was turned on behind this driver's back; turn it off by `nvidia-smi -mig 0`, or use its MIG \
         devices",
        gpu.minor
    );
    Ok(())
}

/// Makes sure that a GPU is whole.
///
/// # Errors
/// It is partitioned, or a partition is in its way.
pub(crate) fn make_whole(library: &Library, gpu: &Gpu) -> anyhow::Result<()> {
    let device = find(library, gpu)?;
    if gpu.architecture.switches_mig_mode_at_once() && is_partitioned(&device)? {
        return set_mode(library, gpu, false).map(drop);
    }
    check_whole(library, gpu)
}

/// Makes sure that a partition is what was published.
///
/// # Errors
/// It is gone, or has other numbers now.
pub(crate) fn check_existing(library: &Library, gpu: &Gpu, mig: &Mig) -> anyhow::Result<Instances> {
    find(library, gpu)?;
    let gone = || format!("MIG device {} is gone: was it removed by `nvidia-smi`?", mig.uuid);
    let device = library.device_by_uuid(&mig.uuid).with_context(gone)?;
    let found = Instances {
        gpu_instance: device.gpu_instance_id().with_context(gone)?,
        compute_instance: device.compute_instance_id().with_context(gone)?,
    };
    let published = Instances { gpu_instance: mig.gpu_instance, compute_instance: mig.compute_instance };
    ensure!(found == published, "MIG device {} is {found:?} now, not {published:?}", mig.uuid);
    Ok(found)
}

/// Makes a partition, in place of what a crash has left of it. One that is there whole is taken: the claim had it before.
///
/// # Errors
/// Something else is there, or MIG mode cannot be turned on.
pub(crate) fn make(
    library: &Library,
    gpu: &Gpu,
    profile: &MigProfile,
    placement: Placement,
    made: &Made,
) -> anyhow::Result<Instances> {
    let (mut device, partition) = (find(library, gpu)?, Partition::new(gpu, profile, placement));
    if !is_partitioned(&device)? {
        ensure!(
            gpu.architecture.switches_mig_mode_at_once(),
            "MIG mode of gpu-{} was turned off behind this driver's back; turn it on by `nvidia-smi -mig 1` and reset \
             the GPU",
            gpu.minor
        );
        device = set_mode(library, gpu, true)?;
    }
    if made.has(&partition)
        && let Some(whole) = numbers_of(&device, &partition)?
    {
        return Ok(whole);
    }
    remove_from(&device, &partition, made)?;
    let name = &partition.device;
    ensure!(
        at(&device, &partition)?.is_none(),
        "{name} is there, and was not made by this driver; remove it by `nvidia-smi mig -dci` and `-dgi`"
    );
    let what = || format!("making {name}");
    made.add(&partition).with_context(what)?;
    let instance = device.create_gpu_instance(profile.shape.id, placement).with_context(what)?;
    let compute = instance.create_compute_instance(profile.shape.slices).with_context(what)?;
    let gpu_instance = instance.info().with_context(what)?.id;
    Ok(Instances { gpu_instance, compute_instance: compute.id().with_context(what)? })
}

/// A partition that was made.
///
/// # Errors
/// There is none.
pub(crate) fn find_made(library: &Library, gpu: &Gpu, partition: &Partition) -> anyhow::Result<Instances> {
    let found = numbers_of(&find(library, gpu)?, partition)?;
    found.with_context(|| format!("{}: no claim has it, so it is not made", partition.device))
}

/// Removes a partition that this driver has made. One that is not there is a success.
///
/// # Errors
/// It is in use, or its GPU cannot be reached.
pub(crate) fn remove(library: &Library, partition: &Partition, made: &Made) -> anyhow::Result<()> {
    let device = library.device_by_uuid(&partition.parent).map_err(HardwareError::from)?;
    remove_from(&device, partition, made)
}

fn remove_from(device: &Device<'_>, partition: &Partition, made: &Made) -> anyhow::Result<()> {
    let what = || format!("removing {}", partition.device);
    if !made.has(partition) {
        return Ok(());
    }
    // A GPU that had it can tell whether it is partitioned.
    if device.is_partitioned().with_context(what)?
        && let Some(instance) = at(device, partition).with_context(what)?
    {
        for compute in instance.compute_instances().with_context(what)? {
            compute.destroy().with_context(what)?;
        }
        instance.destroy().with_context(what)?;
    }
    made.remove(partition).with_context(what)
}

/// The numbers of a partition, if it is there whole.
fn numbers_of(device: &Device<'_>, partition: &Partition) -> Result<Option<Instances>, NvmlError> {
    let Some(instance) = at(device, partition)? else { return Ok(None) };
    let Some(compute) = instance.compute_instances()?.into_iter().next() else { return Ok(None) };
    Ok(Some(Instances { gpu_instance: instance.info()?.id, compute_instance: compute.id()? }))
}

/// What is of this shape at this place.
fn at<'l>(device: &Device<'l>, partition: &Partition) -> Result<Option<GpuInstance<'l>>, NvmlError> {
    for instance in instances(device, partition.profile_id)? {
        if instance.info()?.placement.start == partition.start {
            return Ok(Some(instance));
        }
    }
    Ok(None)
}

/// The instances of a profile. A GPU that is not partitioned has none.
///
/// # Errors
/// A call failed.
pub(crate) fn instances<'l>(device: &Device<'l>, profile_id: u32) -> Result<Vec<GpuInstance<'l>>, NvmlError> {
    if is_partitioned(device)? { device.gpu_instances(profile_id) } else { Ok(Vec::new()) }
}

/// Whether a GPU is partitioned. One that cannot be is not.
///
/// # Errors
/// The call failed.
pub(crate) fn is_partitioned(device: &Device<'_>) -> Result<bool, NvmlError> {
    match device.is_partitioned() {
        Err(error) if error.is_not_supported() => Ok(false),
        partitioned => partitioned,
    }
}

/// Changes the mode of a GPU, which is looked up again after it: its minor number may be another one (`nvml.h`,
/// `nvmlDeviceSetMigMode`). A mode that would only count after a reset is taken back.
fn set_mode<'l>(library: &'l Library, gpu: &Gpu, on: bool) -> anyhow::Result<Device<'l>> {
    let what = || format!("turning MIG mode of gpu-{} {}", gpu.minor, if on { "on" } else { "off" });
    let set = find(library, gpu)?.set_mig_mode(on);
    let device = find(library, gpu).with_context(what)?;
    if is_partitioned(&device).with_context(what)? == on {
        return Ok(device);
    }
    device.set_mig_mode(!on).with_context(|| format!("{}: taking back what is pending", what()))?;
    set.with_context(what)?;
    bail!("{}: it needs a reset of the GPU", what())
}
