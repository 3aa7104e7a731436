//! Serves the kubelet of a node until the process is told to end.

use std::path::Path;

use anyhow::Context as _;
use dra_kubeletplugin::{HealthTaints, Options, kube, signals};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tracing_subscriber::EnvFilter;

use crate::{
    faults, offer,
    options::{LogFormat, RunOptions},
    plugin::MockDriver,
};

pub(crate) async fn run(options: RunOptions) -> anyhow::Result<()> {
    start_log(options.log_format);
    match faults::second_driver(&options) {
        None => serve(options).await,
        Some(second) => tokio::try_join!(serve(options), serve(second)).map(drop),
    }
}

async fn serve(options: RunOptions) -> anyhow::Result<()> {
    let stop = signals::terminate()?;
    let client = client(options.kubeconfig.as_deref()).await?;
    let (driver, node) = (options.place.driver_name.clone(), options.node_name.clone());
    let devices = options.place.device_profile.build(&driver, &node, &options.devices);
    let inventory = options.extras.inventory(&client, || devices.pool())?;
    let plugin = MockDriver {
        profile: options.place.device_profile,
        devices,
        inventory: inventory.clone(),
        go_books: options.extras.go_books(&driver),
        driver,
        node: node.clone(),
        describes_devices: options.describe_devices,
        faults: options.faults.clone(),
    };
    let handle = settings(options, client).start(plugin).await?;
    tracing::info!("serving the kubelet");
    offer::keep(&handle, node.as_str().parse()?, inventory);
    Ok(handle.shutdown_on(stop).await?)
}

fn settings(options: RunOptions, client: kube::Client) -> Options {
    let taint = options.taint_unhealthy.map(|effect| {
        let key = format!("{}/unhealthy", options.place.driver_name);
        HealthTaints::new(key).effect(effect)
    });
    let mut settings = Options::new(options.place.driver_name, options.node_name, client)
        .kubelet_root(&options.place.kubelet_root)
        .cdi_root(&options.place.cdi_root)
        .node_events(options.node_events)
        .health(true)
        .health_versions(options.faults.health_versions.into_iter().map(Into::into));
    if let Some(taint) = taint {
        settings = settings.taint_unhealthy(taint);
    }
    if let Some(uid) = options.pod_uid.filter(|uid| !uid.is_empty()) {
        settings = settings.rolling_update(uid);
    }
    if let Some(id) = options.faults.boot_id {
        settings = settings.boot_id(id);
    }
    for address in [options.metrics_address, options.health_address].into_iter().flatten() {
        settings = settings.operations(address);
    }
    settings
}

/// A client for the API server.
///
/// # Errors
/// There is no kubeconfig and no service account, or it cannot be used.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    let config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
            let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer().await.context(
            "no way to the API server: neither a pod's service account nor a kubeconfig; give one by --kubeconfig",
        )?,
    };
    dra_kubeletplugin::client(config).context("client for the API server")
}

pub(crate) fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
