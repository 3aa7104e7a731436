//! Serves the kubelet of a node until the process is told to end.

use dra_kubeletplugin::{HealthTaints, Options, client_from, kube, signals};
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
    let client = client_from(options.kubeconfig.as_deref()).await?;
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

pub(crate) fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
