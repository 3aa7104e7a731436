//! Result codes of NVML.

use nvml_wrapper_sys::bindings as sys;

use crate::Error;
use crate::hardware::Refusal;

/// Why a call failed. Any number: a machine may have calls fail with codes that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) sys::nvmlReturn_t);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
    pub(crate) const INVALID_ARGUMENT: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT);
    pub(crate) const NOT_SUPPORTED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED);
    pub(crate) const NOT_FOUND: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED);
    pub(crate) const GPU_IS_LOST: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST);
    pub(crate) const RESET_REQUIRED: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED);
    pub(crate) const IN_USE: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_IN_USE);
    pub(crate) const INSUFFICIENT_RESOURCES: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES);
    pub(crate) const TIMEOUT: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self =
        Self(sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pub(crate) const UNKNOWN: Self = Self(sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN);
}

impl From<Error> for Code {
    fn from(error: Error) -> Self {
        complain(&error);
        Self::UNKNOWN
    }
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid => Self::INVALID_ARGUMENT,
            Refusal::NotSupported => Self::NOT_SUPPORTED,
            Refusal::NoRoom => Self::INSUFFICIENT_RESOURCES,
            Refusal::InUse => Self::IN_USE,
            Refusal::ResetRequired => Self::RESET_REQUIRED,
        }
    }
}

/// What the caller cannot be told goes to the standard error output, for who wrote the test.
pub(super) fn complain(error: &dyn std::error::Error) {
    eprintln!("fake-nvml: {error}");
}

/// What `nvmlErrorString` says.
pub(crate) fn text(code: sys::nvmlReturn_t) -> &'static std::ffi::CStr {
    match code {
        sys::nvmlReturn_enum_NVML_SUCCESS => c"Success",
        sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => c"Not Found",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT => c"Timeout",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        sys::nvmlReturn_enum_NVML_ERROR_IN_USE => c"In use by another client",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}
