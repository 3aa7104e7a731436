//! Serves the kubelet of a node until the process is told to end.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use dra_kubeletplugin::{
    DeviceName, DeviceRef, DriverResources, HealthReporter, HealthTaints, Options, PoolName, Registration,
    Ticket, Wishes, kube, signals,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::{
    go_books::GoBooks,
    inventory::{Inventory, InventoryFile},
    options::{LogFormat, Place, RunOptions},
    plugin::MockGpus,
};

pub(crate) async fn run(options: RunOptions) -> anyhow::Result<()> {
    start_log(options.log_format);
    match options.second_driver.clone() {
        None => serve(options).await,
        Some(driver_name) => {
            let place = Place { driver_name, ..options.place.clone() };
            let second = RunOptions { place, metrics_address: None, health_address: None, ..options.clone() };
            tokio::try_join!(serve(options), serve(second)).map(drop)
        }
    }
}

async fn serve(options: RunOptions) -> anyhow::Result<()> {
    let stop = signals::terminate()?;
    let client = client(options.kubeconfig.as_deref()).await?;
    let (file, inventory) = match options.inventory.clone() {
        Some(path) => InventoryFile::open(path).map(|(file, inventory)| (Some(file), inventory))?,
        None => (None, Inventory::of_node(&options.node_name, options.num_devices)?),
    };
    let pool = options.node_name.as_str().parse()?;
    let (inventories, inventory) = watch::channel(Arc::new(inventory));
    let driver = &options.place.driver_name;
    let plugin = MockGpus {
        go_books: options.adopt_from.clone().map(|file| GoBooks::new(file, driver.clone())),
        inventory: inventory.clone(),
        driver: options.place.driver_name.clone(),
        node: options.node_name.clone(),
        describes_devices: options.describe_devices,
        prepare_delay: options.prepare_delay,
        slow_devices: options.slow_devices.clone(),
        fail_prepare: options.fail_prepare.clone(),
    };
    let handle = settings(options, client).start(plugin).await?;
    tracing::info!("serving the kubelet");
    let node = Node { pool, wishes: handle.wishes(), health: handle.health() };
    let published = node.offer(&inventory.borrow());
    tokio::spawn(log_published(handle.registration(), published));
    if let Some(file) = file {
        tokio::spawn(node.follow(file, inventories));
    }
    Ok(handle.shutdown_on(stop).await?)
}

fn settings(options: RunOptions, client: kube::Client) -> Options {
    let taint = options.taint_unhealthy.map(|effect| {
        let key = format!("{}/unhealthy", options.place.driver_name);
        HealthTaints::new(key).effect(effect.into())
    });
    let mut settings = Options::new(options.place.driver_name, options.node_name, client)
        .kubelet_root(&options.place.kubelet_root)
        .cdi_root(&options.place.cdi_root)
        .node_events(options.node_events)
        .health(true)
        .health_versions(options.health_versions.into_iter().map(Into::into));
    if let Some(taint) = taint {
        settings = settings.taint_unhealthy(taint);
    }
    if let Some(uid) = options.pod_uid.filter(|uid| !uid.is_empty()) {
        settings = settings.rolling_update(uid);
    }
    if let Some(id) = options.boot_id {
        settings = settings.boot_id(id);
    }
    for address in [options.metrics_address, options.health_address].into_iter().flatten() {
        settings = settings.operations(address);
    }
    settings
}

/// Where the GPUs of this node are offered.
struct Node {
    pool: PoolName,
    wishes: Wishes,
    health: HealthReporter,
}

impl Node {
    /// Says how the GPUs are, and then which there are: so one that does not work is tainted from the first moment.
    fn offer(&self, inventory: &Inventory) -> Ticket {
        let health = inventory.health().map(|(name, health)| (self.gpu(name), health.clone()));
        self.health.report_all(health);
        self.wishes.publish(DriverResources::new().pool(self.pool.clone(), inventory.pool().clone()))
    }

    /// Offers what the file says, whenever it says something else.
    async fn follow(self, mut file: InventoryFile, inventories: watch::Sender<Arc<Inventory>>) {
        loop {
            let inventory = Arc::new(file.changed().await);
            let before = inventories.send_replace(Arc::clone(&inventory));
            self.offer(&inventory);
            for (gone, _) in before.health().filter(|(name, _)| inventory.place_of(name).is_none()) {
                self.health.forget(&self.gpu(gone));
            }
            tracing::info!("the inventory has changed");
        }
    }

    fn gpu(&self, name: &DeviceName) -> DeviceRef {
        DeviceRef::new(self.pool.clone(), name.clone())
    }
}

async fn log_published(mut registration: watch::Receiver<Registration>, mut published: Ticket) {
    if registration.wait_for(Registration::is_registered).await.is_ok() {
        match published.published().await {
            Ok(published) => tracing::info!(?published, "devices published"),
            Err(error) => tracing::error!(%error, "devices not published"),
        }
    }
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
