//! `cargo xtask bench`: builds the drivers and what measures them, starts real Kubernetes, and measures.
//!
//! What is measured, and how, is in the `bench` crate.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{
    cluster::{
        self, build,
        running::{Cluster, Start},
        version::Version,
    },
    e2e::tools,
    static_build,
};

/// How much to measure.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Fewer rounds, and no waiting for minutes; the report goes to target/e2e/bench/ then.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these parts: rounds, held, work, restarts, silence. The report goes to target/e2e/bench/ then.
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
}

/// What was built.
struct Tools {
    /// The program that measures.
    bench: PathBuf,
    /// The folders of what is measured: our driver, and the Go programs.
    binaries: PathBuf,
    helpers: PathBuf,
}

/// Measures, prints the report, and writes it to docs/benchmarks.md if it is a whole one.
///
/// # Errors
/// Something could not be built, started or measured. A goal that is missed is none.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let kubernetes = Version::NEWEST;
    cluster::check_needs(root, kubernetes)?;
    check_strace()?;
    let tools = build_tools(root)?;
    let programs = build::ensure(root, kubernetes)?;
    let place = root.join("target/e2e/bench");
    let (cluster, scratch) = (Cluster::in_dir(place.join("cluster")), place.join("scratch"));
    cluster.down()?;
    if scratch.exists() {
        fs::remove_dir_all(&scratch).with_context(|| format!("emptying {}", scratch.display()))?;
    }
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    cluster.up(root, &Start { programs: &programs, feature_gates: "", ends_with_us: true })?;
    let whole = !options.quick && options.only.is_empty();
    let report = if whole { root.join("docs/benchmarks.md") } else { place.join("benchmarks.md") };
    let start = Instant::now();
    let measured = measure(&cluster, &tools, options, kubernetes, &scratch, &report, &commit(root)?);
    cluster.down()?;
    measured.with_context(|| {
        format!("logs are in {} and {}", scratch.display(), cluster.dir().join("log").display())
    })?;
    println!("measured in {:.0} s; the report is in {}", start.elapsed().as_secs_f64(), report.display());
    Ok(())
}

fn measure(
    cluster: &Cluster,
    tools: &Tools,
    options: &Options,
    kubernetes: Version,
    scratch: &Path,
    report: &Path,
    commit: &str,
) -> Result<()> {
    let mut command: Vec<OsString> = vec![tools.bench.clone().into()];
    for (option, value) in [
        ("--kubernetes", kubernetes.to_string().into()),
        ("--commit", commit.into()),
        ("--binaries", tools.binaries.clone().into_os_string()),
        ("--helpers", tools.helpers.clone().into_os_string()),
        ("--scratch", scratch.as_os_str().to_owned()),
        ("--report", report.as_os_str().to_owned()),
    ] {
        command.extend([option.into(), value]);
    }
    if options.quick {
        command.push("--quick".into());
    }
    for part in &options.only {
        command.extend(["--only".into(), part.into()]);
    }
    let mut command = cluster.inside(&command)?;
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "nothing was measured to the end: {status}");
    Ok(())
}

fn build_tools(root: &Path) -> Result<Tools> {
    let helpers = root.join("target/e2e/helpers");
    fs::create_dir_all(&helpers).with_context(|| format!("creating {}", helpers.display()))?;
    build::go(&root.join("e2e/go-load"), &["-ldflags=-s -w"], &helpers.join("go-load"), &["."])?;
    tools::build_go_drivers(&root.join("e2e/go-driver"), &helpers)?;
    tools::cargo_build(root, &["--package", "bench", "--bin", "bench"])?;
    // Together, so that what they share is built once. The bare program adds no feature to the driver.
    let mut measured = vec!["--release", "--no-default-features"];
    measured.extend(["--package", "mock-gpu-driver", "--package", "bench"]);
    measured.extend(["--bin", "mock-gpu-driver", "--bin", "floor"]);
    let binaries = static_build::run(root, &measured)?;
    let target = tools::target_folder(root)?;
    Ok(Tools { bench: target.join("debug/bench"), binaries, helpers })
}

/// It counts syncs.
pub(crate) fn check_strace() -> Result<()> {
    let found = cluster::find_program("strace").is_some();
    ensure!(found, "`strace` is missing: apt-get update && apt-get install --yes strace");
    Ok(())
}

/// Which commit is measured, and whether the tree differs from it.
fn commit(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude=*"]).current_dir(root);
    let output = git.output().with_context(|| format!("running {git:?}"))?;
    ensure!(output.status.success(), "{git:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
