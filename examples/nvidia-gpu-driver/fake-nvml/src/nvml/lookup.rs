//! How many GPUs there are, and their handles.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::border::{Out, TextIn};
use super::code::Code;
use super::nvml;
use super::session::{GpuRef, machine};
use crate::machine::PciAddress;

nvml! {
    fn nvmlDeviceGetCount_v2(_call, count: *mut c_uint as Out<c_uint>) {
        let count_now = machine()?.gpus.len();
        count.put(c_uint::try_from(count_now).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlDeviceGetHandleByIndex_v2(
        call,
        index: c_uint as c_uint,
        device: *mut nvmlDevice_t as Out<nvmlDevice_t>,
    ) {
        if index as usize >= machine()?.gpus.len() {
            return Err(Code::INVALID_ARGUMENT);
        }
        give(&call.find_gpu(|at, _| at == index as usize)?, &device)
    }

    fn nvmlDeviceGetHandleByUUID(
        call,
        uuid: *const c_char as TextIn,
        device: *mut nvmlDevice_t as Out<nvmlDevice_t>,
    ) {
        let found = call.find_gpu(|_, gpu| gpu.uuid().bytes() == uuid.bytes());
        match found {
            Err(Code::NOT_FOUND) => device.put_handle(call.find_mig(uuid.bytes())?.device_handle()),
            found => give(&found?, &device),
        }
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(
        call,
        address: *const c_char as TextIn,
        device: *mut nvmlDevice_t as Out<nvmlDevice_t>,
    ) {
        let text = std::str::from_utf8(address.bytes()).map_err(|_| Code::INVALID_ARGUMENT)?;
        let wanted: PciAddress = text.parse().map_err(|()| Code::INVALID_ARGUMENT)?;
        let is_there = |gpu: &crate::Gpu| gpu.pci_address().is_ok_and(|address| address == wanted);
        give(&call.find_gpu(|_, gpu| is_there(gpu))?, &device)
    }
}

fn give(gpu: &GpuRef, device: &Out<nvmlDevice_t>) -> Result<(), Code> {
    device.put_handle(gpu.handle())
}
