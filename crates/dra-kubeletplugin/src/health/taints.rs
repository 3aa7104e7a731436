//! Taints on devices that do not work.

use dra_resourceslice::{DeviceName, DeviceTaints, IfDropped, PoolName, Taint, TaintEffect};

use super::{Board, HealthStatus};

/// Under which name these taints are set: no driver has to know it.
const SOURCE: &str = "health";

/// Taints devices as the driver reports their health: on when a device is reported as unhealthy, off when it is reported
/// as healthy. `timeAdded`, which the API server sets, stays until then.
///
/// After a restart a device has no taint until the driver has reported its health: report first, then publish.
///
/// An API server drops taints if its gate `DRADeviceTaints` is off, as it is by default in Kubernetes 1.34 and 1.35. There a
/// device that would have a taint is left out of the slices until it works, so that no pod gets it;
/// [`if_dropped`](Self::if_dropped) keeps it in them. Once the gate is on, the device is published with its taint.
///
/// ```
/// use dra_kubeletplugin::{
///     HealthTaints,
///     resourceslice::{IfDropped, TaintEffect},
/// };
///
/// let taints = HealthTaints::new("gpu.example.com/unhealthy")
///     .effect(TaintEffect::NoExecute)
///     .if_dropped(IfDropped::LeaveOut); // the default
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct HealthTaints {
    key: String,
    effect: TaintEffect,
    unknown: bool,
    if_dropped: IfDropped,
}

impl HealthTaints {
    /// Unhealthy devices get a taint of this key, with which they are not allocated any more (`NoSchedule`).
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            effect: TaintEffect::NoSchedule,
            unknown: false,
            if_dropped: IfDropped::LeaveOut,
        }
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

    /// What becomes of a device that would have a taint if the API server drops taints: by default it is left out. With the
    /// effect [`TaintEffect::None`] it always stays.
    pub fn if_dropped(mut self, then: IfDropped) -> Self {
        self.if_dropped = then;
        self
    }

    fn taints<'a>(&'a self, board: &'a Board) -> impl Iterator<Item = ((PoolName, DeviceName), Taint)> + 'a {
        let tainted = board.last_of_all().filter(|(_, health)| match health.status {
            HealthStatus::Healthy => false,
            HealthStatus::Unhealthy => true,
            HealthStatus::Unknown => self.unknown,
        });
        tainted.map(|(device, _)| {
            let device = (device.pool.clone(), device.device.clone());
            (device, Taint::new(self.key.clone(), self.effect).if_dropped(self.if_dropped))
        })
    }
}

/// The policy, and where the taints go.
#[derive(Debug)]
pub(crate) struct Tainting {
    pub(crate) policy: HealthTaints,
    pub(crate) taints: DeviceTaints,
}

impl Tainting {
    /// Makes the taints what the reports say. Done before a report returns: what is published after it has the taint
    /// from the first write, and one that an earlier process has set is not lost in between.
    pub(super) fn update(&self, board: &Board) {
        self.taints.set(SOURCE, self.policy.taints(board));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        claim::DeviceRef,
        health::{DeviceHealth, HealthReporter},
    };

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
            policy.taints(&reporter.board()).map(|((_, device), _)| device.to_string()).collect()
        };
        let policy = HealthTaints::new("k");
        assert_eq!(tainted(&policy), ["gpu-1"]);
        assert_eq!(tainted(&policy.also_unknown(true)), ["gpu-1", "gpu-2"]);
    }
}
