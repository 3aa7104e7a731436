//! What the author holds while the plugin runs.

use std::{fmt, net::SocketAddr};

use dra_resourceslice::{DeviceTaints, DriverResources, Publisher, SliceStatus, Ticket, Wishes};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    error::RunError,
    health::HealthReporter,
    operations::{NotLive, Operations, Readiness},
    registration::Registration,
};

/// A running plugin. Dropping it stops the plugin without waiting.
#[derive(Debug)]
#[must_use = "dropping the handle stops the plugin"]
pub struct Handle {
    pub(crate) publisher: Publisher,
    pub(crate) health: HealthReporter,
    pub(crate) registration: watch::Receiver<Registration>,
    pub(crate) operations: Operations,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) stop: CancellationToken,
    pub(crate) main: JoinHandle<Result<(), RunError>>,
}

impl Handle {
    /// Sets what this node offers, all of it: a pool that is not named is withdrawn. Returns at once; the ticket can be
    /// awaited. Nothing is created before the kubelet has registered the plugin, since pods would come too early: their
    /// first prepare would fail, and the kubelet tries again only 60 to 90 s later (kubelet 1.34 to 1.37).
    ///
    /// During a rolling update only one instance writes ([`Options::rolling_update`](crate::Options::rolling_update)).
    /// The ticket of another one is served as soon as the API has what it wishes for, whoever has written that: at once
    /// if both wish for the same, else when its turn comes. Until then
    /// [`standby_since`](SliceStatus::standby_since) says since when it waits.
    #[expect(clippy::must_use_candidate, reason = "most drivers publish once and watch `slices`, if at all")]
    pub fn publish(&self, resources: DriverResources) -> Ticket {
        self.publisher.publish(resources)
    }

    /// Publishes from elsewhere, such as a task that watches the hardware, as [`publish`](Self::publish) does.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        self.publisher.wishes()
    }

    /// Tells the kubelet how devices are, if [`Options::health`](crate::Options::health) is on.
    #[must_use]
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Sets and clears taints of published devices, without publishing anew.
    #[must_use]
    pub fn taints(&self) -> DeviceTaints {
        self.publisher.taints()
    }

    /// Where the registration stands, as a watch.
    #[must_use]
    pub fn registration(&self) -> watch::Receiver<Registration> {
        self.registration.clone()
    }

    /// What the API server has of the published pools, as a watch.
    #[must_use]
    pub fn slices(&self) -> watch::Receiver<SliceStatus> {
        self.publisher.status()
    }

    /// The plugin's metrics, and those of [`Options::metrics`](crate::Options::metrics), in the text format of
    /// `OpenMetrics` 1.0: `application/openmetrics-text; version=1.0.0; charset=utf-8`. `docs/operations.md` of the
    /// repository describes each.
    ///
    /// # Errors
    ///
    /// A metric of the driver's own cannot be written as text.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        self.operations.text()
    }

    /// Adds the plugin's metrics to a registry, for programs that serve one already. One registry takes one plugin:
    /// with two, each metric would be described twice, which `OpenMetrics` forbids.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.operations.register(registry);
    }

    /// Calls both sockets of the plugin over new connections, just as the kubelet does, and waits for the answers for
    /// 3 s. Such calls are not taken for the kubelet's, and no metric counts them.
    ///
    /// On a runtime that is blocked this cannot return at all: probes should ask [`Options::operations`], which has a
    /// runtime of its own.
    ///
    /// [`Options::operations`]: crate::Options::operations
    ///
    /// # Errors
    ///
    /// A socket is gone, or nothing answers on it: the runtime is blocked, say. The process should be restarted.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing but the check is lost.
    pub async fn check_live(&self) -> Result<(), NotLive> {
        self.operations.liveness.check().await
    }

    /// Whether the driver is ready, as a watch.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.operations.readiness.clone()
    }

    /// Where metrics and probes are served, if [`Options::operations`](crate::Options::operations) says so.
    #[must_use]
    pub fn operations_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops the plugin, within [`Options::stop_within`](crate::Options::stop_within) (5 s by default) whatever clients
    /// and the driver do. In this order:
    ///
    /// 1. Readiness says that the plugin stops, tasks of the background end, and publishing stops between two writes.
    ///    Calls in flight end and are answered; until none is left new ones are served too, as the kubelet would cut them
    ///    off with the next step.
    /// 2. The registration socket goes, so that the kubelet calls another instance, if there is one. No more calls are
    ///    taken, and health streams end. Connections on which nothing is called are not waited for.
    /// 3. What is still connected when the time is up is cut; a prepare that runs on is undone by the next start.
    /// 4. The DRA socket goes, then the lock on publishing, and metrics and probes; with the last work of the driver the
    ///    lock on being the only instance.
    ///
    /// ResourceSlices stay: the kubelet removes them if no instance is back within 30 s.
    ///
    /// This ends no work of the driver: a function that blocks a thread of the runtime keeps the process from ending when
    /// `main` returns, as tokio waits for it. A second signal ends the process
    /// ([`signals::terminate`](crate::signals::terminate)), and so does `std::process::exit`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the plugin still stops.
    pub async fn shutdown(self) -> Result<(), RunError> {
        self.stop.cancel();
        self.wait().await
    }

    /// Runs until `signal` completes, then shuts down; or until the plugin ends by itself.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the plugin stops.
    pub async fn shutdown_on<T>(mut self, signal: impl Future<Output = T> + Send) -> Result<(), RunError> {
        tokio::select! {
            _ = signal => self.shutdown().await,
            ended = &mut self.main => joined(ended),
        }
    }

    /// Waits until the plugin has ended: by itself, or because it was told to.
    ///
    /// # Errors
    ///
    /// It ended by itself, because a server failed or a task of the SDK panicked. The process should end with a code
    /// that is not 0.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the plugin stops.
    pub async fn wait(mut self) -> Result<(), RunError> {
        joined((&mut self.main).await)
    }
}

fn joined(ended: Result<Result<(), RunError>, tokio::task::JoinError>) -> Result<(), RunError> {
    ended.unwrap_or_else(|error| Err(RunError::Panic(error.to_string())))
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
