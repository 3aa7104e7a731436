//! What a GPU is.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::size_of;

use nvml_wrapper_sys::bindings::{
    nvmlBrandType_enum_NVML_BRAND_NVIDIA, nvmlBrandType_t, nvmlDevice_t, nvmlDeviceArchitecture_t,
    nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
};

use super::border::{Handle, Out, TextOut, field};
use super::code::Code;
use super::nvml;

nvml! {
    fn nvmlDeviceGetUUID(
        call,
        device: nvmlDevice_t as Handle,
        uuid: *mut c_char as TextOut,
        length: c_uint as c_uint,
    ) {
        uuid.put(&call.gpu(device)?.uuid(), length)
    }

    fn nvmlDeviceGetName(
        call,
        device: nvmlDevice_t as Handle,
        name: *mut c_char as TextOut,
        length: c_uint as c_uint,
    ) {
        name.put(&call.gpu(device)?.name(), length)
    }

    fn nvmlDeviceGetSerial(
        call,
        device: nvmlDevice_t as Handle,
        serial: *mut c_char as TextOut,
        length: c_uint as c_uint,
    ) {
        serial.put(&call.gpu(device)?.serial(), length)
    }

    fn nvmlDeviceGetIndex(call, device: nvmlDevice_t as Handle, index: *mut c_uint as Out<c_uint>) {
        index.put(c_uint::try_from(call.gpu(device)?.index).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlDeviceGetMinorNumber(
        call,
        device: nvmlDevice_t as Handle,
        minor: *mut c_uint as Out<c_uint>,
    ) {
        minor.put(call.gpu(device)?.minor())
    }

    fn nvmlDeviceGetBrand(
        call,
        device: nvmlDevice_t as Handle,
        brand: *mut nvmlBrandType_t as Out<nvmlBrandType_t>,
    ) {
        brand.put(call.gpu(device)?.brand.unwrap_or(nvmlBrandType_enum_NVML_BRAND_NVIDIA))
    }

    fn nvmlDeviceGetArchitecture(
        call,
        device: nvmlDevice_t as Handle,
        architecture: *mut nvmlDeviceArchitecture_t as Out<nvmlDeviceArchitecture_t>,
    ) {
        let gpu = call.gpu(device)?;
        architecture.put(gpu.architecture.unwrap_or_else(|| gpu.model.figures().architecture))
    }

    fn nvmlDeviceGetCudaComputeCapability(
        call,
        device: nvmlDevice_t as Handle,
        major: *mut c_int as Out<c_int>,
        minor: *mut c_int as Out<c_int>,
    ) {
        let gpu = call.gpu(device)?;
        let own = gpu.compute_capability;
        let (given_major, given_minor) = own.unwrap_or_else(|| gpu.model.figures().compute_capability);
        major.put(given_major)?;
        minor.put(given_minor)
    }

    fn nvmlDeviceGetMemoryInfo(
        call,
        device: nvmlDevice_t as Handle,
        memory: *mut nvmlMemory_t as Out<nvmlMemory_t>,
    ) {
        let total = mib(call.gpu(device)?.memory_mib());
        memory.put(nvmlMemory_t { total, free: total, used: 0 })
    }

    fn nvmlDeviceGetMemoryInfo_v2(
        call,
        device: nvmlDevice_t as Handle,
        memory: *mut nvmlMemory_v2_t as Out<nvmlMemory_v2_t>,
    ) {
        let total = mib(call.gpu(device)?.memory_mib());
        let version = memory.get()?.version;
        if version != struct_version::<nvmlMemory_v2_t>(2) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        memory.put(nvmlMemory_v2_t { version, total, reserved: 0, free: total, used: 0 })
    }

    fn nvmlDeviceGetPciInfo_v3(
        call,
        device: nvmlDevice_t as Handle,
        pci: *mut nvmlPciInfo_t as Out<nvmlPciInfo_t>,
    ) {
        let gpu = call.gpu(device)?;
        let figures = gpu.model.figures();
        pci.put(nvmlPciInfo_t {
            busIdLegacy: field(&gpu.address.legacy()),
            domain: gpu.address.domain,
            bus: gpu.address.bus.into(),
            device: gpu.address.device.into(),
            pciDeviceId: figures.pci_device_id,
            pciSubSystemId: figures.pci_subsystem_id,
            busId: field(&gpu.address.to_string()),
        })
    }

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
        current.put(gpu.mig.into())?;
        pending.put(gpu.mig.into())
    }
}

/// `NVML_STRUCT_VERSION`: the size of the struct, and its version in the highest byte.
#[allow(clippy::cast_possible_truncation, reason = "structs of NVML have some hundred bytes")]
pub(super) const fn struct_version<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

fn mib(mib: u64) -> u64 {
    mib.saturating_mul(1 << 20)
}
