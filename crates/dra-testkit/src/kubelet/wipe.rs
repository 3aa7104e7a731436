//! When the slices of a driver are deleted because its plugins are gone: decided without I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Remembers since when drivers are away.
#[derive(Debug)]
pub(super) struct Wiper {
    after: Duration,
    /// Drivers that have been connected.
    drivers: BTreeMap<String, Presence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Connected,
    AwaySince(Instant),
    Wiped,
}

impl Wiper {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, drivers: BTreeMap::new() }
    }

    /// The drivers whose slices must go now. `connected` tells which drivers have a connected plugin; drivers
    /// that are not in it have no plugin at all.
    pub(super) fn step(&mut self, connected: &BTreeMap<String, bool>, now: Instant) -> Vec<String> {
        for (driver, connected) in connected {
            if *connected {
                self.drivers.insert(driver.clone(), Presence::Connected);
            }
        }
        let mut wiped = Vec::new();
        for (driver, presence) in &mut self.drivers {
            if connected.get(driver).copied().unwrap_or(false) {
                continue;
            }
            match *presence {
                Presence::Connected => *presence = Presence::AwaySince(now),
                Presence::AwaySince(since) if now >= since + self.after => {
                    *presence = Presence::Wiped;
                    wiped.push(driver.clone());
                }
                Presence::AwaySince(_) | Presence::Wiped => {}
            }
        }
        wiped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(drivers: &[(&str, bool)]) -> BTreeMap<String, bool> {
        drivers.iter().map(|(driver, connected)| ((*driver).to_owned(), *connected)).collect()
    }

    #[test]
    fn a_driver_that_stays_away_is_wiped_once() {
        let mut wiper = Wiper::new(Duration::from_secs(30));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(wiper.step(&connected(&[("d", true)]), at(0)).is_empty());
        assert!(wiper.step(&connected(&[("d", false)]), at(1)).is_empty());
        assert!(wiper.step(&connected(&[]), at(30)).is_empty());
        assert_eq!(wiper.step(&connected(&[]), at(31)), ["d"]);
        assert!(wiper.step(&connected(&[]), at(99)).is_empty());
    }

    #[test]
    fn a_driver_that_comes_back_in_time_is_not_wiped() {
        let mut wiper = Wiper::new(Duration::from_secs(30));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        wiper.step(&connected(&[("d", true)]), at(0));
        wiper.step(&connected(&[]), at(1));
        wiper.step(&connected(&[("d", true)]), at(20));
        wiper.step(&connected(&[]), at(25));
        assert!(wiper.step(&connected(&[]), at(54)).is_empty());
        assert_eq!(wiper.step(&connected(&[]), at(55)), ["d"]);
    }
}
