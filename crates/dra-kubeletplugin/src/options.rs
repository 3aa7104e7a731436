//! How a plugin is set up.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dra_resourceslice::{DriverName, NodeName};
use prometheus_client::registry::Registry;

use crate::{
    error::StartError,
    handle::Handle,
    health::{HealthTaints, HealthVersion},
    plugin::DriverPlugin,
};

/// Settings of a plugin. Driver, node and client have to be given; the rest has defaults that fit a usual node.
///
/// ```no_run
/// # async fn run(plugin: impl dra_kubeletplugin::DriverPlugin) -> Result<(), Box<dyn std::error::Error>> {
/// use dra_kubeletplugin::Options;
///
/// let client = dra_kubeletplugin::kube::Client::try_default().await?;
/// let options = Options::new("gpu.example.com".parse()?, "node-1".parse()?, client).cdi_root("/var/run/cdi");
/// let handle = options.start(plugin).await?;
/// # handle.shutdown().await?; Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a plugin is started with them"]
pub struct Options {
    pub(crate) driver: DriverName,
    pub(crate) node: NodeName,
    pub(crate) client: kube::Client,
    pub(crate) kubelet_root: PathBuf,
    pub(crate) cdi_root: PathBuf,
    pub(crate) pod_uid: Option<String>,
    pub(crate) max_parallel: usize,
    pub(crate) boot_id: Option<String>,
    pub(crate) health: bool,
    pub(crate) health_versions: BTreeSet<HealthVersion>,
    pub(crate) health_taints: Option<HealthTaints>,
    pub(crate) kubelet_in_process: bool,
    pub(crate) operations: BTreeSet<SocketAddr>,
    pub(crate) metrics: Option<Arc<Registry>>,
    pub(crate) stop_within: Duration,
    pub(crate) node_events: bool,
}

impl Options {
    /// The least that has to be known: the driver's name as it stands in ResourceSlices, the node it runs on, and a
    /// client for the API server.
    pub fn new(driver: DriverName, node: NodeName, client: kube::Client) -> Self {
        Self {
            driver,
            node,
            client,
            kubelet_root: PathBuf::from("/var/lib/kubelet"),
            cdi_root: PathBuf::from("/var/run/cdi"),
            pod_uid: None,
            max_parallel: 16,
            boot_id: None,
            health: false,
            health_versions: BTreeSet::from([HealthVersion::V1, HealthVersion::V1Alpha1]),
            health_taints: None,
            kubelet_in_process: false,
            operations: BTreeSet::new(),
            metrics: None,
            stop_within: Duration::from_secs(5),
            node_events: false,
        }
    }

    /// The kubelet's root folder, `/var/lib/kubelet` by default; sockets, locks and records lie below it. In a
    /// container it must be mounted under the path that it has on the host, as the kubelet dials the sockets there.
    pub fn kubelet_root(mut self, root: impl AsRef<Path>) -> Self {
        root.as_ref().clone_into(&mut self.kubelet_root);
        self
    }

    /// The folder that the container runtime reads CDI files from, `/var/run/cdi` by default.
    pub fn cdi_root(mut self, root: impl AsRef<Path>) -> Self {
        root.as_ref().clone_into(&mut self.cdi_root);
        self
    }

    /// Turns rolling updates on: an instance with another pod UID may run beside this one. Needs kubelet 1.33.
    ///
    /// Claims are served by whichever instance the kubelet calls. ResourceSlices are written by one of them: the one
    /// that was started last, once it is registered and has published a wish; within about a second the other one stops
    /// between two writes. When an instance ends, however it does, the newest of the rest takes over at once. One that
    /// waits has [`SliceStatus::standby_since`](crate::SliceStatus::standby_since) set.
    pub fn rolling_update(mut self, pod_uid: impl Into<String>) -> Self {
        self.pod_uid = Some(pod_uid.into());
        self
    }

    /// How many calls of the driver may run at once, 16 by default, wherever they come from: the kubelet, the recovery after a
    /// reboot, the collection of orphans. 1 serves one after the other, as the Go helper does. A call of the background
    /// that takes longer than 30 s no longer counts.
    pub fn max_parallel(mut self, calls: usize) -> Self {
        self.max_parallel = calls;
        self
    }

