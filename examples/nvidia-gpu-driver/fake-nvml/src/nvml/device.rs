//! What a GPU is.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlBrandType_enum_NVML_BRAND_NVIDIA, nvmlBrandType_t, nvmlDevice_t, nvmlDeviceArchitecture_t,
    nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
};

use super::border::{Handle, Out, TextOut, field};
use super::code::Code;
use super::nvml;
use super::session::Device;

nvml! {
    fn nvmlDeviceGetUUID(
        call,
        device: nvmlDevice_t as Handle,
        uuid: *mut c_char as TextOut,
        length: c_uint as c_uint,
    ) {
        uuid.put(&call.device(device)?.uuid(), length)
    }

    fn nvmlDeviceGetName(
        call,
        device: nvmlDevice_t as Handle,
        name: *mut c_char as TextOut,
        length: c_uint as c_uint,
    ) {
        name.put(&call.device(device)?.name(), length)
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
        let gpu = call.gpu(device)?;
        minor.put(gpu.hardware()?.minor(&gpu))
    }

    fn nvmlDeviceGetBrand(
        call,
        device: nvmlDevice_t as Handle,
        brand: *mut nvmlBrandType_t as Out<nvmlBrandType_t>,
    ) {
        brand.put(call.device(device)?.gpu().brand.unwrap_or(nvmlBrandType_enum_NVML_BRAND_NVIDIA))
    }

    fn nvmlDeviceGetArchitecture(
        call,
        device: nvmlDevice_t as Handle,
        architecture: *mut nvmlDeviceArchitecture_t as Out<nvmlDeviceArchitecture_t>,
    ) {
        let reached = call.device(device)?;
        let gpu = reached.gpu();
        architecture.put(gpu.architecture.unwrap_or_else(|| gpu.model.figures().architecture))
    }

    fn nvmlDeviceGetMemoryInfo(
        call,
        device: nvmlDevice_t as Handle,
        memory: *mut nvmlMemory_t as Out<nvmlMemory_t>,
    ) {
        let Bytes { total, free, used } = bytes(&call.device(device)?)?;
        memory.put(nvmlMemory_t { total, free, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(
        call,
        device: nvmlDevice_t as Handle,
        memory: *mut nvmlMemory_v2_t as Out<nvmlMemory_v2_t>,
    ) {
        let Bytes { total, free, used } = bytes(&call.device(device)?)?;
        let version = memory.version(2)?;
        memory.put(nvmlMemory_v2_t { version, total, reserved: 0, free, used })
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
}

struct Bytes {
    total: u64,
    free: u64,
    used: u64,
}

fn bytes(device: &Device) -> Result<Bytes, Code> {
    let total = device.memory_mib()?;
    let used = device.processes().iter().map(|process| process.used_mib).sum::<u64>().min(total);
    let [total, free, used] = [total, total - used, used].map(|mib| mib.saturating_mul(1 << 20));
    Ok(Bytes { total, free, used })
}
