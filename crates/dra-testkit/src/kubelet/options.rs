//! How a kubelet stand-in behaves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::ApiServer;

use super::Kubelet;
use super::health::HealthService;
use super::services::DraService;

/// Options of a [`Kubelet`]; by default the real kubelet's deadlines, but shorter pauses.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use dra_testkit::{TempNode, kubelet::{DraService, Kubelet}};
/// let node = TempNode::new()?;
/// // A kubelet before 1.34.
/// let kubelet = Kubelet::builder(node.kubelet()).services([DraService::V1Beta1]).start();
/// # kubelet.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `start`"]
pub struct KubeletBuilder {
    pub(super) root: PathBuf,
    pub(super) services: Vec<DraService>,
    pub(super) health_services: Vec<HealthService>,
    pub(super) health_pause: Duration,
    pub(super) poll: Duration,
    pub(super) dial_timeout: Duration,
    pub(super) call_timeout: Duration,
    pub(super) registration_pause: (Duration, Duration),
    pub(super) reconnect_pause: (Duration, Duration),
    pub(super) loses_notifications: bool,
    pub(super) slices: Option<NodeSlices>,
    pub(super) wipe_after: Duration,
}

/// The slices that the kubelet may delete.
#[derive(Debug, Clone)]
pub(super) struct NodeSlices {
    pub(super) api: ApiServer,
    pub(super) node: String,
}

impl KubeletBuilder {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            services: vec![DraService::V1, DraService::V1Beta1],
            health_services: vec![HealthService::V1, HealthService::V1Alpha1],
            health_pause: Duration::from_millis(50),
            poll: Duration::from_millis(20),
            dial_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(45),
            registration_pause: (Duration::from_millis(50), Duration::from_secs(1)),
            reconnect_pause: (Duration::from_millis(50), Duration::from_secs(1)),
            loses_notifications: false,
            slices: None,
            wipe_after: Duration::from_secs(30),
        }
    }

    /// The services that this kubelet knows. Default: `v1` and `v1beta1`.
    pub fn services(mut self, known: impl IntoIterator<Item = DraService>) -> Self {
        self.services = known.into_iter().collect();
        self
    }

    /// The health services that this kubelet knows, in its order. Default: `v1` and `v1alpha1`; none plays a kubelet with
    /// the feature gate `ResourceHealthStatus` off.
    pub fn health_services(mut self, known: impl IntoIterator<Item = HealthService>) -> Self {
        self.health_services = known.into_iter().collect();
        self
    }

    /// How long it takes to open a stream of device health again. Default 50 ms; the real kubelet waits 5 s.
    pub fn health_pause(mut self, pause: Duration) -> Self {
        self.health_pause = pause;
        self
    }

    /// How often the registry folder is looked at. Default 20 ms; the real kubelet acts every second.
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// How long a socket may take to accept. Default 10 s, as the real kubelet.
    pub fn dial_timeout(mut self, timeout: Duration) -> Self {
        self.dial_timeout = timeout;
        self
    }

    /// Deadline of prepare and unprepare. Default 45 s, as the real kubelet.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// First and longest pause after a failed registration; doubled each time, kept by socket path. Default 50 ms
    /// and 1 s; the real kubelet has 500 ms and 122 s.
    pub fn registration_pause(mut self, first: Duration, longest: Duration) -> Self {
        self.registration_pause = (first, longest);
        self
    }

    /// First and longest pause before a lost connection to a driver is tried again. Default 50 ms and 1 s; the real
    /// kubelet has 1 s and 120 s.
    pub fn reconnect_pause(mut self, first: Duration, longest: Duration) -> Self {
        self.reconnect_pause = (first, longest);
        self
    }

    /// Plays a kubelet of 1.34 or 1.35 whose `NotifyRegistrationStatus` gets lost each time: it keeps and calls the plugin, and
    /// does not send the status again (`operation_generator.go`: the plugin has been added before). Later kubelets drop it.
    pub fn lose_notifications(mut self) -> Self {
        self.loses_notifications = true;
        self
    }

    /// Deletes the node's slices as the real kubelet does: all of them at each start, and those of a driver when
    /// none of its plugins has been connected for [`KubeletBuilder::wipe_after`]. Without this no slice is touched.
    pub fn wipe_slices(mut self, api: &ApiServer, node: impl Into<String>) -> Self {
        self.slices = Some(NodeSlices { api: api.clone(), node: node.into() });
        self
    }

    /// How long a driver may be away before its slices are deleted. Default 30 s, as the real kubelet.
    pub fn wipe_after(mut self, away: Duration) -> Self {
        self.wipe_after = away;
        self
    }

    /// Starts the kubelet. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(self) -> Kubelet {
        Kubelet::with(self)
    }
}
