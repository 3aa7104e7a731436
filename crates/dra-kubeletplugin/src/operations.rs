//! What those who run a driver see of it: metrics, liveness, readiness. `docs/operations.md` is for them.

mod connections;
mod dial;
mod figures;
mod grpc;
mod liveness;
mod metrics;
mod pages;
mod readiness;
mod server;

use std::{fmt, sync::Arc};

use dra_resourceslice::DriverName;
use prometheus_client::{encoding::text, registry::Registry};
use tokio::sync::watch;

pub(crate) use figures::Figures;
pub use liveness::NotLive;
#[cfg(test)]
pub(crate) use liveness::kubelet_authority;
pub(crate) use liveness::{Liveness, Probed};
pub(crate) use metrics::{Method, Metrics};
pub use readiness::Readiness;
pub(crate) use readiness::follow;
pub(crate) use server::{OperationsListener, OperationsServer, bind_operations, serve_operations};

/// All that there is to see of a plugin. Clones see the same.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    pub(crate) driver: DriverName,
    pub(crate) metrics: Metrics,
    pub(crate) figures: Figures,
    /// The driver's own.
    pub(crate) others: Option<Arc<Registry>>,
    pub(crate) liveness: Liveness,
    /// The same, for those who ask over the network.
    pub(crate) probed: Probed,
    pub(crate) readiness: watch::Receiver<Readiness>,
}

impl Operations {
    /// Adds the plugin's metrics to a registry.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let label = ("driver".into(), self.driver.to_string().into());
        let registry = registry.sub_registry_with_prefix("dra_plugin").sub_registry_with_label(label);
        self.metrics.register(registry);
        registry.register_collector(Box::new(self.figures.clone()));
    }

    /// The metrics in the text format of `OpenMetrics` 1.0.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut own = Registry::default();
        self.register(&mut own);
        let mut shown = String::new();
        text::encode_registry(&mut shown, &own)?;
        if let Some(others) = &self.others {
            text::encode_registry(&mut shown, others)?;
        }
        text::encode_eof(&mut shown)?;
        Ok(shown)
    }
}
