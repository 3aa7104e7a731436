//! NVIDIA's management library (NVML), loaded at run time: what the driver needs of it, as plain data.
//!
//! Built on the raw bindings: the safe wrapper of the same authors has no calls for GPU and compute instances, and reads
//! names without a bound, past the end of the buffer if the library forgets to end them.
//!
//! Every call may fail by itself, for one device and not for another; a function that this version of the library lacks
//! is an error of the call, not of loading. All calls block, some for seconds.

mod call;
mod device;
mod error;
mod events;
mod instances;
mod library;
mod text;

pub use device::{AddressingMode, ComputeMode, Device};
pub use error::{Code, NvmlError, OpenError};
pub use events::{Event, EventKind, EventSet};
pub use instances::{ComputeInstance, GpuInstance, GpuInstanceInfo, GpuInstanceProfile, Placement};
pub use library::Library;
