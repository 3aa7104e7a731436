//! How a GPU gets into a container: device nodes, and what of the driver a program needs. `docs/nvidia.md` compares it with what
//! NVIDIA's toolkit writes.

mod driver_files;
mod hooks;
mod nodes;

use dra_kubeletplugin::ContainerEdits;

pub(crate) use driver_files::{DriverFiles, libraries};
pub(crate) use hooks::CdiHook;
pub(crate) use nodes::Nodes;

/// An old runtime hook that looks at this variable must not inject the GPUs of its own choice as well.
pub(crate) fn no_others(edits: ContainerEdits) -> ContainerEdits {
    edits.env("NVIDIA_VISIBLE_DEVICES", "void")
}
