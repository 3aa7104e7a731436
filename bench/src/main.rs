//! What a driver on the SDK costs, beside one on the Go helper, on real Kubernetes.
//!
//! `cargo xtask bench` builds all that is needed and runs this inside a cluster's namespaces. The program in
//! `e2e/go-load` makes the calls; this starts the drivers, counts, and writes the report.

mod bench;
mod claims;
mod environment;
mod goals;
mod load;
mod measure;
mod node;
mod program;
mod report;
mod samples;
mod slices;
mod variant;
mod work;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;

use bench::{Bench, Part};
use environment::Environment;

#[derive(Parser)]
#[command(about = "Compares drivers on a real Kubernetes node; run it with `cargo xtask bench`")]
struct Cli {
    /// Fewer rounds, and no waiting for minutes.
    #[arg(long)]
    quick: bool,
    /// Only these parts; the figures of the others are missing in the report.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// The version of the cluster.
    #[arg(long)]
    kubernetes: String,
    /// What was built.
    #[arg(long)]
    commit: String,
    /// The folder that has the drivers' binaries.
    #[arg(long)]
    binaries: PathBuf,
    /// The folder that has the Go helpers.
    #[arg(long)]
    helpers: PathBuf,
    /// A folder on a disk for the drivers' data, logs and other files.
    #[arg(long)]
    scratch: PathBuf,
    /// Where to write the report.
    #[arg(long)]
    report: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let client = kube::Client::try_default().await.context("reading the kubeconfig (KUBECONFIG names it)")?;
    let environment = Environment::look(cli.commit, cli.kubernetes, &cli.scratch).await?;
    let bench = Bench {
        client,
        quick: cli.quick,
        only: cli.only,
        binaries: cli.binaries,
        helpers: cli.helpers,
        scratch: cli.scratch,
    };
    let samples = bench.run().await?;
    let text = report::render(&environment, cli.quick, &samples);
    println!("{text}");
    fs::write(&cli.report, text).with_context(|| format!("writing {}", cli.report.display()))
}
