//! helm, built from its Go module. Go's cache makes that quick from the second time on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{self, build};

const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// Builds the program into `folder`.
///
/// # Errors
/// Go is missing, or the build fails.
pub(crate) fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    ensure!(
        cluster::find_program("go").is_some(),
        "helm is built from its Go module, and `go` is not on PATH: apt-get install --yes golang-go, or unpack a \
         release of Go and put its bin folder on PATH",
    );
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = folder.join("helm");
    build::go(&root.join("e2e/helm"), &["-ldflags=-s -w"], &program, &[PACKAGE])?;
    Ok(program)
}
