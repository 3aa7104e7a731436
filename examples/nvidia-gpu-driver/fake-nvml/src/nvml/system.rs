//! Start, end, and what is told of the whole system.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use super::border::{Out, TextOut};
use super::code::{self, Code};
use super::nvml;
use super::session::{initialize, machine, shut_down};

nvml! {
    fn nvmlInit_v2(_call) {
        start(0)
    }

    fn nvmlInitWithFlags(_call, flags: c_uint as c_uint) {
        start(flags)
    }

    fn nvmlShutdown(_call) {
        shut_down();
        Ok(())
    }

    fn nvmlSystemGetDriverVersion(_call, version: *mut c_char as TextOut, length: c_uint as c_uint) {
        version.put(&machine()?.driver_version, length)
    }

    fn nvmlSystemGetNVMLVersion(_call, version: *mut c_char as TextOut, length: c_uint as c_uint) {
        version.put(&machine()?.nvml_version, length)
    }

    fn nvmlSystemGetCudaDriverVersion(_call, version: *mut c_int as Out<c_int>) {
        version.put(machine()?.cuda_driver_version)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(_call, version: *mut c_int as Out<c_int>) {
        version.put(machine()?.cuda_driver_version)
    }
}

/// `NVML_INIT_FLAG_NO_GPUS`: no GPU is fine.
const NO_GPUS: c_uint = 1;

fn start(flags: c_uint) -> Result<(), Code> {
    if machine()?.gpus.is_empty() && flags & NO_GPUS == 0 {
        return Err(Code::NOT_FOUND);
    }
    initialize()
}

/// The one function that returns no code: it cannot fail, nor go wrong by a fault.
#[allow(non_snake_case, reason = "the name in C")]
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: sys::nvmlReturn_t) -> *const c_char {
    code::text(code).as_ptr()
}

const _: fn(&mut sys::NvmlLib) = |library| library.nvmlErrorString = Ok(nvmlErrorString);
