//! A program with both of rustls's providers of cryptography, outside the workspace: see `e2e/two-providers`.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

/// Builds and runs it, with the SDK's choice and without.
///
/// # Errors
/// It cannot be built, or the SDK's client is not what it should be.
pub(super) fn check(root: &Path) -> Result<()> {
    for features in ["", "chosen"] {
        let mut cargo = Command::new("cargo");
        cargo.args(["run", "--quiet", "--manifest-path"]).arg(root.join("e2e/two-providers/Cargo.toml"));
        cargo.arg("--target-dir").arg(root.join("target/two-providers")).args(["--features", features]);
        let status = cargo.status().context("running cargo for e2e/two-providers")?;
        ensure!(status.success(), "e2e/two-providers with the features {features:?}: {status}");
    }
    Ok(())
}
