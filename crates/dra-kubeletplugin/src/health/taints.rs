//! Taints on devices that do not work.

use std::convert::Infallible;

use dra_resourceslice::{DeviceName, DeviceTaints, PoolName, Taint, TaintEffect};

use super::{HealthReporter, HealthStatus, Report};

/// Under which name these taints are set: no driver has to know it.
const SOURCE: &str = "health";

/// Taints devices as the driver reports their health: on when a device is reported as unhealthy, off when it is reported
/// as healthy. `timeAdded`, which the API server sets, stays until then.
///
/// After a restart a device has no taint until the driver has reported its health: report first, then publish.
///
/// ```
/// use dra_kubeletplugin::{HealthTaints, resourceslice::TaintEffect};
///
/// let taints = HealthTaints::new("gpu.example.com/unhealthy").effect(TaintEffect::NoExecute);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct HealthTaints {
    key: String,
    effect: TaintEffect,
    unknown: bool,
}

impl HealthTaints {
    /// Unhealthy devices get a taint of this key, with which they are not allocated any more (`NoSchedule`).
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), effect: TaintEffect::NoSchedule, unknown: false }
    }

    /// Gives the taint another effect.
    pub fn effect(mut self, effect: TaintEffect) -> Self {
        self.effect = effect;
        self
    }

    /// Whether devices whose health is unknown get it too; they do not by default.
    pub fn also_unknown(mut self, yes: bool) -> Self {
        self.unknown = yes;
        self
    }

    fn taints(&self, reports: Vec<Report>) -> impl Iterator<Item = ((PoolName, DeviceName), Taint)> + '_ {
        let tainted = reports.into_iter().filter(|report| match report.health.status {
            HealthStatus::Healthy => false,
            HealthStatus::Unhealthy => true,
            HealthStatus::Unknown => self.unknown,
        });
        tainted.map(|report| {
            let device = (report.device.pool, report.device.device);
            (device, Taint::new(self.key.clone(), self.effect))
        })
    }
}

/// Keeps the taints as the reports are. Has no end: the reporter is its own.
pub(crate) async fn keep_tainted(
    policy: HealthTaints,
    reporter: HealthReporter,
    taints: DeviceTaints,
) -> Infallible {
    let mut changes = reporter.changes();
    loop {
        changes.mark_unchanged();
        let reports = reporter.board().all();
        taints.set(SOURCE, policy.taints(reports));
        // The sender lives as long as the reporter.
        let _ = changes.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{claim::DeviceRef, health::DeviceHealth};

    #[test]
    fn what_is_tainted_follows_from_what_is_reported() {
        let reporter = HealthReporter::new();
        for (device, health) in [
            ("gpu-0", DeviceHealth::healthy()),
            ("gpu-1", DeviceHealth::unhealthy("hot")),
            ("gpu-2", DeviceHealth::unknown("no answer")),
        ] {
            reporter.report(DeviceRef::new("p".parse().unwrap(), device.parse().unwrap()), health);
        }
        let tainted = |policy: &HealthTaints| -> Vec<String> {
            policy.taints(reporter.board().all()).map(|((_, device), _)| device.to_string()).collect()
        };
        let policy = HealthTaints::new("k");
        assert_eq!(tainted(&policy), ["gpu-1"]);
        assert_eq!(tainted(&policy.also_unknown(true)), ["gpu-1", "gpu-2"]);
    }
}
