//! GPU instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
};

use super::border::{Handle, In, ListOut, Out, field};
use super::code::Code;
use super::nvml;
use super::session::GpuRef;
use crate::mig::Profile;

nvml! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        info: *mut nvmlGpuInstanceProfileInfo_t as Out<nvmlGpuInstanceProfileInfo_t>,
    ) {
        let profile = by_index(&call.gpu(device)?, profile)?;
        info.put(nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.slices,
            instanceCount: profile.most,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpeg_engines,
            ofaCount: profile.ofa_engines,
            memorySizeMB: profile.memory_mib,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        info: *mut nvmlGpuInstanceProfileInfo_v2_t as Out<nvmlGpuInstanceProfileInfo_v2_t>,
    ) {
        put_versioned(&info, &by_index(&call.gpu(device)?, profile)?)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        call,
        device: nvmlDevice_t as Handle,
        id: c_uint as c_uint,
        info: *mut nvmlGpuInstanceProfileInfo_v2_t as Out<nvmlGpuInstanceProfileInfo_v2_t>,
    ) {
        put_versioned(&info, &by_id(&call.gpu(device)?, id)?)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        placements: *mut nvmlGpuInstancePlacement_t as ListOut<nvmlGpuInstancePlacement_t>,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let gpu = call.gpu(device)?;
        let profile = by_id(&gpu, profile)?;
        // As for a profile that the GPU lacks (`nvml.h`: "If device, profileId or count are invalid").
        if gpu.unplaceable.contains(&profile.id) {
            return Err(Code::INVALID_ARGUMENT);
        }
        let place = |start: &u32| nvmlGpuInstancePlacement_t { start: *start, size: profile.size };
        put_list(&profile.starts.iter().map(place).collect::<Vec<_>>(), &placements, &count)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let gpu = with_mig_on(call.gpu(device)?)?;
        put_count(gpu.hardware()?.remaining(&by_id(&gpu, profile)?), &count)
    }

    fn nvmlDeviceCreateGpuInstance(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        instance: *mut nvmlGpuInstance_t as Out<nvmlGpuInstance_t>,
    ) {
        create(&call.gpu(device)?, profile, None, &instance)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        placement: *const nvmlGpuInstancePlacement_t as In<nvmlGpuInstancePlacement_t>,
        instance: *mut nvmlGpuInstance_t as Out<nvmlGpuInstance_t>,
    ) {
        let gpu = call.gpu(device)?;
        let place = placement.get()?;
        create(&gpu, profile, Some((place.start, place.size)), &instance)
    }

    fn nvmlGpuInstanceDestroy(call, instance: nvmlGpuInstance_t as Handle) {
        let instance = call.instance(instance)?;
        instance.gpu.change(|hardware| hardware.destroy(instance.info().id))
    }

    fn nvmlDeviceGetGpuInstances(
        call,
        device: nvmlDevice_t as Handle,
        profile: c_uint as c_uint,
        instances: *mut nvmlGpuInstance_t as ListOut<nvmlGpuInstance_t>,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let gpu = with_mig_on(call.gpu(device)?)?;
        let found = gpu.instances(by_id(&gpu, profile)?.id)?;
        instances.put(&found.iter().map(|one| one.handle().to_c()).collect::<Vec<_>>())?;
        put_count(found.len(), &count)
    }

    fn nvmlDeviceGetGpuInstanceById(
        call,
        device: nvmlDevice_t as Handle,
        id: c_uint as c_uint,
        instance: *mut nvmlGpuInstance_t as Out<nvmlGpuInstance_t>,
    ) {
        let gpu = with_mig_on(call.gpu(device)?)?;
        let hardware = gpu.hardware()?;
        hardware.instance(id).map_err(|_| Code::NOT_FOUND)?;
        instance.put_handle(gpu.instance(|one| one.id == id)?.handle())
    }

    fn nvmlGpuInstanceGetInfo(
        call,
        instance: nvmlGpuInstance_t as Handle,
        info: *mut nvmlGpuInstanceInfo_t as Out<nvmlGpuInstanceInfo_t>,
    ) {
        let instance = call.instance(instance)?;
        let own = instance.info();
        info.put(nvmlGpuInstanceInfo_t {
            device: instance.gpu.handle().to_c(),
            id: own.id,
            profileId: own.profile,
            placement: nvmlGpuInstancePlacement_t { start: own.start, size: own.size },
        })
    }
}

fn create(
    gpu: &GpuRef,
    profile: u32,
    place: Option<(u32, u32)>,
    instance: &Out<nvmlGpuInstance_t>,
) -> Result<(), Code> {
    let id = gpu.change(|hardware| hardware.create(gpu, profile, place))?;
    instance.put_handle(gpu.instance(|one| one.id == id)?.handle())
}

/// `NVML_GPU_INSTANCE_PROFILE_COUNT` of `nvml.h` since CUDA 13.2; the bindings of `nvml-wrapper-sys` stop at 17.
pub(crate) const PROFILES: u32 = 18;

fn by_index(gpu: &GpuRef, index: u32) -> Result<Profile, Code> {
    if index >= PROFILES {
        return Err(Code::INVALID_ARGUMENT);
    }
    let profiles = gpu.profiles();
    profiles.into_iter().find(|profile| profile.index == index).ok_or(Code::NOT_SUPPORTED)
}

fn by_id(gpu: &GpuRef, id: u32) -> Result<Profile, Code> {
    if !gpu.model.has_mig() {
        return Err(Code::NOT_SUPPORTED);
    }
    gpu.profile(id).ok_or(Code::INVALID_ARGUMENT)
}

fn with_mig_on(gpu: GpuRef) -> Result<GpuRef, Code> {
    if gpu.hardware()?.mig { Ok(gpu) } else { Err(Code::NOT_SUPPORTED) }
}

fn put_versioned(out: &Out<nvmlGpuInstanceProfileInfo_v2_t>, profile: &Profile) -> Result<(), Code> {
    let version = out.version(2)?;
    out.put(nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: profile.most,
        multiprocessorCount: profile.multiprocessors,
        copyEngineCount: profile.copy_engines,
        decoderCount: profile.decoders,
        encoderCount: 0,
        jpegCount: profile.jpeg_engines,
        ofaCount: profile.ofa_engines,
        memorySizeMB: profile.memory_mib,
        name: field(&format!("MIG {}", profile.name)),
    })
}

/// Writes a list into the room that the caller tells, or only how long it is if there is none.
pub(super) fn put_list<T>(values: &[T], list: &ListOut<T>, count: &Out<c_uint>) -> Result<(), Code> {
    let room = if list.is_null() { None } else { Some(count.get()? as usize) };
    put_count(values.len(), count)?;
    match room {
        None => Ok(()),
        Some(room) if room < values.len() => Err(Code::INSUFFICIENT_SIZE),
        Some(_) => list.put(values),
    }
}

pub(super) fn put_count(value: usize, count: &Out<c_uint>) -> Result<(), Code> {
    count.put(c_uint::try_from(value).map_err(|_| Code::UNKNOWN)?)
}
