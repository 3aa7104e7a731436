//! Builds what runs in the cluster: the drivers and the scenarios (Rust), and their helpers (Go).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::plan::Tier;
use crate::{cluster::build, helm, image::Driver, static_build};

/// Drivers under test: built as they are shipped, so without what is only for people at a desk.
const DRIVERS: [&str; 2] = ["hello-driver", "mock-gpu-driver"];
/// The module of a containerd in which CDI can be off.
const OLDER_CONTAINERD: &str = "github.com/containerd/containerd/v2";

/// Where the built programs are.
pub(crate) struct Tools {
    /// The folder of the drivers' binaries.
    pub(crate) binaries: PathBuf,
    /// The program that runs the scenarios. `dra-doctor` lies beside it.
    pub(crate) scenarios: PathBuf,
    /// The folder of the Go helpers: `grpc-dial`, `cdi-oracle-VERSION` for each version of the CDI library,
    /// `go-driver-VERSION` for each of the Go helper for drivers, and of the newest `metadata-oracle` and the files that it
    /// is tested with, `metadata-fixtures`; `cel-oracle` and the cases that the scheduler's CEL package is tested with,
    /// `cel-cases.json`; `allocator-oracle`; `helm`, and the images of the drivers that have a chart, `mock-gpu-driver.tar` and
    /// `nvidia-gpu-driver.tar`. For the full tier there is the folder `older-containerd` too.
    pub(crate) helpers: PathBuf,
}

/// How the drivers are built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Drivers {
    /// As they are shipped: minutes.
    Shipped,
    /// Seconds, while a scenario is being written; what they weigh says nothing.
    Unoptimized,
}

/// Builds all of it; what is up to date costs little.
pub(super) fn build(root: &Path, tier: Tier, drivers: Drivers) -> Result<Tools> {
    let helpers = self::helpers(root, tier)?;
    let target = target_folder(root)?;
    // What the NVIDIA driver weighs is not looked at, and building it as it is shipped takes minutes.
    cargo_build(root, &["--package", "e2e", "--package", "dra-doctor", "--package", "nvidia-gpu-driver"])?;
    let stripped = strip(&target.join("debug").join(Driver::Nvidia.package()), &helpers)?;
    write_image(Driver::Nvidia, &stripped, &helpers)?;
    let binaries = self::drivers(root, drivers)?;
    let size = write_image(Driver::Mock, &binaries.join(Driver::Mock.package()), &helpers)?;
    if drivers == Drivers::Shipped {
        Driver::Mock.check_size(size)?;
    }
    Ok(Tools { binaries, scenarios: target.join("debug/e2e"), helpers })
}

/// Builds what is written in Go, and gives the folder that it is in.
pub(super) fn helpers(root: &Path, tier: Tier) -> Result<PathBuf> {
    let helpers = root.join("target/e2e/helpers");
    fs::create_dir_all(&helpers).with_context(|| format!("creating {}", helpers.display()))?;
    build::go(&root.join("e2e/grpc-dial"), &[], &helpers.join("grpc-dial"), &["."])?;
    build_oracles(&root.join("e2e/cdi-oracle"), &helpers)?;
    build_go_drivers(&root.join("e2e/go-driver"), &helpers)?;
    build_metadata_oracle(&root.join("e2e/go-driver"), &helpers)?;
    build_cel_oracle(&root.join("e2e/cel-oracle"), &helpers)?;
    build_allocator_oracle(root, &helpers)?;
    helm::build(root, &helpers)?;
    if tier == Tier::Full {
        build_older_containerd(root, &helpers)?;
    }
    Ok(helpers)
}

/// Builds the drivers under test, and gives the folder that they are in.
pub(super) fn drivers(root: &Path, drivers: Drivers) -> Result<PathBuf> {
    let mut arguments = vec!["--no-default-features"];
    arguments.extend(DRIVERS.iter().flat_map(|driver| ["--package", driver]));
    if drivers == Drivers::Shipped {
        arguments.push("--release");
    }
    static_build::run(root, &arguments)
}

/// Writes a driver's image, as it is called in the cluster, beside the helpers, and gives its size, unpacked.
fn write_image(driver: Driver, program: &Path, helpers: &Path) -> Result<u64> {
    let archive = helpers.join(format!("{}.tar", driver.package()));
    driver.write(program, &format!("dra.test/{}:v1", driver.package()), &archive)
}

/// Puts a program without what only a debugger reads into a folder, and says where it is: most of a program that is not
/// optimized is that.
fn strip(program: &Path, folder: &Path) -> Result<PathBuf> {
    let stripped = folder.join(program.file_name().unwrap_or_default());
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(&stripped).arg(program).status();
    let status =
        status.with_context(|| format!("running {strip:?}; it comes with the linker, in binutils"))?;
    ensure!(status.success(), "{strip:?} failed: {status}");
    Ok(stripped)
}

/// Builds a containerd from before 2.4, from when on CDI cannot be off, and its shim. Only scenarios of the full tier need it.
fn build_older_containerd(root: &Path, helpers: &Path) -> Result<()> {
    let module = root.join("e2e/older-containerd");
    let packages =
        ["containerd", "containerd-shim-runc-v2"].map(|name| format!("{OLDER_CONTAINERD}/cmd/{name}"));
    // The slash makes it a folder: one file for each package.
    let folder = helpers.join("older-containerd/");
    build::go(&module, &["-ldflags=-s -w"], &folder, &packages.each_ref().map(String::as_str))
}

