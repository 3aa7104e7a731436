//! MIG as a whole, and MIG devices.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

use super::border::{Handle, Out};
use super::code::Code;
use super::nvml;
use super::session::Device;

nvml! {
    fn nvmlDeviceGetMigMode(
        call,
        device: nvmlDevice_t as Handle,
        current: *mut c_uint as Out<c_uint>,
        pending: *mut c_uint as Out<c_uint>,
    ) {
        let gpu = call.gpu(device)?;
        if !gpu.model.has_mig() {
            return Err(Code::NOT_SUPPORTED);
        }
        let hardware = gpu.hardware()?;
        current.put(hardware.mig.into())?;
        pending.put(hardware.pending_mig.unwrap_or(hardware.mig).into())
    }

    fn nvmlDeviceSetMigMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: c_uint as c_uint,
        activation: *mut nvmlReturn_t as Out<nvmlReturn_t>,
    ) {
        let gpu = call.gpu(device)?;
        if mode > 1 {
            return Err(Code::INVALID_ARGUMENT);
        }
        // The call succeeds also where the mode is only pending; `activationStatus` tells (`nvml.h`, `nvmlDeviceSetMigMode`).
        let activated = gpu.change(|hardware| hardware.set_mig(&gpu, mode == 1))?;
        activation.put(activated.map_or(nvmlReturn_enum_NVML_SUCCESS, |why| Code::from(why).0))
    }

    fn nvmlDeviceGetMaxMigDeviceCount(
        call,
        device: nvmlDevice_t as Handle,
        count: *mut c_uint as Out<c_uint>,
    ) {
        let gpu = call.gpu(device)?;
        count.put(if gpu.hardware()?.mig { 7 } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(
        call,
        device: nvmlDevice_t as Handle,
        index: c_uint as c_uint,
        mig: *mut nvmlDevice_t as Out<nvmlDevice_t>,
    ) {
        let devices = call.gpu(device)?.mig_devices()?;
        mig.put_handle(devices.get(index as usize).ok_or(Code::NOT_FOUND)?.device_handle())
    }

    fn nvmlDeviceIsMigDeviceHandle(
        call,
        device: nvmlDevice_t as Handle,
        is_mig: *mut c_uint as Out<c_uint>,
    ) {
        is_mig.put(matches!(call.device(device)?, Device::Mig(_)).into())
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        call,
        mig: nvmlDevice_t as Handle,
        device: *mut nvmlDevice_t as Out<nvmlDevice_t>,
    ) {
        device.put_handle(call.mig_device(mig)?.on.gpu.handle())
    }

    fn nvmlDeviceGetGpuInstanceId(
        call,
        device: nvmlDevice_t as Handle,
        id: *mut c_uint as Out<c_uint>,
    ) {
        id.put(call.mig_device(device)?.on.info().id)
    }

    fn nvmlDeviceGetComputeInstanceId(
        call,
        device: nvmlDevice_t as Handle,
        id: *mut c_uint as Out<c_uint>,
    ) {
        id.put(call.mig_device(device)?.info().id)
    }

    fn nvmlDeviceGetAttributes_v2(
        call,
        device: nvmlDevice_t as Handle,
        attributes: *mut nvmlDeviceAttributes_t as Out<nvmlDeviceAttributes_t>,
    ) {
        let device = call.mig_device(device)?;
        let profile = device.on.profile()?;
        let shapes = profile.compute_profiles();
        let shape = shapes.iter().find(|shape| shape.id == device.info().profile).ok_or(Code::UNKNOWN)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: shape.multiprocessors,
            sharedCopyEngineCount: profile.copy_engines,
            sharedDecoderCount: profile.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: profile.jpeg_engines,
            sharedOfaCount: profile.ofa_engines,
            gpuInstanceSliceCount: profile.slices,
            computeInstanceSliceCount: shape.slices,
            memorySizeMB: profile.memory_mib,
        })
    }
}