    /// Offers the kubelet reports on the health of devices, made with [`Handle::health`]. Off by default: a driver that
    /// offers them and reports nothing has all its devices shown as unknown.
    pub fn health(mut self, yes: bool) -> Self {
        self.health = yes;
        self
    }

    /// Which versions of the service [`Options::health`] offers; all by default. The kubelet takes the newest one that it
    /// knows, in whatever order they are offered (kubelet 1.37).
    pub fn health_versions(mut self, versions: impl IntoIterator<Item = HealthVersion>) -> Self {
        self.health_versions = versions.into_iter().collect();
        self
    }

    /// Taints devices that [`Handle::health`] is told do not work. None by default.
    pub fn taint_unhealthy(mut self, taints: HealthTaints) -> Self {
        self.health_taints = Some(taints);
        self
    }

    /// Serves metrics and probes on this address, and on each that further calls name; by default on none. There are
    /// `/metrics` in the text format of `OpenMetrics`, `/healthz` ([`Handle::check_live`]) and `/readyz`
    /// ([`Handle::readiness`]) by HTTP/1.1 and HTTP/2, and the gRPC health protocol for the services `liveness` (also
    /// as `""`) and `readiness`. With port 0 the system chooses one: [`Handle::operations_addresses`].
    ///
    /// They have a thread and runtime of their own, and answer while a driver blocks all others. There is neither TLS
    /// nor a check of who asks, and nothing that is secret.
    pub fn operations(mut self, address: SocketAddr) -> Self {
        self.operations.insert(address);
        self
    }

    /// Shows the metrics of this registry behind the plugin's own, at `/metrics` and in [`Handle::metrics`]. The other
    /// way round, [`Handle::register_metrics`] adds the plugin's metrics to a registry.
    pub fn metrics(mut self, registry: Arc<Registry>) -> Self {
        self.metrics = Some(registry);
        self
    }

    /// How long a stop may take in all, whatever clients and the driver do; 5 s by default. Calls in flight get this,
    /// less half a second. What a pod is given to end (`terminationGracePeriodSeconds`, 30 s by default) has to be longer.
    pub fn stop_within(mut self, bound: Duration) -> Self {
        self.stop_within = bound;
        self
    }

    /// Says by Events on the Node, which `kubectl describe node` shows, that the kubelet refuses the plugin or has not
    /// registered it for 30 s, and that it has after all. Off by default. The driver's service account needs `create` and
    /// `patch` on `events` of the group `events.k8s.io`, in the namespace `default`. Nothing waits for them.
    pub fn node_events(mut self, yes: bool) -> Self {
        self.node_events = yes;
        self
    }

    /// Which boot of the machine this is, instead of what the kernel says. For tests that play a reboot.
    pub fn boot_id(mut self, id: impl Into<String>) -> Self {
        self.boot_id = Some(id.into());
        self
    }

    /// Takes connections from the plugin's own process for the kubelet's. For tests whose kubelet stand-in runs in it;
    /// otherwise such connections are liveness probes, which say nothing of the kubelet.
    pub fn kubelet_in_process(mut self, yes: bool) -> Self {
        self.kubelet_in_process = yes;
        self
    }

    /// Starts a plugin with these settings; the same as [`start`](crate::start).
    ///
    /// # Errors
    ///
    /// As [`start`](crate::start).
    pub async fn start<P: DriverPlugin>(self, plugin: P) -> Result<Handle, StartError> {
        crate::start::start(plugin, self).await
    }
}

impl Options {
    /// The versions of the health service to serve.
    pub(crate) fn served_health(&self) -> impl Iterator<Item = HealthVersion> + '_ {
        self.health_versions.iter().copied().filter(|_| self.health)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("driver", &self.driver)
            .field("node", &self.node)
            .field("kubelet_root", &self.kubelet_root)
            .field("cdi_root", &self.cdi_root)
            .field("pod_uid", &self.pod_uid)
            .field("max_parallel", &self.max_parallel)
            .field("health", &self.health)
            .field("health_versions", &self.health_versions)
            .field("health_taints", &self.health_taints)
            .field("operations", &self.operations)
            .field("stop_within", &self.stop_within)
            .field("node_events", &self.node_events)
            .finish_non_exhaustive()
    }
}
