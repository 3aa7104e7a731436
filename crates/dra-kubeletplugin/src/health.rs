//! Health of devices: the driver says what it sees, the kubelet shows it in the status of pods.
//!
//! The pod status has it in `status.containerStatuses[].allocatedResourcesStatus` (KEP-4680; on by default since
//! Kubernetes 1.36). The kubelet asks for a stream of reports, `v1.DRAResourceHealth` since 1.37 and
//! `v1alpha1.DRAResourceHealth` since 1.34. It forgets a report after 30 s, or what the report says, and forgets all
//! reports of a driver when any stream of the driver ends. So this module sends each report again and again.

mod board;
mod stream;
mod taints;

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use tokio::sync::watch;

pub(crate) use board::{Board, Report};
pub(crate) use stream::{Neighbours, reports};
pub use taints::HealthTaints;
pub(crate) use taints::Tainting;

use crate::{claim::DeviceRef, mutex::locked};

/// A version of the service by which the kubelet asks for the health of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HealthVersion {
    /// `v1.DRAResourceHealth`, of kubelets since 1.37.
    V1,
    /// `v1alpha1.DRAResourceHealth`, of kubelets since 1.34; Kubernetes plans to drop it around 1.40.
    V1Alpha1,
}

impl HealthVersion {
    /// The name under which a driver advertises it.
    pub(crate) fn advertised(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAResourceHealth",
            Self::V1Alpha1 => "v1alpha1.DRAResourceHealth",
        }
    }
}

/// How a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthStatus {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody can tell.
    Unknown,
}

/// What a driver says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceHealth {
    /// How it is.
    pub status: HealthStatus,
    /// What a person has to know: the kubelet shows it from 1.36 on, up to 1024 bytes of it.
    pub message: Option<String>,
    /// How long the kubelet takes the report for true when it hears nothing more, in whole seconds; 30 s by default.
    /// While this process lives, the report is sent again within a third of that.
    pub lease: Option<Duration>,
}

impl DeviceHealth {
    /// The device works.
    #[must_use]
    pub fn healthy() -> Self {
        Self::new(HealthStatus::Healthy)
    }

    /// The device does not work, for this reason.
    pub fn unhealthy(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Unhealthy).message(message)
    }

    /// Nobody can tell how the device is, for this reason.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Unknown).message(message)
    }

    /// Adds a message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into()).filter(|message| !message.is_empty());
        self
    }

    /// Sets the lease; less than 1 s counts as 1 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    fn new(status: HealthStatus) -> Self {
        Self { status, message: None, lease: None }
    }
}

/// Tells the kubelet how devices are. Clones are the same reporter.
///
/// Each report counts until the next one of the same device, so a driver has to speak only when something changes, and
/// may speak of some devices only. Calls return at once, whether a kubelet listens or not. Reports reach a kubelet only
/// if [`Options::health`](crate::Options::health) is on.
///
/// ```no_run
/// # fn watch(handle: &dra_kubeletplugin::Handle, gpu: dra_kubeletplugin::DeviceRef) {
/// use dra_kubeletplugin::DeviceHealth;
///
/// let health = handle.health();
/// health.report(gpu.clone(), DeviceHealth::healthy());
/// // Later:
/// health.report(gpu, DeviceHealth::unhealthy("fell off the bus"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HealthReporter {
    board: Arc<Mutex<Board>>,
    /// Counts changes.
    changes: watch::Sender<u64>,
    tainting: Arc<OnceLock<Tainting>>,
}

impl HealthReporter {
    pub(crate) fn new() -> Self {
        Self { board: Arc::default(), changes: watch::Sender::new(0), tainting: Arc::default() }
    }

    /// Taints devices by what is reported from now on; the first call counts.
    pub(crate) fn taint(&self, tainting: Tainting) {
        self.tainting.get_or_init(|| tainting);
    }

    /// Says how a device is.
    pub fn report(&self, device: DeviceRef, health: DeviceHealth) {
        self.report_all([(device, health)]);
    }

    /// Says how several devices are. Those that are not named stay as they were.
    pub fn report_all(&self, devices: impl IntoIterator<Item = (DeviceRef, DeviceHealth)>) {
        self.change(|board| devices.into_iter().for_each(|(device, health)| board.report(device, health)));
    }

    /// Says no more of a device, because it is gone: the kubelet hears that its health is unknown.
    pub fn forget(&self, device: &DeviceRef) {
        self.change(|board| board.forget(device));
    }

    /// What was last said of a device, if anything.
    #[must_use]
    pub fn last(&self, device: &DeviceRef) -> Option<DeviceHealth> {
        locked(&self.board).last(device)
    }

    /// How many devices are in each status.
    pub(crate) fn counts(&self) -> [(HealthStatus, usize); 3] {
        let board = locked(&self.board);
        [HealthStatus::Healthy, HealthStatus::Unhealthy, HealthStatus::Unknown]
            .map(|status| (status, board.last_of_all().filter(|(_, health)| health.status == status).count()))
    }

    fn change(&self, change: impl FnOnce(&mut Board)) {
        let version = {
            let mut board = locked(&self.board);
            change(&mut board);
            if let Some(tainting) = self.tainting.get() {
                tainting.update(&board);
            }
            board.version()
        };
        self.changes.send_if_modified(|known| {
            let newer = version > *known;
            *known = (*known).max(version);
            newer
        });
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        locked(&self.board)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
