//! Waiting for what happens on GPUs.

use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

use nvml_wrapper_sys::bindings as sys;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t};

use super::border::{Handle, Out};
use super::code::Code;
use super::nvml;
use super::session::{create_event_set, free_event_set};

/// What the GPUs can report.
const SUPPORTED: c_ulonglong = (sys::nvmlEventTypeSingleBitEccError
    | sys::nvmlEventTypeDoubleBitEccError
    | sys::nvmlEventTypePState
    | sys::nvmlEventTypeXidCriticalError
    | sys::nvmlEventTypeClock) as c_ulonglong;

nvml! {
    fn nvmlEventSetCreate(_call, set: *mut nvmlEventSet_t as Out<nvmlEventSet_t>) {
        set.put_handle(create_event_set())
    }

    fn nvmlEventSetFree(_call, set: nvmlEventSet_t as Handle) {
        free_event_set(set)
    }

    fn nvmlDeviceGetSupportedEventTypes(
        call,
        device: nvmlDevice_t as Handle,
        types: *mut c_ulonglong as Out<c_ulonglong>,
    ) {
        call.gpu(device)?;
        types.put(SUPPORTED)
    }

    fn nvmlDeviceRegisterEvents(
        call,
        device: nvmlDevice_t as Handle,
        types: c_ulonglong as c_ulonglong,
        set: nvmlEventSet_t as Handle,
    ) {
        let gpu = call.gpu(device)?;
        if types & !SUPPORTED != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        gpu.register(types, set)
    }

    fn nvmlEventSetWait_v2(
        call,
        set: nvmlEventSet_t as Handle,
        data: *mut nvmlEventData_t as Out<nvmlEventData_t>,
        timeout_ms: c_uint as c_uint,
    ) {
        let (gpu, event) = call.wait(set, Duration::from_millis(timeout_ms.into()))?;
        data.put(nvmlEventData_t {
            device: gpu.to_c(),
            eventType: event.kind,
            eventData: event.data,
            gpuInstanceId: event.gpu_instance,
            computeInstanceId: event.compute_instance,
        })
    }
}
