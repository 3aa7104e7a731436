//! A DRA driver for scratch space: a claim gets a folder of its own on a disk of the node, and the folder goes with it.
//!
//! `docs/writing-a-driver.md` builds it step by step.

mod config;
mod disks;
mod plugin;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser;
use dra_kubeletplugin::{
    DeviceRef, DriverResources, Handle, HealthReporter, HealthTaints, NodeName, Options, PoolName,
    client_from, signals,
};

use crate::{disks::Disk, plugin::Scratch};

const DRIVER: &str = "scratch.example.com";

#[derive(Parser)]
struct Cli {
    /// Node that this driver runs on.
    #[arg(long, env = "NODE_NAME")]
    node_name: NodeName,
    /// UID of the driver's pod: turns rolling updates on.
    #[arg(long, env = "POD_UID")]
    pod_uid: Option<String>,
    /// Folder with the disks.
    #[arg(long, env = "DISKS", default_value = "/mnt/disks")]
    disks: PathBuf,
    /// Address to serve metrics and probes on, such as `0.0.0.0:8080`.
    #[arg(long, env = "METRICS_ADDRESS")]
    metrics_address: Option<SocketAddr>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let stop = signals::terminate()?;
    let client = client_from(None).await?;
    let mut options = Options::new(DRIVER.parse()?, cli.node_name.clone(), client);
    if let Some(uid) = cli.pod_uid {
        options = options.rolling_update(uid);
    }
    if let Some(address) = cli.metrics_address {
        options = options.operations(address);
    }
    let plugin = serve(options, &cli.node_name, &cli.disks).await?;
    Ok(plugin.shutdown_on(stop).await?)
}

async fn serve(options: Options, node: &NodeName, root: &Path) -> anyhow::Result<Handle> {
    let disks =
        disks::discover(root).await.with_context(|| format!("looking for disks in {}", root.display()))?;
    let devices = disks.iter().map(Disk::device).collect::<anyhow::Result<Vec<_>>>()?;
    let pool: PoolName = node.as_str().parse()?;

    let taints = HealthTaints::new("scratch.example.com/unhealthy");
    let options = options.health(true).taint_unhealthy(taints);
    let plugin = options.start(Scratch { disks: disks.clone() }).await?;

    report(&plugin.health(), &pool, &disks).await;
    let _ticket = plugin.publish(DriverResources::single_pool(pool.clone(), devices));
    tokio::spawn(watch(plugin.health(), pool, disks));
    Ok(plugin)
}

/// Says how the disks are, again and again.
async fn watch(health: HealthReporter, pool: PoolName, disks: Vec<Disk>) {
    let mut often = tokio::time::interval(Duration::from_secs(2));
    loop {
        often.tick().await;
        report(&health, &pool, &disks).await;
    }
}

async fn report(health: &HealthReporter, pool: &PoolName, disks: &[Disk]) {
    for disk in disks {
        health.report(DeviceRef::new(pool.clone(), disk.name.clone()), disk.health().await);
    }
}
