//! Errors of NVML.

use std::{fmt, path::PathBuf};

use nvml_wrapper_sys::bindings as sys;

/// A call that failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{function}: {code}")]
#[non_exhaustive]
pub struct NvmlError {
    /// The function of NVML.
    pub function: &'static str,
    /// What it returned.
    pub code: Code,
}

/// What a function of NVML returned instead of a success.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Code {
    /// A code of the library.
    Returned(u32),
    /// The library has no function of this name; it is older than what the caller knows.
    Missing,
    /// The function said that it succeeded, but its answer makes no sense.
    BadAnswer(&'static str),
}

impl NvmlError {
    /// The device or this version of the driver has no such thing.
    #[must_use]
    pub fn is_not_supported(&self) -> bool {
        let known = [
            sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
            sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
        ];
        self.code == Code::Missing || self.is_one_of(&known)
    }

    /// What was asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.is_one_of(&[sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND])
    }

    /// The argument is none that this device knows.
    #[must_use]
    pub fn is_invalid_argument(&self) -> bool {
        self.is_one_of(&[sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT])
    }

    /// The GPU fell off the bus, or otherwise cannot be reached.
    #[must_use]
    pub fn is_gpu_lost(&self) -> bool {
        self.is_one_of(&[
            sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST,
            sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND,
        ])
    }

    /// The kernel module was unloaded or replaced: this library has to be closed and opened again.
    #[must_use]
    pub fn is_library_stale(&self) -> bool {
        self.is_one_of(&[
            sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
            sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED,
            sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        ])
    }

    /// Nothing happened in the time that was given.
    pub(crate) fn is_timeout(&self) -> bool {
        self.is_one_of(&[sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT])
    }

    /// There was more to tell than room for it.
    pub(crate) fn is_insufficient_size(&self) -> bool {
        self.is_one_of(&[sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE])
    }

    fn is_one_of(&self, codes: &[sys::nvmlReturn_t]) -> bool {
        matches!(self.code, Code::Returned(code) if codes.contains(&code))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("this version of NVML has no such function"),
            Self::BadAnswer(what) => f.write_str(what),
            Self::Returned(code) => match name(*code) {
                Some(name) => write!(f, "{name} ({code})"),
                None => write!(f, "unknown error {code}"),
            },
        }
    }
}

fn name(code: u32) -> Option<&'static str> {
    Some(match code {
        sys::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => "not initialized",
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => "invalid argument",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => "not supported",
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => "no permission",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => "not found",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => "buffer too small",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER => "no external power",
        sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => "the NVIDIA driver is not loaded",
        sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT => "timed out",
        sys::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE => "interrupt problem",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => "the GPU is lost",
        sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => "the GPU has to be reset",
        sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => {
            "the library is of another version than the kernel's driver"
        }
        sys::nvmlReturn_enum_NVML_ERROR_IN_USE => "in use by a process",
        sys::nvmlReturn_enum_NVML_ERROR_MEMORY => "out of memory",
        sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => "not enough free resources on the GPU",
        sys::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH => "unknown version of an argument",
        sys::nvmlReturn_enum_NVML_ERROR_NOT_READY => "not ready",
        sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND => "no such GPU",
        sys::nvmlReturn_enum_NVML_ERROR_INVALID_STATE => "not possible in this state",
        sys::nvmlReturn_enum_NVML_ERROR_UNKNOWN => "internal driver error",
        _ => return None,
    })
}

/// Why the library could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file is no library that can be loaded here.
    #[error("loading {}: {source}", .path.display())]
    #[non_exhaustive]
    Load {
        /// The file.
        path: PathBuf,
        /// What the dynamic loader says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It was loaded, but does not work.
    #[error("starting {}: {source}", .path.display())]
    #[non_exhaustive]
    Start {
        /// The file.
        path: PathBuf,
        /// What NVML says.
        source: NvmlError,
    },
}
