//! Builds what runs in the cluster: the drivers and the scenarios (Rust), and their helpers (Go).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::cluster::build;

/// Drivers under test: built as they are shipped, so without what is only for people at a desk.
const DRIVERS: [&str; 2] = ["hello-driver", "mock-gpu-driver"];

/// Where the built programs are.
pub(crate) struct Tools {
    /// The folder of the drivers' binaries.
    pub(crate) binaries: PathBuf,
    /// The program that runs the scenarios.
    pub(crate) scenarios: PathBuf,
    /// The folder of the Go helpers: `grpc-dial`, and `cdi-oracle-VERSION` for each version of the CDI library.
    pub(crate) helpers: PathBuf,
}

/// Builds all of it; what is up to date costs little.
pub(crate) fn build(root: &Path) -> Result<Tools> {
    let helpers = root.join("target/e2e/helpers");
    fs::create_dir_all(&helpers).with_context(|| format!("creating {}", helpers.display()))?;
    build::go(&root.join("e2e/grpc-dial"), &[], &helpers.join("grpc-dial"), &["."])?;
    build_oracles(&root.join("e2e/cdi-oracle"), &helpers)?;
    let target = target_folder(root)?;
    cargo_build(root, &["--package", "e2e"])?;
    let mut drivers = vec!["--release", "--no-default-features"];
    drivers.extend(DRIVERS.iter().flat_map(|driver| ["--package", driver]));
    cargo_build(root, &drivers)?;
    Ok(Tools { binaries: target.join("release"), scenarios: target.join("debug/e2e"), helpers })
}

fn cargo_build(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut build = cargo(root);
    build.arg("build").args(arguments);
    let status = build.status().with_context(|| format!("running {build:?}"))?;
    ensure!(status.success(), "{build:?} failed: {status}");
    Ok(())
}

fn target_folder(root: &Path) -> Result<PathBuf> {
    let mut metadata = cargo(root);
    let output = metadata.args(["metadata", "--no-deps", "--format-version=1"]).output();
    let output = output.context("running `cargo metadata`")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading `cargo metadata`")?;
    let target = metadata["target_directory"].as_str().context("`cargo metadata` names no target folder")?;
    Ok(PathBuf::from(target))
}

/// The cargo that runs us.
fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// One oracle for each version of the CDI library: that of go.mod, and of each module file that can stand in for it.
fn build_oracles(module: &Path, helpers: &Path) -> Result<()> {
    const LIBRARY: &str = "tags.cncf.io/container-device-interface";
    let mut module_files = vec![module.join("go.mod")];
    let others = module.join("mods");
    for entry in fs::read_dir(&others).with_context(|| format!("reading {}", others.display()))? {
        module_files.push(entry?.path());
    }
    for file in
        module_files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "mod"))
    {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let version = build::required(&text, LIBRARY)
            .with_context(|| format!("{} requires no {LIBRARY}", file.display()))?;
        let flag = format!("-modfile={}", file.display());
        build::go(module, &[&flag], &helpers.join(format!("cdi-oracle-{version}")), &["."])?;
    }
    Ok(())
}
