//! Tries the NVIDIA driver on a machine with a GPU.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::e2e::tools::{cargo_build, target_folder};

#[derive(Args)]
pub(crate) struct Options {
    /// Options of `gpu-smoke`; those behind `--` are the driver's, such as `-- --nvidia-driver-root /run/nvidia/driver`.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    options: Vec<String>,
}

/// Builds driver and program, and runs them.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    cargo_build(root, &["--package", "nvidia-gpu-driver"])?;
    let program = target_folder(root)?.join("debug/gpu-smoke");
    let status = Command::new(&program).args(&options.options).status();
    let status = status.with_context(|| format!("running {}", program.display()))?;
    ensure!(status.success(), "gpu-smoke: {status}");
    Ok(())
}
