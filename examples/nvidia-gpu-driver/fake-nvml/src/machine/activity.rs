//! What goes on on a GPU: errors, events, processes.

use serde::{Deserialize, Serialize};

/// Errors of a GPU's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Ecc {
    /// Corrected, since the driver was loaded.
    pub corrected_volatile: u64,
    /// Not corrected, since the driver was loaded.
    pub uncorrected_volatile: u64,
    /// Corrected, in the whole life.
    pub corrected_aggregate: u64,
    /// Not corrected, in the whole life.
    pub uncorrected_aggregate: u64,
    /// Rows that were replaced after errors that were corrected.
    pub remapped_corrected: u32,
    /// Rows that were replaced after errors that were not.
    pub remapped_uncorrected: u32,
    /// Whether a row waits for a reset to be replaced.
    pub remapping_pending: bool,
    /// Whether no row was left to replace one with.
    pub remapping_failed: bool,
}

impl Ecc {
    /// Whether there was no error.
    #[must_use]
    pub fn is_good(&self) -> bool {
        *self == Self::default()
    }
}

/// Something that happened on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Event {
    /// One bit of `nvmlEventType…`.
    #[serde(rename = "type")]
    pub kind: u64,
    /// For an XID its number.
    #[serde(default)]
    pub data: u64,
    /// All ones for the whole GPU.
    #[serde(default = "whole")]
    pub gpu_instance: u32,
    /// All ones for the whole GPU.
    #[serde(default = "whole")]
    pub compute_instance: u32,
}

const fn whole() -> u32 {
    u32::MAX
}

impl Event {
    /// One of the whole GPU.
    #[must_use]
    pub fn new(kind: u64, data: u64) -> Self {
        Self { kind, data, gpu_instance: whole(), compute_instance: whole() }
    }

    /// A critical error of the whole GPU, by its number in NVIDIA's list, as 79 for "fallen off the bus".
    #[must_use]
    pub fn xid(number: u64) -> Self {
        Self::new(nvml_wrapper_sys::bindings::nvmlEventTypeXidCriticalError.into(), number)
    }

    /// An error of memory that could not be corrected.
    #[must_use]
    pub fn double_bit_error() -> Self {
        Self::new(nvml_wrapper_sys::bindings::nvmlEventTypeDoubleBitEccError.into(), 0)
    }

    /// The same, of one MIG device.
    #[must_use]
    pub fn on(self, gpu_instance: u32, compute_instance: u32) -> Self {
        Self { gpu_instance, compute_instance, ..self }
    }
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Memory of the GPU that it holds, in MiB.
    #[serde(default)]
    pub used_mib: u64,
    /// All ones without MIG.
    #[serde(default = "whole")]
    pub gpu_instance: u32,
    /// All ones without MIG.
    #[serde(default = "whole")]
    pub compute_instance: u32,
}

impl Process {
    /// One on a GPU without MIG.
    #[must_use]
    pub fn new(pid: u32, used_mib: u64) -> Self {
        Self { pid, used_mib, gpu_instance: whole(), compute_instance: whole() }
    }

    /// The same, on one MIG device.
    #[must_use]
    pub fn on(self, gpu_instance: u32, compute_instance: u32) -> Self {
        Self { gpu_instance, compute_instance, ..self }
    }
}
