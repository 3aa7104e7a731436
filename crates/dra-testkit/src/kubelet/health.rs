//! The kubelet's streams of device health, and what it remembers of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dra_kubeletplugin::wire::health_v1::dra_resource_health_client::DraResourceHealthClient as V1;
use dra_kubeletplugin::wire::health_v1alpha1::dra_resource_health_client::DraResourceHealthClient as V1Alpha1;
use dra_kubeletplugin::wire::{health_v1, health_v1alpha1};
use http::Uri;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::connection::Client;
use crate::api::lock;

/// What a report counts for if it names no time.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest message that the pod status shows, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// How a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody can tell, or the last report is too old.
    Unknown,
}

/// What the kubelet would show of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceHealth {
    /// How the device is.
    pub health: Health,
    /// What the driver said of it; longer ones are cut to 1024 bytes.
    pub message: String,
}

/// A version of the health service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HealthService {
    /// `v1.DRAResourceHealth`, known by kubelets since 1.37.
    V1,
    /// `v1alpha1.DRAResourceHealth`, known by kubelets since 1.34.
    V1Alpha1,
}

impl HealthService {
    /// The name by which plugins advertise it.
    #[must_use]
    pub fn advertised(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAResourceHealth",
            Self::V1Alpha1 => "v1alpha1.DRAResourceHealth",
        }
    }
}

/// The first service that the kubelet knows and the plugin has: here the kubelet's order decides.
pub(super) fn choose(advertised: &[String], known: &[HealthService]) -> Option<HealthService> {
    known.iter().copied().find(|service| advertised.iter().any(|name| name == service.advertised()))
}

/// Pool and name of a device.
type Device = (String, String);

/// The reports of all drivers.
#[derive(Debug, Default)]
pub(super) struct Reports {
    drivers: Mutex<BTreeMap<String, BTreeMap<Device, Report>>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Report {
    said: DeviceHealth,
    until: Instant,
}

impl Reports {
    /// What is known of a driver's devices, by pool and name.
    pub(super) fn of(&self, driver: &str) -> BTreeMap<Device, DeviceHealth> {
        let now = Instant::now();
        let drivers = lock(&self.drivers);
        let devices = drivers.get(driver).into_iter().flatten();
        devices.map(|(device, report)| (device.clone(), report.at(now))).collect()
    }

    /// Changes of anything, less what ends by time.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn take(&self, driver: &str, devices: Vec<health_v1::DeviceHealth>) {
        let now = Instant::now();
        let mut drivers = lock(&self.drivers);
        let known = drivers.entry(driver.to_owned()).or_default();
        for device in devices {
            let Some(id) = &device.device else { continue };
            known.insert((id.pool_name.clone(), id.device_name.clone()), Report::new(&device, now));
        }
        drop(drivers);
        self.changed.send_replace(());
    }

    /// The end of any stream takes away what all plugins of the driver have said.
    fn clear(&self, driver: &str) {
        lock(&self.drivers).remove(driver);
        self.changed.send_replace(());
    }
}

impl Report {
    fn new(device: &health_v1::DeviceHealth, now: Instant) -> Self {
        let health = match device.health {
            1 => Health::Healthy,
            2 => Health::Unhealthy,
            _ => Health::Unknown,
        };
        let lease = u64::try_from(device.health_check_timeout_seconds).ok().filter(|seconds| *seconds > 0);
        let until = now + lease.map_or(DEFAULT_LEASE, Duration::from_secs);
        Self { said: DeviceHealth { health, message: cut(&device.message) }, until }
    }

    fn at(&self, now: Instant) -> DeviceHealth {
        if now < self.until {
            return self.said.clone();
        }
        DeviceHealth { health: Health::Unknown, message: String::new() }
    }
}

fn cut(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = (0..=LONGEST_MESSAGE - 3).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    format!("{}...", &message[..end])
}

