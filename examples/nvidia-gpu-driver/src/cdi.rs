//! How a GPU gets into a container, without NVIDIA's toolkit: device nodes, and what of the driver a program needs.
//! `docs/nvidia.md` compares it with what the toolkit writes.

mod driver_files;
mod nodes;

use dra_kubeletplugin::ContainerEdits;

use crate::driver_root::DriverRoot;

pub(crate) use driver_files::{DriverFiles, libraries};
pub(crate) use nodes::Nodes;

/// What every container with a GPU that NVIDIA's driver has gets, whichever it is.
pub(crate) fn common(root: &DriverRoot, files: &DriverFiles) -> ContainerEdits {
    no_others(files.edits(root))
}

/// An old runtime hook that looks at this variable must not inject the GPUs of its own choice as well.
pub(crate) fn no_others(edits: ContainerEdits) -> ContainerEdits {
    edits.env("NVIDIA_VISIBLE_DEVICES", "void")
}
