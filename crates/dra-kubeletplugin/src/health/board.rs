//! What was last said of each device. Pure, but for the time of a report.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use super::{DeviceHealth, HealthStatus};
use crate::claim::DeviceRef;

/// What the kubelet takes if a report names no lease (kubelet 1.34 to 1.37).
pub(super) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How long a forgotten device stays on the board. By then each stream has heard of it: they say what is new at once.
const REMEMBERED: Duration = Duration::from_secs(300);

/// All reports, by device.
#[derive(Debug, Default)]
pub(crate) struct Board {
    devices: BTreeMap<DeviceRef, Entry>,
    version: u64,
}

#[derive(Debug)]
struct Entry {
    health: DeviceHealth,
    said: SystemTime,
    /// The board's version with it.
    version: u64,
    /// Said once to those who have heard of it, and not repeated.
    forgotten: bool,
}

/// A device as the kubelet is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) device: DeviceRef,
    pub(crate) health: DeviceHealth,
    pub(crate) said: SystemTime,
}

impl Board {
    pub(super) fn report(&mut self, device: DeviceRef, health: DeviceHealth) {
        self.set(device, health, false);
    }

    pub(super) fn forget(&mut self, device: &DeviceRef) {
        if self.last(device).is_some() {
            self.set(device.clone(), DeviceHealth::unknown("the driver knows the device no more"), true);
        }
    }

    pub(super) fn last(&self, device: &DeviceRef) -> Option<DeviceHealth> {
        let entry = self.devices.get(device).filter(|entry| !entry.forgotten)?;
        Some(entry.health.clone())
    }

    /// What was last said of each device.
    pub(super) fn last_of_all(&self) -> impl Iterator<Item = (&DeviceRef, &DeviceHealth)> {
        let entries = self.devices.iter().filter(|(_, entry)| !entry.forgotten);
        entries.map(|(device, entry)| (device, &entry.health))
    }

    /// Rises with each change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// What is new since a version.
    pub(super) fn since(&self, version: u64) -> Vec<Report> {
        self.reports(|entry| entry.version > version)
    }

    /// All that is to be said to somebody who knows nothing.
    pub(super) fn all(&self) -> Vec<Report> {
        self.reports(|entry| !entry.forgotten)
    }

    /// How soon everything has to be said again: within a third of the shortest lease.
    pub(super) fn repeat_after(&self) -> Duration {
        let leases = self
            .devices
            .values()
            .filter(|entry| !entry.forgotten)
            .map(|entry| entry.health.lease_or_default());
        leases.min().unwrap_or(DEFAULT_LEASE) / 3
    }

    fn set(&mut self, device: DeviceRef, health: DeviceHealth, forgotten: bool) {
        self.set_at(device, health, forgotten, SystemTime::now());
    }

    fn set_at(&mut self, device: DeviceRef, health: DeviceHealth, forgotten: bool, now: SystemTime) {
        self.version += 1;
        let is_old = |said: SystemTime| now.duration_since(said).is_ok_and(|age| age >= REMEMBERED);
        self.devices.retain(|_, entry| !(entry.forgotten && is_old(entry.said)));
        let entry = Entry { health, said: now, version: self.version, forgotten };
        self.devices.insert(device, entry);
    }

    fn reports(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Report> {
        let entries = self.devices.iter().filter(|(_, entry)| wanted(entry));
        entries
            .map(|(device, entry)| Report {
                device: device.clone(),
                health: entry.health.clone(),
                said: entry.said,
            })
            .collect()
    }
}

impl DeviceHealth {
    /// Whole seconds are all that the wire has.
    pub(crate) fn lease_or_default(&self) -> Duration {
        self.lease.map_or(DEFAULT_LEASE, |lease| Duration::from_secs(lease.as_secs().max(1)))
    }
}

impl HealthStatus {
    /// The number that both versions of the wire have for it.
    pub(crate) fn on_the_wire(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::Healthy => 1,
            Self::Unhealthy => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: u8) -> DeviceRef {
        DeviceRef::new("node-1".parse().unwrap(), format!("gpu-{number}").parse().unwrap())
    }

    fn devices(reports: &[Report]) -> Vec<&str> {
        reports.iter().map(|report| report.device.device.as_str()).collect()
    }

    #[test]
    fn partial_reports_are_merged_and_changes_are_told_once() {
        let mut board = Board::default();
        board.report(gpu(0), DeviceHealth::healthy());
        board.report(gpu(1), DeviceHealth::healthy());
        let seen = board.version();
        assert_eq!(devices(&board.since(0)), ["gpu-0", "gpu-1"]);
        board.report(gpu(1), DeviceHealth::unhealthy("hot"));
        let news = board.since(seen);
        assert_eq!(devices(&news), ["gpu-1"]);
        assert_eq!(news[0].health.message.as_deref(), Some("hot"));
        assert_eq!(devices(&board.since(board.version())), [""; 0]);
        assert_eq!(devices(&board.all()), ["gpu-0", "gpu-1"]);
        assert_eq!(board.last(&gpu(0)), Some(DeviceHealth::healthy()));
    }

    #[test]
    fn a_forgotten_device_is_unknown_to_those_who_have_heard_of_it() {
        let mut board = Board::default();
        board.forget(&gpu(0));
        assert_eq!(devices(&board.since(0)), [""; 0], "nobody has heard of it");
        board.report(gpu(0), DeviceHealth::healthy());
        let seen = board.version();
        board.forget(&gpu(0));
        let news = board.since(seen);
        assert_eq!((devices(&news), news[0].health.status), (vec!["gpu-0"], HealthStatus::Unknown));
        assert_eq!((devices(&board.all()), board.last(&gpu(0))), (vec![], None));
        board.report(gpu(0), DeviceHealth::healthy());
        assert_eq!(devices(&board.all()), ["gpu-0"]);
    }

    #[test]
    fn forgotten_devices_leave_the_board() {
        let mut board = Board::default();
        let start = SystemTime::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for number in 0..200 {
            board.set_at(gpu(number), DeviceHealth::healthy(), false, at(u64::from(number)));
            board.set_at(gpu(number), DeviceHealth::unknown("gone"), true, at(u64::from(number)));
        }
        assert_eq!(board.since(0).len(), 200, "streams may still have to say so");
        board.set_at(gpu(250), DeviceHealth::healthy(), false, at(600));
        assert_eq!((board.devices.len(), devices(&board.all())), (1, vec!["gpu-250"]));
        board.set_at(gpu(251), DeviceHealth::healthy(), false, at(9000));
        assert_eq!(board.devices.len(), 2, "what was said and not forgotten stays");
    }

    #[test]
    fn all_is_said_again_within_a_third_of_the_shortest_lease() {
        let mut board = Board::default();
        assert_eq!(board.repeat_after(), Duration::from_secs(10));
        board.report(gpu(0), DeviceHealth::healthy().lease(Duration::from_secs(60)));
        assert_eq!(board.repeat_after(), Duration::from_secs(20));
        board.report(gpu(1), DeviceHealth::healthy().lease(Duration::from_millis(3900)));
        assert_eq!(board.repeat_after(), Duration::from_secs(1));
        board.report(gpu(1), DeviceHealth::healthy().lease(Duration::ZERO));
        assert_eq!(board.repeat_after(), Duration::from_secs(1) / 3);
        board.forget(&gpu(1));
        assert_eq!(board.repeat_after(), Duration::from_secs(20));
    }
}
