//! Counters that the devices of a pool share, and compatibility groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Device;
use crate::pools::Pool;
use crate::quantity;

/// What devices take from a pool's counters, by set and counter, and who shares the sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    taken: BTreeMap<(String, String), i128>,
    groups: BTreeMap<String, Groups>,
}

/// What the devices that use a counter set have in common.
#[derive(Debug, Clone)]
enum Groups {
    /// None of them has a group; they go with their like only.
    NoGroups,
    Common(BTreeSet<String>),
}

impl Counters {
    /// Those of the devices that are in use.
    pub(crate) fn in_use<'a>(devices: impl Iterator<Item = &'a Device>) -> Self {
        devices.fold(Self::default(), |counters, device| {
            let added = counters.added(device);
            added.joined(device).unwrap_or(added)
        })
    }

    /// The counters with this device too, or none if the pool has not that much, or the device does not go with the others.
    pub(crate) fn with(&self, pool: &Pool<'_>, device: &Device) -> Option<Self> {
        let counters = self.joined(device)?.added(device);
        let is_enough = |(set, counter, value): (&str, &str, i128)| {
            let key = (set.to_owned(), counter.to_owned());
            counters.taken.get(&key).is_none_or(|taken| *taken <= value)
        };
        let mut values = pool.counters.iter().flat_map(|(set, counters)| {
            counters.iter().map(move |(counter, value)| (*set, *counter, *value))
        });
        values.all(is_enough).then_some(counters)
    }

    /// Why the device cannot have what it takes of the counters, if it cannot, for people.
    pub(crate) fn shortage(&self, pool: &Pool<'_>, device: &Device) -> Option<String> {
        if self.joined(device).is_none() {
            return Some(
                "devices in use that consume the same counters have no compatibility group in common with it"
                    .into(),
            );
        }
        for consumption in &device.consumes_counters {
            let set = consumption.counter_set.as_str();
            for (name, needed) in &consumption.counters {
                let Some(of) = pool.counters.get(set).and_then(|counters| counters.get(name.as_str())) else {
                    continue;
                };
                let taken = self.taken.get(&(set.to_owned(), name.clone())).copied().unwrap_or_default();
                if taken + needed.value.nanos > *of {
                    let spelled = |nanos| quantity::spelled_like(nanos, &needed.value.text);
                    return Some(format!(
                        "needs {} of counter {name} of set {set}, of which {} of {} are left",
                        needed.value.text,
                        spelled(of - taken),
                        spelled(*of),
                    ));
                }
            }
        }
        None
    }

    fn added(&self, device: &Device) -> Self {
        let mut counters = self.clone();
        for consumption in &device.consumes_counters {
            for (name, counter) in &consumption.counters {
                let key = (consumption.counter_set.clone(), name.clone());
                *counters.taken.entry(key).or_default() += counter.value.nanos;
            }
        }
        counters
    }

    /// None if the device's groups and those of the others have nothing in common.
    fn joined(&self, device: &Device) -> Option<Self> {
        let mut counters = self.clone();
        for consumption in &device.consumes_counters {
            let groups = &consumption.compatibility_groups;
            let joined = match counters.groups.get(&consumption.counter_set) {
                None | Some(Groups::NoGroups) if groups.is_empty() => Groups::NoGroups,
                None => Groups::Common(groups.clone()),
                Some(Groups::NoGroups) => return None,
                Some(Groups::Common(common)) => {
                    let common: BTreeSet<String> = common.intersection(groups).cloned().collect();
                    if common.is_empty() {
                        return None;
                    }
                    Groups::Common(common)
                }
            };
            counters.groups.insert(consumption.counter_set.clone(), joined);
        }
        Some(counters)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Slice;
    use crate::pools;

    /// Which of the devices fit one after the other into a set with ten units.
    fn fitting(devices: &Value) -> Vec<bool> {
        let slice = |name: &str, field: &str, value: Value| {
            let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
            json!({"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool, "allNodes": true, field: value}})
        };
        let set = json!([{"name": "s", "counters": {"c": {"value": "10"}}}]);
        let slices = json!([slice("a", "sharedCounters", set), slice("b", "devices", devices.clone())]);
        let slices: Vec<Slice> = serde_json::from_value(slices).expect("slices");
        let node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a node");
        let pools = pools::gather(&slices, &node);
        let mut counters = Counters::default();
        let devices = pools[0].slices.iter().flat_map(|slice| &slice.spec.devices);
        devices
            .map(|device| {
                let next = counters.with(&pools[0], device);
                let fits = next.is_some();
                counters = next.unwrap_or_else(|| counters.clone());
                fits
            })
            .collect()
    }

    fn device(name: &str, amount: &str, groups: &[&str]) -> Value {
        let counters = json!({"c": {"value": amount}});
        json!({"name": name, "consumesCounters": [{"counterSet": "s", "counters": counters, "compatibilityGroups": groups}]})
    }

    #[test]
    fn devices_fit_as_long_as_the_counters_last() {
        let devices = json!([device("x", "6", &[]), device("y", "5", &[]), device("z", "4", &[])]);
        assert_eq!(fitting(&devices), [true, false, true]);
    }

    #[test]
    fn devices_share_a_set_only_with_those_of_a_common_group() {
        let devices = json!([
            device("a", "1", &["x", "y"]),
            device("b", "1", &["y", "z"]),
            device("c", "1", &["x"]),
            device("d", "1", &[]),
            device("e", "1", &["y"]),
        ]);
        assert_eq!(fitting(&devices), [true, true, false, false, true]);
        let devices = json!([device("a", "1", &[]), device("b", "1", &["x"]), device("c", "1", &[])]);
        assert_eq!(fitting(&devices), [true, false, true]);
    }
}
