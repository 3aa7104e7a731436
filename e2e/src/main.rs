//! Scenarios on a real Kubernetes node: real API server, scheduler, kubelet and containerd, real drivers.
//!
//! `cargo xtask e2e` builds all that is needed and runs this inside a cluster's namespaces. A scenario is an
//! `async fn(&Context) -> Result<()>` in `scenarios/`; what it can use is on [`context::Context`].

mod account;
mod allocator;
mod cdi_full_disk;
mod cdi_oracle;
mod cel_oracle;
mod chart;
#[cfg(test)]
mod compatibility;
mod context;
mod demo;
mod dice;
mod dra_socket;
mod driver;
mod eventually;
mod feature_gates;
mod kubelet;
mod node;
mod pod;
mod queue;
mod read_only;
mod runner;
mod scenario;
mod scenarios;
mod slice_history;
mod slice_suite;
mod small_disk;
mod soak;
mod socket_proxy;
mod troubled_api;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use context::Setup;
use queue::Queue;
use scenario::{Suite, Tier};

#[derive(Parser)]
#[command(about = "Scenarios on a real Kubernetes node; run them with `cargo xtask e2e`")]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    /// Run the scenarios of this tier and of those before it.
    #[arg(long, value_enum, default_value_t = Tier::Gate)]
    tier: Tier,
    /// Run only scenarios with this text in their name.
    #[arg(long)]
    only: Option<String>,
    /// Run only scenarios of this suite.
    #[arg(long, value_enum)]
    suite: Option<Suite>,
    /// Run only those that no other run with this folder has taken, the longest first. It is empty before the first run.
    #[arg(long)]
    queue: Option<PathBuf>,
    /// Write what commands print now into the documents that show something else, which is a failure without it.
    #[arg(long)]
    update: bool,
    /// Print what would be run, and run nothing.
    #[arg(long)]
    list: bool,
    /// The version of the cluster.
    #[arg(long, default_value = "unknown")]
    kubernetes: String,
    /// The folder that has the drivers' binaries.
    #[arg(long, default_value = "target/release")]
    binaries: PathBuf,
    /// The folder that has the Go helpers.
    #[arg(long, default_value = "target/e2e/helpers")]
    helpers: PathBuf,
    /// A folder for logs and other files of the scenarios.
    #[arg(long, default_value = "target/e2e/scratch")]
    scratch: PathBuf,
    /// Where to write how many passed, failed, and need another version, and how many the runs with this queue have together.
    #[arg(long)]
    summary: Option<PathBuf>,
    #[command(flatten)]
    soak: SoakOptions,
}

/// What needs no cluster.
#[derive(Subcommand)]
enum Task {
    /// Compare random allocations with those of the scheduler's allocators; run it with `cargo xtask allocations`.
    Allocations {
        /// The program that answers for them.
        #[arg(long)]
        oracle: PathBuf,
        /// How many worlds to draw.
        #[arg(long)]
        cases: u64,
        /// What the worlds are drawn with.
        #[arg(long)]
        seed: u64,
    },
}

/// What may be said of the soak; the rest is for its scenario to say.
#[derive(Args, Clone, Copy)]
struct SoakOptions {
    /// How long the soak lasts, without the waits for a quiet node.
    #[arg(long = "soak-minutes")]
    minutes: Option<u64>,
    /// What the soak draws its events with, as an earlier run has printed it.
    #[arg(long = "soak-seed")]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all passed.
async fn run(cli: Cli) -> Result<bool> {
    if let Some(Task::Allocations { oracle, cases, seed }) = cli.task {
        let settings = allocator::fuzz::Settings { cases, seed };
        let compared = tokio::task::spawn_blocking(move || allocator::fuzz::run(&oracle, settings));
        print!("{}", compared.await.context("the comparison broke off")??);
        return Ok(true);
    }
    let chosen = scenario::choose(scenarios::all(), cli.tier, cli.suite, cli.only.as_deref());
    if cli.list {
        for scenario in &chosen {
            println!("{scenario}");
        }
        return Ok(true);
    }
    let client = kube::Client::try_default().await.context("reading the kubeconfig (KUBECONFIG names it)")?;
    let setup = Setup {
        client,
        tier: cli.tier,
        kubernetes: cli.kubernetes,
        binaries: cli.binaries,
        helpers: cli.helpers,
        scratch: cli.scratch,
        soak: cli.soak,
        updates: cli.update,
    };
    let all = chosen.len();
    let queue = match cli.queue {
        Some(folder) => Queue::shared(chosen, folder),
        None => Queue::alone(chosen),
    };
    let count = runner::run(&setup, queue).await?;
    if let Some(summary) = cli.summary {
        let text = format!("{} {} {} {all}\n", count.passed, count.failed, count.unsuited);
        std::fs::write(&summary, text).with_context(|| format!("writing {}", summary.display()))?;
    }
    Ok(count.failed == 0)
}