/// Runs `cargo build` in the workspace.
pub(crate) fn cargo_build(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut build = cargo(root);
    build.arg("build").args(arguments);
    let status = build.status().with_context(|| format!("running {build:?}"))?;
    ensure!(status.success(), "{build:?} failed: {status}");
    Ok(())
}

/// The folder that cargo builds in.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let mut metadata = cargo(root);
    let output = metadata.args(["metadata", "--no-deps", "--format-version=1"]).output();
    let output = output.context("running `cargo metadata`")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("reading `cargo metadata`")?;
    let target = metadata["target_directory"].as_str().context("`cargo metadata` names no target folder")?;
    Ok(PathBuf::from(target))
}

/// The cargo that runs us, without what it tells us of ourselves: build scripts that look at such variables (ring's) would
/// run again, and all that depends on them would be built anew.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root);
    cargo
}

fn build_oracles(module: &Path, helpers: &Path) -> Result<()> {
    for (file, version) in module_files(module, "tags.cncf.io/container-device-interface")? {
        let flag = format!("-modfile={}", file.display());
        build::go(module, &[&flag], &helpers.join(format!("cdi-oracle-{version}")), &["."])?;
    }
    Ok(())
}

/// Builds the driver on each version of the Go helper. The source has build tags, such as `helper_0_35`, for what differs between versions of the Go helper.
pub(crate) fn build_go_drivers(module: &Path, helpers: &Path) -> Result<()> {
    for (file, version) in module_files(module, "k8s.io/dynamic-resource-allocation")? {
        let version = version.trim_start_matches('v');
        let minor: Vec<_> = version.split('.').take(2).collect();
        let flags = [
            format!("-modfile={}", file.display()),
            format!("-tags=helper_{}", minor.join("_")),
            "-ldflags=-s -w".to_owned(),
        ];
        let flags = flags.each_ref().map(String::as_str);
        build::go(module, &flags, &helpers.join(format!("go-driver-{version}")), &["."])?;
    }
    Ok(())
}

fn build_metadata_oracle(module: &Path, helpers: &Path) -> Result<()> {
    build::go(module, &["-ldflags=-s -w"], &helpers.join("metadata-oracle"), &["./metadata-oracle"])?;
    let source = source_of(module, "k8s.io/dynamic-resource-allocation")?.join("api/metadata/testdata");
    let fixtures = helpers.join("metadata-fixtures");
    fs::create_dir_all(&fixtures).with_context(|| format!("creating {}", fixtures.display()))?;
    for version in ["HEAD", "v1.36.0"] {
        let file = source.join(version).join("metadata.json");
        let bytes = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let copy = fixtures.join(format!("{version}.json"));
        fs::write(&copy, bytes).with_context(|| format!("writing {}", copy.display()))?;
    }
    Ok(())
}

/// The program that answers for the scheduler's allocators.
pub(crate) fn build_allocator_oracle(root: &Path, helpers: &Path) -> Result<PathBuf> {
    let program = helpers.join("allocator-oracle");
    build::go(&root.join("e2e/allocator-oracle"), &["-ldflags=-s -w"], &program, &["."])?;
    Ok(program)
}

/// The oracle, and the table of cases in the CEL package's own tests. The table is told by a test that is added to a copy of
/// the package: Go does not let one look into tests of other modules.
fn build_cel_oracle(module: &Path, helpers: &Path) -> Result<()> {
    build::go(module, &["-ldflags=-s -w"], &helpers.join("cel-oracle"), &["."])?;
    let source = source_of(module, "k8s.io/dynamic-resource-allocation")?;
    let copy = helpers.join("cel-package");
    copy_sources(&source, &copy)?;
    let export = module.join("testdata/export_test.go");
    fs::copy(&export, copy.join("cel/export_test.go"))
        .with_context(|| format!("copying {}", export.display()))?;
    let mut test = Command::new("go");
    test.args(["test", "-count=1", "-run=^TestExport$", "./cel"])
        .env("CEL_CASES", helpers.join("cel-cases.json"))
        .current_dir(&copy);
    let status = test.status().with_context(|| format!("running {test:?}"))?;
    ensure!(status.success(), "{test:?} in {} failed: {status}", copy.display());
    Ok(())
}

/// The folder with the source of a module that `module` requires.
fn source_of(module: &Path, library: &str) -> Result<PathBuf> {
    let mut list = Command::new("go");
    list.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", library]).current_dir(module);
    let listed = list.output().with_context(|| format!("running {list:?}"))?;
    ensure!(listed.status.success(), "{list:?} failed: {}", String::from_utf8_lossy(&listed.stderr));
    let source = String::from_utf8(listed.stdout).with_context(|| format!("{list:?} names no folder"))?;
    Ok(PathBuf::from(source.trim()))
}

/// Copies a folder of sources with its folders. What is there already is written over.
fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_sources(&entry.path(), &target)?;
            continue;
        }
        // Sources of Go modules are read-only, and so would be the copy.
        let bytes = fs::read(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
        fs::write(&target, bytes).with_context(|| format!("writing {}", target.display()))?;
    }
    Ok(())
}

/// The module files of a Go module, each with the version that it requires of `library`: go.mod, and those in `mods/`
/// that can stand in for it.
fn module_files(module: &Path, library: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![module.join("go.mod")];
    let others = module.join("mods");
    for entry in fs::read_dir(&others).with_context(|| format!("reading {}", others.display()))? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "mod"));
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let version = build::required(&text, library)
                .with_context(|| format!("{} requires no {library}", file.display()))?;
            Ok((file, version.to_owned()))
        })
        .collect()
}
