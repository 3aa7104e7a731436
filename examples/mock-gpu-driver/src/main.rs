//! A driver for GPUs that do not exist: the SDK's example, and what its tests run.

#[cfg(feature = "demo")]
mod demo;
mod go_books;
mod inventory;
mod options;
mod plugin;
mod run;
mod state;
mod status;

use std::process::ExitCode;

use options::{Cli, Command, StateCommand};

// Two threads, however many processors a node has: one goes on while a call of the driver keeps the other busy.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let cli = Cli::from_arguments(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Run(options) => run::run(*options).await,
        Command::State(StateCommand::Repair(options)) => state::repair(options).await,
        Command::State(StateCommand::Release(options)) => state::release(options).await,
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::demo(options).await,
    };
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
