//! What is looked up when somebody asks: claims, registration, slices, health.

use std::{
    fmt::{self, Debug},
    sync::Arc,
};

use dra_resourceslice::{PoolState, SliceStatus};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use tokio::sync::watch;

use super::readiness::Readiness;
use crate::{
    claims::ClaimCounts,
    health::{HealthReporter, HealthStatus},
    registration::Registration,
};

/// Counts the claims; `None` once the plugin has ended.
type CountClaims = Arc<dyn Fn() -> Option<ClaimCounts> + Send + Sync>;

/// Where the figures come from. It keeps nothing of the plugin alive, since a registry may outlive it.
#[derive(Clone)]
pub(crate) struct Figures {
    pub(crate) claims: CountClaims,
    pub(crate) registration: watch::Receiver<Registration>,
    pub(crate) readiness: watch::Receiver<Readiness>,
    pub(crate) slices: watch::Receiver<SliceStatus>,
    pub(crate) health: HealthReporter,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let claims = (self.claims)().unwrap_or_default();
        let registration = self.registration.borrow().clone();
        let ready = self.readiness.borrow().is_ready();
        let slices = self.slices.borrow().clone();
        gauges(
            &mut encoder,
            "claims",
            "Claims with a record on this node, by state",
            "state",
            &claims_by_state(claims),
        )?;
        let help = "1 for the state that the registration with the kubelet is in";
        gauges(&mut encoder, "registration", help, "state", &registration_states(&registration))?;
        gauge(&mut encoder, "ready", "1 if the driver is ready", ready.into())?;
        let publishing = i64::from(slices.wish > 0 && slices.standby_since.is_none());
        gauge(
            &mut encoder,
            "publishing",
            "1 if this instance writes the ResourceSlices of the node",
            publishing,
        )?;
        gauges(&mut encoder, "pools", "Pools of devices, by state", "state", &pools_by_state(&slices))?;
        let of_pools = |figure: fn(&dra_resourceslice::PoolStatus) -> usize| -> Vec<(&str, i64)> {
            slices.pools.iter().map(|(name, pool)| (name.as_str(), whole(figure(pool)))).collect()
        };
        let help = "ResourceSlices in the API of the pool's present generation";
        gauges(&mut encoder, "slices", help, "pool", &of_pools(|pool| pool.slices))?;
        let help = "What was left out of the pool because the API does not allow it";
        gauges(&mut encoder, "slice_problems", help, "pool", &of_pools(|pool| pool.problems.len()))?;
        slice_writes(&mut encoder, &slices)?;
        let health = self.health.counts().map(|(status, devices)| (health_name(status), whole(devices)));
        let help = "Devices that the driver has reported on, by health";
        gauges(&mut encoder, "device_health", help, "health", &health)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, i64)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (of, value) in values {
        ConstGauge::new(*value).encode(metric.encode_family(&[(label, *of)])?)?;
    }
    Ok(())
}

fn slice_writes(encoder: &mut DescriptorEncoder<'_>, slices: &SliceStatus) -> fmt::Result {
    let writes = slices.writes;
    let help = "Writes of ResourceSlices by result";
    let mut metric = encoder.encode_descriptor("slice_writes", help, None, MetricType::Counter)?;
    for (result, count) in [
        ("created", writes.created),
        ("updated", writes.updated),
        ("deleted", writes.deleted),
        ("failed", writes.failed),
    ] {
        ConstCounter::new(count).encode(metric.encode_family(&[("result", result)])?)?;
    }
    Ok(())
}

fn claims_by_state(claims: ClaimCounts) -> [(&'static str, i64); 4] {
    let ClaimCounts { started, prepared, unpreparing, damaged } = claims;
    [("started", started), ("prepared", prepared), ("unpreparing", unpreparing), ("damaged", damaged)]
        .map(|(state, count)| (state, whole(count)))
}

fn registration_states(now: &Registration) -> [(&'static str, i64); 5] {
    let state = match now {
        Registration::Waiting { .. } => "waiting",
        Registration::Registered { .. } => "registered",
        Registration::Refused { .. } => "refused",
        Registration::Lost => "lost",
        Registration::Overdue { .. } => "overdue",
    };
    ["waiting", "registered", "refused", "lost", "overdue"].map(|name| (name, i64::from(name == state)))
}

fn pools_by_state(slices: &SliceStatus) -> [(&'static str, i64); 4] {
    let of = |state| whole(slices.pools.values().filter(|pool| pool.state == state).count());
    [
        ("pending", of(PoolState::Pending)),
        ("published", of(PoolState::Published)),
        ("refused", of(PoolState::Refused)),
        ("removing", of(PoolState::Removing)),
    ]
}

fn health_name(status: HealthStatus) -> &'static str {
    match status {
        HealthStatus::Healthy => "healthy",
        HealthStatus::Unhealthy => "unhealthy",
        HealthStatus::Unknown => "unknown",
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}
