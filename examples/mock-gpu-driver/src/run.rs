//! Serves the kubelet of a node until the process is told to end.

use std::path::Path;

use anyhow::Context as _;
use dra_kubeletplugin::{DriverResources, Options, Registration, kube, signals};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tracing_subscriber::EnvFilter;

use crate::{
    inventory::Inventory,
    options::{LogFormat, RunOptions},
    plugin::MockGpus,
};

pub(crate) async fn run(options: RunOptions) -> anyhow::Result<()> {
    start_log(options.log_format);
    let client = client(options.kubeconfig.as_deref()).await?;
    let inventory = match &options.inventory {
        Some(file) => Inventory::from_file(file)?,
        None => Inventory::of_node(&options.node_name, options.num_devices)?,
    };
    let pool = options.node_name.as_str().parse()?;
    let resources = DriverResources::new().pool(pool, inventory.pool().clone());
    let plugin = MockGpus {
        inventory,
        driver: options.place.driver_name.clone(),
        node: options.node_name.clone(),
        metadata: options.metadata,
        prepare_delay: options.prepare_delay,
        slow_devices: options.slow_devices,
        fail_prepare: options.fail_prepare,
    };
    let mut settings = Options::new(options.place.driver_name, options.node_name, client)
        .kubelet_root(&options.place.kubelet_root)
        .cdi_root(&options.place.cdi_root);
    if let Some(uid) = options.pod_uid.filter(|uid| !uid.is_empty()) {
        settings = settings.rolling_update(uid);
    }
    if let Some(id) = options.boot_id {
        settings = settings.boot_id(id);
    }
    for address in [options.metrics_address, options.health_address].into_iter().flatten() {
        settings = settings.operations(address);
    }
    let handle = settings.start(plugin).await?;
    tracing::info!("serving the kubelet");
    let mut published = handle.publish(resources);
    let mut registration = handle.registration();
    tokio::spawn(async move {
        if registration.wait_for(Registration::is_registered).await.is_ok() {
            match published.published().await {
                Ok(published) => tracing::info!(?published, "devices published"),
                Err(error) => tracing::error!(%error, "devices not published"),
            }
        }
    });
    Ok(handle.shutdown_on(signals::terminate()).await?)
}

async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
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

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
