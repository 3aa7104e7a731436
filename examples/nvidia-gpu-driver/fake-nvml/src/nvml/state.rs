//! In what state a GPU is: modes, errors of its memory, processes.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::{
    nvmlComputeMode_t, nvmlDevice_t, nvmlDeviceAddressingMode_t, nvmlEccCounterType_t, nvmlEnableState_t,
    nvmlFieldValue_t, nvmlGpuVirtualizationMode_t, nvmlMemoryErrorType_t, nvmlProcessInfo_t,
};

use super::border::{Handle, ListOut, Out};
use super::code::Code;
use super::gpu_instance::put_list;
use super::nvml;

/// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION` of `nvml.h`.
const RECOVERY_ACTION: u32 = 230;

nvml! {
    fn nvmlDeviceGetComputeMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: *mut nvmlComputeMode_t as Out<nvmlComputeMode_t>,
    ) {
        mode.put(call.gpu(device)?.hardware()?.compute_mode)
    }

    fn nvmlDeviceSetComputeMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: nvmlComputeMode_t as c_uint,
    ) {
        let gpu = call.gpu(device)?;
        if mode > sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS {
            return Err(Code::INVALID_ARGUMENT);
        }
        gpu.change(|hardware| hardware.set_compute_mode(mode))
    }

    fn nvmlDeviceGetPersistenceMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: *mut nvmlEnableState_t as Out<nvmlEnableState_t>,
    ) {
        call.gpu(device)?;
        mode.put(sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    fn nvmlDeviceGetAddressingMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: *mut nvmlDeviceAddressingMode_t as Out<nvmlDeviceAddressingMode_t>,
    ) {
        let version = mode.version(1)?;
        let value = call.gpu(device)?.addressing_mode.ok_or(Code::NOT_SUPPORTED)?;
        mode.put(nvmlDeviceAddressingMode_t { version, value })
    }

    fn nvmlDeviceGetModuleId(
        call,
        device: nvmlDevice_t as Handle,
        module: *mut c_uint as Out<c_uint>,
    ) {
        module.put(call.gpu(device)?.module_id.ok_or(Code::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetNumaNodeId(
        call,
        device: nvmlDevice_t as Handle,
        node: *mut c_uint as Out<c_uint>,
    ) {
        node.put(call.gpu(device)?.numa_node.ok_or(Code::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetVirtualizationMode(
        call,
        device: nvmlDevice_t as Handle,
        mode: *mut nvmlGpuVirtualizationMode_t as Out<nvmlGpuVirtualizationMode_t>,
    ) {
        call.gpu(device)?;
        mode.put(sys::nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_NONE)
    }

    fn nvmlDeviceGetEccMode(
        call,
        device: nvmlDevice_t as Handle,
        current: *mut nvmlEnableState_t as Out<nvmlEnableState_t>,
        pending: *mut nvmlEnableState_t as Out<nvmlEnableState_t>,
    ) {
        call.gpu(device)?;
        current.put(sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)?;
        pending.put(sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    fn nvmlDeviceGetTotalEccErrors(
        call,
        device: nvmlDevice_t as Handle,
        error: nvmlMemoryErrorType_t as c_uint,
        counter: nvmlEccCounterType_t as c_uint,
        count: *mut c_ulonglong as Out<c_ulonglong>,
    ) {
        const CORRECTED: u32 = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED;
        const UNCORRECTED: u32 = sys::nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED;
        const VOLATILE: u32 = sys::nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        const AGGREGATE: u32 = sys::nvmlEccCounterType_enum_NVML_AGGREGATE_ECC;
        let ecc = call.gpu(device)?.ecc;
        count.put(match (error, counter) {
            (CORRECTED, VOLATILE) => ecc.corrected_volatile,
            (CORRECTED, AGGREGATE) => ecc.corrected_aggregate,
            (UNCORRECTED, VOLATILE) => ecc.uncorrected_volatile,
            (UNCORRECTED, AGGREGATE) => ecc.uncorrected_aggregate,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    }

    fn nvmlDeviceGetRemappedRows(
        call,
        device: nvmlDevice_t as Handle,
        corrected: *mut c_uint as Out<c_uint>,
        uncorrected: *mut c_uint as Out<c_uint>,
        pending: *mut c_uint as Out<c_uint>,
        failed: *mut c_uint as Out<c_uint>,
    ) {
        let ecc = call.gpu(device)?.ecc;
        corrected.put(ecc.remapped_corrected)?;
        uncorrected.put(ecc.remapped_uncorrected)?;
        pending.put(ecc.remapping_pending.into())?;
        failed.put(ecc.remapping_failed.into())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(
        call,
        device: nvmlDevice_t as Handle,
        count: *mut c_uint as Out<c_uint>,
        processes: *mut nvmlProcessInfo_t as ListOut<nvmlProcessInfo_t>,
    ) {
        let found = call.device(device)?.processes();
        let info = |process: &crate::Process| nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.used_mib.saturating_mul(1 << 20),
            gpuInstanceId: process.gpu_instance,
            computeInstanceId: process.compute_instance,
        };
        // Unlike others, this one wants room even to tell how many there are, unless there are none.
        let room = count.get()? as usize;
        put_list(&found.iter().map(info).collect::<Vec<_>>(), &processes, &count)?;
        if room < found.len() { Err(Code::INSUFFICIENT_SIZE) } else { Ok(()) }
    }

    // Each value has a result of its own, and the call succeeds (`nvml.h`, `nvmlDeviceGetFieldValues`).
    fn nvmlDeviceGetFieldValues(
        call,
        device: nvmlDevice_t as Handle,
        count: c_int as c_int,
        values: *mut nvmlFieldValue_t as ListOut<nvmlFieldValue_t>,
    ) {
        let action = call.gpu(device)?.recovery_action;
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        values.change(count, |value| match (value.fieldId, action) {
            (RECOVERY_ACTION, Some(action)) => {
                value.valueType = sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
                value.value.uiVal = action;
                value.nvmlReturn = sys::nvmlReturn_enum_NVML_SUCCESS;
            }
            _ => value.nvmlReturn = Code::NOT_SUPPORTED.0,
        })
    }

    fn nvmlDeviceGetCudaComputeCapability(
        call,
        device: nvmlDevice_t as Handle,
        major: *mut c_int as Out<c_int>,
        minor: *mut c_int as Out<c_int>,
    ) {
        let reached = call.device(device)?;
        let gpu = reached.gpu();
        let own = gpu.compute_capability;
        let (own_major, own_minor) = own.unwrap_or_else(|| gpu.model.figures().compute_capability);
        major.put(own_major)?;
        minor.put(own_minor)
    }
}
