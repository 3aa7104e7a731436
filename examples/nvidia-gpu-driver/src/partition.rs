//! Work on GPUs that may change them: finding one that is still what was published, and making and removing partitions.

use anyhow::{Context as _, bail, ensure};
use nvidia_nvml::{Device, GpuInstance, Library, NvmlError, Placement};

use crate::{
    gpu::{Gpu, Mig, MigProfile},
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

/// Makes sure that a GPU is whole.
///
/// # Errors
/// It is partitioned, or a partition is in its way.
pub(crate) fn make_whole(library: &Library, gpu: &Gpu) -> anyhow::Result<()> {
    let device = find(library, gpu)?;
    if !is_partitioned(&device)? {
        return Ok(());
    }
    ensure!(
        gpu.architecture.switches_mig_mode_at_once() && gpu.mig_enabled.is_some(),
        "MIG mode of gpu-{} was turned on behind this driver's back; turn it off by `nvidia-smi -mig 0`, or use its MIG \
         devices",
        gpu.minor
    );
    set_mode(&device, gpu, false)
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

/// Makes a partition, in place of one that a crash has left.
///
/// # Errors
/// Something else is there, or MIG mode cannot be turned on.
pub(crate) fn make(
    library: &Library,
    gpu: &Gpu,
    profile: &MigProfile,
    placement: Placement,
) -> anyhow::Result<Instances> {
    let device = find(library, gpu)?;
    if !is_partitioned(&device)? {
        ensure!(
            gpu.architecture.switches_mig_mode_at_once(),
            "MIG mode of gpu-{} was turned off behind this driver's back; turn it on by `nvidia-smi -mig 1` and reset \
             the GPU",
            gpu.minor
        );
        set_mode(&device, gpu, true)?;
    }
    remove_at(&device, profile.shape.id, placement.start)?;
    let what = || format!("making {} at {} of gpu-{}", profile.name, placement.start, gpu.minor);
    let instance = device.create_gpu_instance(profile.shape.id, placement).with_context(what)?;
    let made = instance
        .create_compute_instance(profile.shape.slices)
        .and_then(|compute| Ok((instance.info()?, compute.info()?)));
    match made {
        Ok((gpu_instance, compute_instance)) => {
            Ok(Instances { gpu_instance: gpu_instance.id, compute_instance: compute_instance.id })
        }
        Err(error) => Err(error).with_context(what),
    }
}

/// A partition that was made for another claim.
///
/// # Errors
/// There is none.
pub(crate) fn find_made(
    library: &Library,
    gpu: &Gpu,
    profile: &MigProfile,
    placement: Placement,
) -> anyhow::Result<Instances> {
    let device = find(library, gpu)?;
    for instance in instances(&device, profile.shape.id)? {
        let info = instance.info()?;
        if info.placement.start == placement.start
            && let Some(compute) = instance.compute_instances()?.first()
        {
            return Ok(Instances { gpu_instance: info.id, compute_instance: compute.info()?.id });
        }
    }
    bail!(
        "admin access to {} at {} of gpu-{}: no claim has it, so it is not made",
        profile.name,
        placement.start,
        gpu.minor
    )
}

/// Removes a partition. One that is not there is a success, and so is one of a GPU that is not there.
///
/// # Errors
/// It is in use.
pub(crate) fn remove(library: &Library, partition: &Partition) -> anyhow::Result<()> {
    let device = match library.device_by_uuid(&partition.parent) {
        Err(error) if error.is_not_found() || error.is_gpu_lost() => {
            tracing::warn!(gpu = partition.parent, %error, "the GPU of a partition is gone, and the partition with it");
            return Ok(());
        }
        device => device.with_context(|| format!("GPU {}", partition.parent))?,
    };
    remove_at(&device, partition.profile_id, partition.start)
}

fn remove_at(device: &Device<'_>, profile_id: u32, start: u32) -> anyhow::Result<()> {
    let what = || format!("removing the partition of profile {profile_id} at {start}");
    for instance in instances(device, profile_id).with_context(what)? {
        if instance.info().with_context(what)?.placement.start == start {
            for compute in instance.compute_instances().with_context(what)? {
                compute.destroy().with_context(what)?;
            }
            instance.destroy().with_context(what)?;
        }
    }
    Ok(())
}

/// A GPU that is not partitioned has none.
fn instances<'l>(device: &Device<'l>, profile_id: u32) -> Result<Vec<GpuInstance<'l>>, NvmlError> {
    match device.mig_mode() {
        Ok(mode) if !mode.current => Ok(Vec::new()),
        Err(error) if error.is_not_supported() => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(_) => device.gpu_instances(profile_id),
    }
}

fn is_partitioned(device: &Device<'_>) -> anyhow::Result<bool> {
    match device.mig_mode() {
        Ok(mode) => Ok(mode.current),
        Err(error) if error.is_not_supported() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn set_mode(device: &Device<'_>, gpu: &Gpu, on: bool) -> anyhow::Result<()> {
    let what = || format!("turning MIG mode of gpu-{} {}", gpu.minor, if on { "on" } else { "off" });
    device.set_mig_mode(on).with_context(what)?;
    if is_partitioned(device)? != on {
        bail!("{}: it needs a reset of the GPU", what());
    }
    Ok(())
}