/// Reads one plugin's stream, and opens it again after `pause`, until it is dropped or the plugin says that it has no
/// such service.
pub(super) async fn follow(
    reports: Arc<Reports>,
    driver: String,
    service: HealthService,
    client: Client,
    pause: Duration,
) {
    // Also when the follower is dropped, with the connection.
    let _clear = ClearAtEnd { reports: &reports, driver: &driver };
    loop {
        let ended = match service {
            HealthService::V1 => read_v1(&reports, &driver, client.clone()).await,
            HealthService::V1Alpha1 => read_v1alpha1(&reports, &driver, client.clone()).await,
        };
        reports.clear(&driver);
        tracing::debug!(driver, ?ended, "the stream of device health ended");
        if ended.is_err_and(|status| status.code() == Code::Unimplemented) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

struct ClearAtEnd<'a> {
    reports: &'a Reports,
    driver: &'a str,
}

impl Drop for ClearAtEnd<'_> {
    fn drop(&mut self) {
        self.reports.clear(self.driver);
    }
}

const ORIGIN: &str = "http://localhost";

async fn read_v1(reports: &Reports, driver: &str, client: Client) -> Result<(), Status> {
    let mut client = V1::with_origin(client, Uri::from_static(ORIGIN));
    let mut stream = client.node_watch_resources(health_v1::NodeWatchResourcesRequest {}).await?.into_inner();
    while let Some(message) = stream.message().await? {
        reports.take(driver, message.devices);
    }
    Ok(())
}

async fn read_v1alpha1(reports: &Reports, driver: &str, client: Client) -> Result<(), Status> {
    let mut client = V1Alpha1::with_origin(client, Uri::from_static(ORIGIN));
    let request = health_v1alpha1::NodeWatchResourcesRequest {};
    let mut stream = client.node_watch_resources(request).await?.into_inner();
    while let Some(message) = stream.message().await? {
        let devices = message.devices.into_iter().map(|device| health_v1::DeviceHealth {
            device: device.device.map(|id| health_v1::DeviceIdentifier {
                pool_name: id.pool_name,
                device_name: id.device_name,
            }),
            health: device.health,
            last_updated_time: device.last_updated_time,
            health_check_timeout_seconds: device.health_check_timeout_seconds,
            message: device.message,
        });
        reports.take(driver, devices.collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(device: &str, health: i32, lease: i64) -> health_v1::DeviceHealth {
        health_v1::DeviceHealth {
            device: Some(health_v1::DeviceIdentifier { pool_name: "p".into(), device_name: device.into() }),
            health,
            last_updated_time: 0,
            health_check_timeout_seconds: lease,
            message: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_merged_and_end_with_their_lease_or_after_half_a_minute() {
        let reports = Reports::default();
        reports.take("d", vec![report("a", 1, 0), report("b", 2, 5)]);
        reports.take("d", vec![report("c", 1, -1)]);
        let seen = || reports.of("d").into_iter().map(|((_, device), said)| (device, said.health));
        let health = || seen().map(|(_, health)| health).collect::<Vec<_>>();
        assert_eq!(health(), [Health::Healthy, Health::Unhealthy, Health::Healthy]);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(health(), [Health::Healthy, Health::Unknown, Health::Healthy]);
        tokio::time::advance(Duration::from_secs(25)).await;
        assert_eq!(health(), [Health::Unknown; 3]);
        reports.clear("d");
        assert_eq!(health(), []);
    }

    #[test]
    fn the_kubelets_order_decides_on_the_service() {
        use HealthService::{V1, V1Alpha1};
        let advertised =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let both = advertised(&["v1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"]);
        assert_eq!(choose(&both, &[V1, V1Alpha1]), Some(V1));
        assert_eq!(choose(&both, &[V1Alpha1]), Some(V1Alpha1));
        assert_eq!(choose(&advertised(&["v1.DRAPlugin"]), &[V1, V1Alpha1]), None);
    }

    #[test]
    fn long_messages_are_cut_between_letters() {
        assert_eq!(cut(&"x".repeat(1024)).len(), 1024);
        let cut = cut(&"ü".repeat(513));
        assert!(cut.len() <= 1024 && cut.ends_with("ü..."), "{}", cut.len());
    }
}
