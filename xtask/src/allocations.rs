//! Random allocations of `dra-allocator`, held against the allocators of the Kubernetes scheduler.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::e2e::tools;

#[derive(Args)]
pub(crate) struct Options {
    /// How many worlds to draw.
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// What the worlds are drawn with, as an earlier run has printed it; without it the time is taken.
    #[arg(long)]
    seed: Option<u64>,
}

/// Builds the oracle and the scenarios' program, and lets that compare.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let helpers = root.join("target/e2e/helpers");
    fs::create_dir_all(&helpers).with_context(|| format!("creating {}", helpers.display()))?;
    let oracle = tools::build_allocator_oracle(root, &helpers)?;
    tools::cargo_build(root, &["--package", "e2e"])?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let seed = options.seed.unwrap_or(now.as_secs());
    let mut compare = Command::new(tools::target_folder(root)?.join("debug/e2e"));
    compare.arg("allocations").arg("--oracle").arg(oracle);
    compare.args([format!("--cases={}", options.cases), format!("--seed={seed}")]);
    let status = compare.status().with_context(|| format!("running {compare:?}"))?;
    ensure!(status.success(), "{compare:?} failed: {status}");
    Ok(())
}
