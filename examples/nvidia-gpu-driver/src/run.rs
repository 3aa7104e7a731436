//! Serves the kubelet of a node until the process is told to end.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dra_kubeletplugin::{Options as Settings, PoolName, client_from, kube, signals};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::{
    cdi::CdiHook,
    hardware::Hardware,
    health::{Health, Kept},
    inventory::Inventory,
    made::{Made, boot_id},
    mps::{Mps, Views},
    node::{Node, Offered, Place, Watching},
    options::{LogFormat, Options},
    plugin::NvidiaGpus,
    release::Release,
    sweep::DynamicMig,
};

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    start_log(options.log_format);
    let stop = signals::terminate()?;
    let client = client_from(options.kubeconfig.as_deref()).await?;
    let pool: PoolName = options.node_name.as_str().parse()?;
    let data = options.records().0.data();
    let release = Release::new(&data);
    let hardware = Hardware::start(options.driver_root(), release.clone(), options.health);
    let hardware = hardware.context("starting the thread for NVML")?;
    let (inventories, inventory) = watch::channel(Arc::new(Inventory::default()));
    let records = options.records();
    let made = Made::open(&data, options.boot_id.as_deref())
        .with_context(|| format!("looking in {} for partitions that were made", data.display()))?;
    let kept =
        Kept::open(&data, &boot_id(options.boot_id.as_deref()).context("reading the kernel's boot ID")?);
    let views = if options.mps_without_mounts { Views::Shared } else { Views::Own };
    let mps = Mps::new(&records.0, views, options.driver_root(), hardware.clone());
    if CdiHook::find(options.nvidia_cdi_hook_path.as_deref(), &options.driver_root()).is_none() {
        tracing::warn!(
            "no nvidia-cdi-hook below the root of NVIDIA's driver: containers' lists of libraries stay as their images have \
             them; install nvidia-container-toolkit-base on the node, or name the program by --nvidia-cdi-hook-path"
        );
    }
    let plugin = NvidiaGpus {
        inventory,
        hardware: hardware.clone(),
        root: options.driver_root(),
        nodes: options.nodes(),
        mps: mps.clone(),
        cdi_hook: options.nvidia_cdi_hook_path.clone(),
        files: Arc::default(),
        made: made.clone(),
        records: records.clone(),
        check_processes: options.devices.check_processes,
    };
    let ignored = options.additional_xids_to_ignore.iter().copied();
    let health = Health::new(ignored, options.forgive_xids_after, kept.gpus());
    let offered = Offered {
        sysfs: options.sysfs.clone(),
        dynamic_mig: options.devices.dynamic_mig.then(|| DynamicMig::new(made, records.clone())),
        passthrough: options.devices.passthrough,
    };
    let watching = Watching { health, kept, release, monitors: options.health };
    let (node, reports) = Node::new(hardware, offered, watching, inventories);
    let interval = options.poll_interval;
    // Whoever was prepared before may be unprepared before the hardware has answered.
    let handle = settings(options, client).start(plugin).await?;
    tracing::info!("serving the kubelet");
    let place = Place { pool, wishes: handle.wishes(), health: handle.health(), taints: handle.taints() };
    let mut following = tokio::spawn(node.follow(place, reports, interval));
    let daemons = tokio::spawn(mps.follow(records, interval));
    let mut crashed = false;
    let end = async {
        tokio::select! {
            () = stop => {}
            _ = &mut following => crashed = true,
        }
    };
    let outcome = handle.shutdown_on(end).await;
    following.abort();
    daemons.abort();
    ensure!(!crashed, "the thread for NVML has ended: a call of it has crashed");
    Ok(outcome?)
}

fn settings(options: Options, client: kube::Client) -> Settings {
    let mut settings = Settings::new(options.driver_name, options.node_name, client)
        .kubelet_root(&options.kubelet_root)
        .cdi_root(&options.cdi_root)
        .health(true)
        .node_events(options.node_events);
    if let Some(uid) = options.pod_uid.filter(|uid| !uid.is_empty()) {
        settings = settings.rolling_update(uid);
    }
    if let Some(id) = options.boot_id {
        settings = settings.boot_id(id);
    }
    if let Some(address) = options.metrics_address {
        settings = settings.operations(address);
    }
    settings
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
