//! A driver for NVIDIA's GPUs: what `dra-driver-nvidia-gpu` does for GPUs, on the SDK.

mod cdi;
mod config;
mod device;
mod driver_root;
#[cfg(test)]
mod faults;
mod gpu;
mod hardware;
mod health;
mod inventory;
mod made;
mod mps;
mod node;
mod options;
mod partition;
mod plugin;
mod program;
mod records;
mod release;
mod run;
mod state;
mod sweep;
mod taken;
mod time_slice;
mod vfio;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let other = mps::become_program(std::env::args_os()).map(|error| Err(error.into()));
    match other.or_else(|| release::command(std::env::args_os())).unwrap_or_else(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve() -> anyhow::Result<()> {
    run::run(options::Options::parse()).await
}
