//! What becomes of a driver's ResourceSlices, event by event.

mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use k8s_openapi::api::resource::v1::ResourceSlice;

pub(crate) use watch::SliceWatch;

/// Events in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<Event>);

#[derive(Clone, Debug)]
struct Event {
    at: Instant,
    /// Name of the slice.
    name: String,
    /// What it is now; `None` if it is gone.
    now: Option<State>,
    created: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    generation: i64,
    devices: BTreeSet<String>,
}

/// The slices at one time, by name.
type Slices = BTreeMap<String, State>;

impl History {
    fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// How many events there have been.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The numbers of devices that the driver has had, one after the other; not 0, as a kubelet wipes slices.
    pub(crate) fn device_counts(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self
            .replay()
            .map(|(_, slices)| slices.values().map(|slice| slice.devices.len()).sum())
            .filter(|count| *count > 0)
            .collect();
        counts.dedup();
        counts
    }

    /// # Errors
    /// There were two slices of one index at once, a generation went down, or it went up by more than one.
    pub(crate) fn check(&self) -> Result<()> {
        let mut highest = None;
        for (at, slices) in self.replay() {
            let indexes: BTreeSet<_> = slices.keys().map(|name| index(name)).collect();
            ensure!(indexes.len() == slices.len(), "{at:?}: two slices of one index: {slices:?}");
            let Some(generation) = slices.values().map(|slice| slice.generation).max() else { continue };
            let before = highest.replace(generation).unwrap_or(generation);
            let fits = (before..=before + 1).contains(&generation);
            ensure!(fits, "{at:?}: generation {before} became {generation}: {slices:?}");
        }
        Ok(())
    }

    /// The longest time without any slice between `from` and `to`.
    pub(crate) fn longest_empty(&self, from: Instant, to: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        // Before the first event there is nothing.
        let mut empty_since = Some(from);
        for (at, slices) in self.replay().take_while(|(at, _)| *at <= to) {
            if !slices.is_empty() {
                if let Some(since) = empty_since.take() {
                    longest = longest.max(at.saturating_duration_since(since));
                }
            } else if empty_since.is_none() {
                empty_since = Some(at.max(from));
            }
        }
        let rest = empty_since.map(|since| to.saturating_duration_since(since)).unwrap_or_default();
        longest.max(rest)
    }

    /// When slices were created.
    pub(crate) fn created(&self) -> Vec<Instant> {
        self.0.iter().filter(|event| event.created).map(|event| event.at).collect()
    }

    /// When a slice was written that has this device.
    pub(crate) fn written_with(&self, device: &str) -> Vec<Instant> {
        let has = |event: &&Event| event.now.as_ref().is_some_and(|state| state.devices.contains(device));
        self.0.iter().filter(has).map(|event| event.at).collect()
    }

    /// The slices after each event.
    fn replay(&self) -> impl Iterator<Item = (Instant, Slices)> {
        self.0.iter().scan(Slices::new(), |slices, event| {
            match &event.now {
                Some(state) => slices.insert(event.name.clone(), state.clone()),
                None => slices.remove(&event.name),
            };
            Some((event.at, slices.clone()))
        })
    }
}

impl Event {
    fn of(slice: &ResourceSlice, gone: bool, created: bool) -> Self {
        let devices = slice.spec.devices.iter().flatten().map(|device| device.name.clone()).collect();
        let state = State { generation: slice.spec.pool.generation, devices };
        let name = slice.metadata.name.clone().unwrap_or_default();
        Self { at: Instant::now(), name, now: (!gone).then_some(state), created }
    }
}

/// The index of a slice in its pool: the hex digits that its name starts with.
fn index(name: &str) -> &str {
    name.split_once('-').map_or(name, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told {
        start: Instant,
        history: History,
    }

    impl Told {
        fn new() -> Self {
            Self { start: Instant::now(), history: History::default() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn is(mut self, seconds: u64, name: &str, generation: i64, devices: usize) -> Self {
            let devices = (0..devices).map(|i| format!("gpu-{i}")).collect();
            let state = State { generation, devices };
            let (at, name) = (self.at(seconds), name.to_owned());
            self.history.push(Event { at, name, now: Some(state), created: false });
            self
        }

        fn gone(mut self, seconds: u64, name: &str) -> Self {
            let (at, name) = (self.at(seconds), name.to_owned());
            self.history.push(Event { at, name, now: None, created: false });
            self
        }
    }

    #[test]
    fn changes_of_the_devices_are_told_once_and_wipes_not_at_all() {
        let told = Told::new().is(0, "0-a", 1, 8).is(1, "0-a", 1, 9).gone(2, "0-a").is(3, "0-a", 1, 9);
        assert_eq!(told.history.device_counts(), [8, 9]);
        told.history.check().unwrap();
        let told = told.is(4, "0-a", 2, 8);
        assert_eq!(told.history.device_counts(), [8, 9, 8]);
        told.history.check().unwrap();
    }

    #[test]
    fn twins_and_leaping_generations_are_noticed() {
        let one = || Told::new().is(0, "0-a", 4, 8);
        for (bad, what) in [
            (one().is(1, "0-b", 4, 8), "two slices"),
            (one().is(1, "0-a", 3, 8), "generation 4 became 3"),
            (one().gone(1, "0-a").is(2, "0-a", 6, 8), "generation 4 became 6"),
        ] {
            let error = bad.history.check().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn times_without_slices_are_measured_within_the_given_time_only() {
        let told = Told::new().is(0, "0-a", 1, 8).gone(10, "0-a").is(13, "0-a", 1, 8).gone(20, "0-a");
        let longest = |from, to| told.history.longest_empty(told.at(from), told.at(to)).as_secs();
        assert_eq!(longest(1, 9), 0);
        assert_eq!(longest(1, 19), 3);
        assert_eq!(longest(12, 19), 1);
        assert_eq!(longest(1, 12), 2);
        assert_eq!(longest(14, 25), 5);
        assert_eq!(History::default().longest_empty(told.at(0), told.at(7)).as_secs(), 7);
    }
}
