//! Which devices go into which slice: where they are already if that is legal, else as few slices as can be.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};

use crate::{
    limits, split,
    wish::{Content, Frame, PoolWish},
};

/// The slices that the pool shall have, in order, without generation and count. `observed` has the oldest
/// generation first.
///
/// Moving a device from one slice to another costs two writes and, for consumers, the pool while they last. So
/// each device stays in its observed slice while the order and the limits allow it, whoever made the slices.
pub(crate) fn layout(wish: &PoolWish, observed: &[&ResourceSliceSpec]) -> Vec<ResourceSliceSpec> {
    match &*wish.content {
        Content::Slices(slices) => slices.clone(),
        Content::Whole { devices, counter_sets, frame } => {
            let fresh = fresh(devices, counter_sets);
            // An interrupted change to fresh slices goes on; what is left of the old ones does not matter.
            let runs = if is_under_way(&fresh, observed) {
                fresh
            } else {
                kept(devices, counter_sets, observed).unwrap_or(fresh)
            };
            runs.into_iter().filter_map(|run| run.render(frame)).collect()
        }
    }
}

/// Whether every slice of the newest generation has what one of these runs has, by name.
fn is_under_way(runs: &[Run<'_>], observed: &[&ResourceSliceSpec]) -> bool {
    let newest = observed.last().map(|spec| spec.pool.generation);
    let mut current = observed.iter().filter(|spec| Some(spec.pool.generation) == newest);
    current.all(|spec| runs.iter().any(|run| run.has_names_of(spec)))
}

/// The content of one slice.
#[derive(Clone, Debug)]
enum Run<'a> {
    Devices(Vec<&'a Device>),
    Counters(Vec<&'a CounterSet>),
}

impl Run<'_> {
    /// `None` cannot happen: the frame was tried when the wish was made.
    fn render(self, frame: &Frame) -> Option<ResourceSliceSpec> {
        match self {
            Self::Devices(devices) => frame.devices(devices.into_iter().cloned().collect()).ok(),
            Self::Counters(sets) => Some(frame.counter_sets(sets.into_iter().cloned().collect())),
        }
    }

    fn has_names_of(&self, spec: &ResourceSliceSpec) -> bool {
        let devices = || spec.devices.iter().flatten().map(|device| &device.name);
        let sets = || spec.shared_counters.iter().flatten().map(|set| &set.name);
        match self {
            Self::Devices(run) => {
                devices().eq(run.iter().map(|device| &device.name)) && sets().next().is_none()
            }
            Self::Counters(run) => sets().eq(run.iter().map(|set| &set.name)) && devices().next().is_none(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Devices(devices) => devices.is_empty(),
            Self::Counters(sets) => sets.is_empty(),
        }
    }
}

/// Counter sets first, then devices; a pool without either has one empty slice.
fn fresh<'a>(devices: &'a [Device], counter_sets: &'a [CounterSet]) -> Vec<Run<'a>> {
    let counters =
        split::counter_sets(counter_sets).into_iter().map(|run| Run::Counters(run.iter().collect()));
    let devices = split::devices(devices).into_iter().map(|run| Run::Devices(run.iter().collect()));
    let mut runs: Vec<_> = counters.chain(devices).collect();
    if runs.is_empty() {
        runs.push(Run::Devices(Vec::new()));
    }
    runs
}

/// The observed cut with the wished content, or nothing if that is not legal or not in order.
fn kept<'a>(
    devices: &'a [Device],
    counter_sets: &'a [CounterSet],
    observed: &[&ResourceSliceSpec],
) -> Option<Vec<Run<'a>>> {
    let mut observed = observed.to_vec();
    sort_by_wished_order(&mut observed, devices);
    let mut runs: Vec<Run<'a>> = observed.iter().map(|spec| empty_run(spec)).collect();
    place_devices(devices, &observed, &mut runs)?;
    place_counter_sets(counter_sets, &observed, &mut runs)?;
    runs.retain(|run| !run.is_empty());
    (!runs.is_empty() && runs.iter().all(is_legal)).then_some(runs)
}

/// Puts slices in the order in which the wish has their devices, because names need not tell the order.
/// Slices that have none of them keep their places in front.
fn sort_by_wished_order(observed: &mut [&ResourceSliceSpec], devices: &[Device]) {
    let position: BTreeMap<&str, usize> =
        devices.iter().enumerate().map(|(index, device)| (device.name.as_str(), index)).collect();
    observed.sort_by_key(|spec| {
        let known = spec.devices.iter().flatten().filter_map(|device| position.get(device.name.as_str()));
        known.min().copied()
    });
}

fn empty_run<'a>(spec: &ResourceSliceSpec) -> Run<'a> {
    let has_counters = spec.shared_counters.as_ref().is_some_and(|sets| !sets.is_empty());
    if has_counters { Run::Counters(Vec::new()) } else { Run::Devices(Vec::new()) }
}

/// Puts each device where it is, and a new one behind the device in front of it. Gives up when the order of the
/// slices is not the order of the devices.
fn place_devices<'a>(
    devices: &'a [Device],
    observed: &[&ResourceSliceSpec],
    runs: &mut [Run<'a>],
) -> Option<()> {
    let places: BTreeMap<&str, usize> = observed
        .iter()
        .enumerate()
        .flat_map(|(index, spec)| {
            spec.devices.iter().flatten().map(move |device| (device.name.as_str(), index))
        })
        .collect();
    let first = devices.iter().find_map(|device| places.get(device.name.as_str()));
    let Some(mut current) = first.copied() else { return devices.is_empty().then_some(()) };
    for device in devices {
        let place = places.get(device.name.as_str()).copied().unwrap_or(current);
        if place < current {
            return None;
        }
        current = place;
        match runs.get_mut(place)? {
            Run::Devices(run) => run.push(device),
            Run::Counters(_) => return None,
        }
    }
    Some(())
}

/// Puts each counter set where it is, and a new one into the last slice of counter sets.
fn place_counter_sets<'a>(
    counter_sets: &'a [CounterSet],
    observed: &[&ResourceSliceSpec],
    runs: &mut [Run<'a>],
) -> Option<()> {
    let places: BTreeMap<&str, usize> = observed
        .iter()
        .enumerate()
        .flat_map(|(index, spec)| {
            spec.shared_counters.iter().flatten().map(move |set| (set.name.as_str(), index))
        })
        .collect();
    let last = runs.iter().rposition(|run| matches!(run, Run::Counters(_)));
    for set in counter_sets {
        let place = places.get(set.name.as_str()).copied().or(last)?;
        match runs.get_mut(place)? {
            Run::Counters(run) => run.push(set),
            Run::Devices(_) => return None,
        }
    }
    Some(())
}

fn is_legal(run: &Run<'_>) -> bool {
    match run {
        Run::Devices(devices) => {
            devices.len() <= split::max_devices(devices.iter().any(|device| split::is_advanced(device)))
        }
        Run::Counters(sets) => sets.len() <= limits::MAX_COUNTER_SETS,
    }
}
