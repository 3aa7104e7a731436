//! Faults to order, for tests. No driver needs this.

use std::{num::ParseIntError, time::Duration};

use clap::{Args, ValueEnum};
use dra_kubeletplugin::{
    AllocatedClaim, AllocatedDevice, DeviceName, DriverName, HealthVersion, HeldClaim, PluginError,
};

use crate::options::{Place, RunOptions};

/// What is to go wrong, or otherwise than usual.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For tests")]
pub(crate) struct Faults {
    /// How long each prepare takes, in milliseconds.
    #[arg(long, env = "PREPARE_DELAY", value_name = "MILLISECONDS", value_parser = milliseconds, default_value = "0")]
    pub(crate) prepare_delay: Duration,
    /// Only claims with one of these devices take that long, and they do not mind that they are cancelled.
    #[arg(long, env = "SLOW_DEVICES", value_name = "DEVICE,…", value_delimiter = ',')]
    pub(crate) slow_devices: Vec<DeviceName>,
    /// How long each unprepare takes, in milliseconds. The log then has a line when one begins and when it ends.
    #[arg(long, env = "UNPREPARE_DELAY", value_name = "MILLISECONDS", value_parser = milliseconds, default_value = "0")]
    pub(crate) unprepare_delay: Duration,
    /// Prepare fails for claims with one of these devices.
    #[arg(long, env = "FAIL_PREPARE", value_name = "DEVICE,…", value_delimiter = ',')]
    pub(crate) fail_prepare: Vec<DeviceName>,
    /// One more driver of this name in the same process, with the same devices and settings but no addresses.
    #[arg(long, env = "SECOND_DRIVER", value_name = "NAME")]
    pub(crate) second_driver: Option<DriverName>,
    /// Which versions of the health service to offer the kubelet.
    #[arg(
        long,
        env = "HEALTH_VERSIONS",
        value_name = "VERSION,…",
        value_delimiter = ',',
        default_value = "v1,v1alpha1"
    )]
    pub(crate) health_versions: Vec<HealthService>,
    /// Which boot of the machine this is, instead of what the kernel says.
    #[arg(long, env = "BOOT_ID", value_name = "ID")]
    pub(crate) boot_id: Option<String>,
}

impl Faults {
    /// Before a claim is prepared.
    ///
    /// # Errors
    /// One of its devices is set to fail.
    pub(crate) async fn play(&self, claim: &AllocatedClaim) -> Result<(), PluginError> {
        let names = || claim.devices().iter().map(AllocatedDevice::device);
        let slow = self.slow_devices.is_empty() || names().any(|name| self.slow_devices.contains(name));
        // A timer is never less than a millisecond.
        if slow && !self.prepare_delay.is_zero() {
            tokio::time::sleep(self.prepare_delay).await;
        }
        match names().find(|name| self.fail_prepare.contains(name)) {
            Some(device) => Err(PluginError::new(format!("device {device} is set to fail"))),
            None => Ok(()),
        }
    }

    /// Before a claim is unprepared.
    pub(crate) async fn play_unprepare(&self, claim: &HeldClaim<()>) {
        if self.unprepare_delay.is_zero() {
            return;
        }
        tracing::info!(claim = %claim.claim, reason = ?claim.reason, "a slow unprepare begins");
        tokio::time::sleep(self.unprepare_delay).await;
        tracing::info!(claim = %claim.claim, "a slow unprepare ends");
    }
}

/// The options of the second driver in this process, if there is to be one.
pub(crate) fn second_driver(first: &RunOptions) -> Option<RunOptions> {
    let place = Place { driver_name: first.faults.second_driver.clone()?, ..first.place.clone() };
    Some(RunOptions { place, metrics_address: None, health_address: None, ..first.clone() })
}

/// A version of the health service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HealthService {
    /// Of kubelets since 1.37.
    V1,
    /// Of kubelets since 1.34.
    V1alpha1,
}

impl From<HealthService> for HealthVersion {
    fn from(service: HealthService) -> Self {
        match service {
            HealthService::V1 => Self::V1,
            HealthService::V1alpha1 => Self::V1Alpha1,
        }
    }
}

fn milliseconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}
