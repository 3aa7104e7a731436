//! A stand-in for NVIDIA's management library, `libnvidia-ml.so.1` (NVML), without a GPU.
//!
//! A program loads it with the real loader, as it loads NVIDIA's. What it answers is told by a [`Machine`], a JSON file in
//! a [`Folder`]; that file may change while the program runs. What the program does to its GPUs — MIG mode, instances,
//! compute mode — the library keeps in the same folder, so that it outlives the program as real hardware does.
//!
//! Tests use this crate as a library:
//!
//! ```no_run
//! use fake_nvml::{Folder, Gpu, Machine, Model};
//!
//! # fn example(scratch: &std::path::Path) -> Result<(), fake_nvml::Error> {
//! let machine = Machine::new([Gpu::new(Model::A100Sxm4_40Gb, 0), Gpu::new(Model::L4, 1)]);
//! let folder = Folder::create(scratch.join("fake"), &machine)?;
//! // Here a program that has the folder `root` as its driver root finds it.
//! let library = folder.install(scratch.join("root/usr/lib64"))?;
//! // Later: the GPU falls off the bus.
//! folder.change(|machine| machine.gpus[1].lost = true)?;
//! # drop(library); Ok(())
//! # }
//! ```
//!
//! The README of this crate describes the file for those who write it by hand.

mod capabilities;
mod error;
mod folder;
mod hardware;
mod machine;
mod mig;
mod model;
#[allow(unsafe_code, reason = "the border to C: pointers of the caller, exported names")]
mod nvml;

pub use error::Error;
pub use folder::Folder;
pub use hardware::{ComputeInstance, GpuHardware, GpuInstance, Hardware};
pub use machine::{Ecc, Event, Faults, Gpu, Machine, MigInstance, Moment, Process, Text};

pub use model::Model;

/// The name under which programs look for NVML.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// A stand-in for NVIDIA's program of this name, which shares GPUs among processes: a script, which says what it takes.
pub const MPS_CONTROL: &str = include_str!("../nvidia-cuda-mps-control");

/// Names the [`Folder`] to a loaded library, before what [`Folder::install`] wrote beside it.
pub const FOLDER_VARIABLE: &str = "FAKE_NVML_DIR";

/// The functions of NVML that the library has, sorted.
#[must_use]
pub fn functions() -> Vec<&'static str> {
    nvml::functions()
}
