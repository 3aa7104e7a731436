//! One way to call a function of the library.

use nvml_wrapper_sys::bindings as sys;

use crate::{Code, NvmlError};

/// Calls a function by name; a missing one is an error of this call.
macro_rules! call {
    ($functions:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        match &$functions.$function {
            // SAFETY: the symbol was looked up under this name, and its type is the one of NVIDIA's header. Handles come
            // from the same library, which is still open; pointers point to live values of the types that it writes.
            Ok(function) => {
                $crate::call::check(stringify!($function), unsafe { function($($argument),*) })
            }
            Err(_) => Err($crate::call::missing(stringify!($function))),
        }
    }};
}

pub(crate) use call;

pub(crate) fn check(function: &'static str, code: sys::nvmlReturn_t) -> Result<(), NvmlError> {
    match code {
        sys::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
        code => Err(NvmlError { function, code: Code::Returned(code) }),
    }
}

pub(crate) fn missing(function: &'static str) -> NvmlError {
    NvmlError { function, code: Code::Missing }
}

pub(crate) fn bad_answer(function: &'static str, what: &'static str) -> NvmlError {
    NvmlError { function, code: Code::BadAnswer(what) }
}

/// The version of a structure, as NVML packs it: its size and its number.
pub(crate) fn version_of<T>(number: u32) -> u32 {
    // No structure is near 16 MiB.
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX >> 8) | number << 24
}
