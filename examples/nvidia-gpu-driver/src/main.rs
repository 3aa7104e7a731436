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
mod monitor;
mod mps;
mod node;
mod options;
mod partition;
mod plugin;
mod program;
mod records;
mod run;
mod state;
mod sweep;
mod taken;
mod time_slice;
mod vfio;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match mps::become_program(std::env::args_os()).map_or_else(serve, |error| Err(error.into())) {
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
