//! Compute instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT, NVML_COMPUTE_INSTANCE_PROFILE_COUNT, nvmlComputeInstance_t,
    nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t,
    nvmlComputeInstanceProfileInfo_v2_t, nvmlGpuInstance_t,
};

use super::border::{Handle, In, ListOut, Out, field};
use super::code::Code;
use super::gpu_instance::{put_count, put_list};
use super::nvml;
use super::session::InstanceRef;
use crate::mig::ComputeProfile;

nvml! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        engine: c_uint as c_uint,
        info: *mut nvmlComputeInstanceProfileInfo_t as Out<nvmlComputeInstanceProfileInfo_t>,
    ) {
        let instance = call.instance(instance)?;
        let shape = by_index(&instance, profile, engine)?;
        let on = instance.profile()?;
        info.put(nvmlComputeInstanceProfileInfo_t {
            id: shape.id,
            sliceCount: shape.slices,
            instanceCount: most(&shape),
            multiprocessorCount: shape.multiprocessors,
            sharedCopyEngineCount: on.copy_engines,
            sharedDecoderCount: on.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: on.jpeg_engines,
            sharedOfaCount: on.ofa_engines,
        })
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        engine: c_uint as c_uint,
        info: *mut nvmlComputeInstanceProfileInfo_v2_t as Out<nvmlComputeInstanceProfileInfo_v2_t>,
    ) {
        let instance = call.instance(instance)?;
        let shape = by_index(&instance, profile, engine)?;
        let on = instance.profile()?;
        let version = info.version(2)?;
        let name = if shape.slices == on.slices {
            format!("MIG {}", on.name)
        } else {
            format!("MIG {}c.{}", shape.slices, on.name)
        };
        info.put(nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: shape.id,
            sliceCount: shape.slices,
            instanceCount: most(&shape),
            multiprocessorCount: shape.multiprocessors,
            sharedCopyEngineCount: on.copy_engines,
            sharedDecoderCount: on.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: on.jpeg_engines,
            sharedOfaCount: on.ofa_engines,
            name: field(&name),
        })
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        placements: *mut nvmlComputeInstancePlacement_t as ListOut<nvmlComputeInstancePlacement_t>,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let shape = by_id(&call.instance(instance)?, profile)?;
        let place = |start: &u32| nvmlComputeInstancePlacement_t { start: *start, size: shape.slices };
        put_list(&shape.starts.iter().map(place).collect::<Vec<_>>(), &placements, &count)
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let instance = call.instance(instance)?;
        let shape = by_id(&instance, profile)?;
        put_count(instance.hardware.remaining_compute(instance.info().id, &shape)?, &count)
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        compute: *mut nvmlComputeInstance_t as Out<nvmlComputeInstance_t>,
    ) {
        create(&call.instance(instance)?, profile, None, &compute)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        placement: *const nvmlComputeInstancePlacement_t as In<nvmlComputeInstancePlacement_t>,
        compute: *mut nvmlComputeInstance_t as Out<nvmlComputeInstance_t>,
    ) {
        let instance = call.instance(instance)?;
        let place = placement.get()?;
        create(&instance, profile, Some((place.start, place.size)), &compute)
    }

    fn nvmlComputeInstanceDestroy(call, compute: nvmlComputeInstance_t as Handle) {
        let compute = call.compute(compute)?;
        let (instance, id) = (compute.on.info().id, compute.info().id);
        let gpu = &compute.on.gpu;
        gpu.change(|hardware| hardware.destroy_compute(gpu, instance, id))
    }

    fn nvmlGpuInstanceGetComputeInstances(
        call,
        instance: nvmlGpuInstance_t as Handle,
        profile: c_uint as c_uint,
        instances: *mut nvmlComputeInstance_t as ListOut<nvmlComputeInstance_t>,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let instance = call.instance(instance)?;
        let shape = by_id(&instance, profile)?;
        let all = instance.info().compute_instances.iter();
        let found = all
            .filter(|compute| compute.profile == shape.id)
            .map(|compute| Ok(instance.compute(|other| other.made == compute.made)?.handle().to_c()))
            .collect::<Result<Vec<_>, Code>>()?;
        instances.put(&found)?;
        put_count(found.len(), &count)
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        call,
        instance: nvmlGpuInstance_t as Handle,
        id: c_uint as c_uint,
        compute: *mut nvmlComputeInstance_t as Out<nvmlComputeInstance_t>,
    ) {
        let found = call.instance(instance)?.compute(|compute| compute.id == id);
        compute.put_handle(found.map_err(|_| Code::NOT_FOUND)?.handle())
    }

    fn nvmlComputeInstanceGetInfo_v2(
        call,
        compute: nvmlComputeInstance_t as Handle,
        info: *mut nvmlComputeInstanceInfo_t as Out<nvmlComputeInstanceInfo_t>,
    ) {
        let compute = call.compute(compute)?;
        let own = compute.info();
        info.put(nvmlComputeInstanceInfo_t {
            device: compute.on.gpu.handle().to_c(),
            gpuInstance: compute.on.handle().to_c(),
            id: own.id,
            profileId: own.profile,
            placement: nvmlComputeInstancePlacement_t { start: own.start, size: own.slices },
        })
    }
}

fn create(
    instance: &InstanceRef,
    profile: u32,
    place: Option<(u32, u32)>,
    compute: &Out<nvmlComputeInstance_t>,
) -> Result<(), Code> {
    let gpu = &instance.gpu;
    let on = instance.info().id;
    let id = gpu.change(|hardware| hardware.create_compute(gpu, on, profile, place))?;
    let now = gpu.instance(|other| other.id == on)?;
    compute.put_handle(now.compute(|compute| compute.id == id)?.handle())
}

fn by_index(instance: &InstanceRef, index: u32, engine: u32) -> Result<ComputeProfile, Code> {
    if index >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engine >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT {
        return Err(Code::INVALID_ARGUMENT);
    }
    by_id(instance, index).map_err(|_| Code::NOT_SUPPORTED)
}

fn by_id(instance: &InstanceRef, id: u32) -> Result<ComputeProfile, Code> {
    let shapes = instance.profile()?.compute_profiles();
    shapes.into_iter().find(|shape| shape.id == id).ok_or(Code::INVALID_ARGUMENT)
}

fn most(shape: &ComputeProfile) -> c_uint {
    c_uint::try_from(shape.starts.len()).unwrap_or(c_uint::MAX)
}
