//! A driver for GPUs that do not exist: the SDK's example, and what its tests run.

mod demo;
mod inventory;
mod options;
mod plugin;
mod run;

use std::process::ExitCode;

use clap::Parser as _;
use options::{Cli, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        None => run::run(cli.run).await,
        Some(Command::Run(options)) => run::run(options).await,
        Some(Command::Demo(options)) => demo::demo(options).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
