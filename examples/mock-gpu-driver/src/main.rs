//! A driver for GPUs that do not exist: the SDK's example, and what its tests run.

mod binding_controller;
#[cfg(feature = "demo")]
mod demo;
mod extras;
mod faults;
mod go_books;
mod health_pod;
mod inventory;
mod offer;
mod options;
mod plugin;
mod profile;
mod run;
mod state;
mod status;
mod webhook;

use std::process::ExitCode;

use options::{Cli, Command};

// Two threads, however many processors a node has: one goes on while a call of the driver keeps the other busy.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let cli = Cli::from_arguments(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Run(options) => run::run(*options).await,
        Command::State(command) => return state::run(command).await,
        Command::Webhook(options) => webhook::run(options).await,
        Command::BindingController(options) => binding_controller::run(options).await,
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::demo(options).await,
    };
    exit_code(outcome)
}

/// Tells of an error, in one line.
fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes; a cause that the text before it repeats already is left out.
fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (false, true) => text,
            (false, false) => format!("{text}: {cause}"),
        }
    })
}
