//! Chores of this workspace: `cargo xtask --help`.

mod codegen;

use std::path::{Path, PathBuf};

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
}

fn main() -> Result<()> {
    let root = workspace_root()?;
    match Cli::parse().task {
        Task::Codegen { check } => codegen::run(&root, check),
    }
}

/// The folder that holds the workspace's `Cargo.toml`.
fn workspace_root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map(Path::to_path_buf).context("xtask lies in no workspace")
}
