//! Chores of this workspace: `cargo xtask --help`.

mod allocations;
mod bench;
mod chart;
mod cluster;
mod codegen;
mod e2e;
mod gpu_smoke;
mod helm;
mod image;
mod static_build;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of this workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make the gRPC code anew from proto/.
    Codegen {
        /// Write nothing; fail if the committed code differs.
        #[arg(long)]
        check: bool,
    },
    /// A real one-node Kubernetes in namespaces of its own, built from Go modules. Needs root and Go.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Test against real Kubernetes: build what is missing, start it, run the scenarios, stop it.
    E2e(e2e::Options),
    /// Build ahead what `e2e` takes longest to build, while something else is done in the workspace.
    Prepare(e2e::PrepareOptions),
    /// Compare drivers on the SDK and on the Go helper, on real Kubernetes, and write docs/benchmarks.md.
    Bench(bench::Options),
    /// Lint the drivers' Helm charts and render them with all sorts of values. Needs Go.
    Chart,
    /// Build a driver's container image without Docker, as an archive for `ctr images import` or `podman load`.
    Image(image::Options),
    /// Try the NVIDIA driver on the GPUs of this machine: what it publishes is held against what nvidia-smi tells.
    GpuSmoke(gpu_smoke::Options),
    /// Compare random allocations of dra-allocator with those of the scheduler's allocators. Needs Go.
    Allocations(allocations::Options),
    /// Let pods come and go on real Kubernetes while its parts and the driver are stopped and started at random.
    Soak(e2e::SoakOptions),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    let root = workspace_root()?;
    match task {
        Task::Codegen { check } => codegen::run(&root, check),
        Task::Cluster(command) => cluster::run(&root, command),
        Task::E2e(options) => e2e::run(&root, &options),
        Task::Prepare(options) => e2e::prepare(&root, &options),
        Task::Bench(options) => bench::run(&root, &options),
        Task::Chart => chart::run(&root),
        Task::Image(options) => image::run(&root, &options),
        Task::GpuSmoke(options) => gpu_smoke::run(&root, &options),
        Task::Allocations(options) => allocations::run(&root, &options),
        Task::Soak(options) => e2e::run(&root, &options.into()),
    }
}

/// The folder that holds the workspace's `Cargo.toml`.
fn workspace_root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(Path::to_path_buf).context("xtask lies in no workspace")
}
