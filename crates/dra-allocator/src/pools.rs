//! The pools that have devices for a node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use crate::model::{Device, DeviceKey, Place, PoolOfSlice, Slice};
use crate::nodes;

/// Driver and name of a pool.
pub(crate) type PoolKey = (String, String);

/// A pool as far as it is usable from a node.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) key: PoolKey,
    pub(crate) state: PoolState,
    /// With devices for the node, by name.
    pub(crate) slices: Vec<&'a Slice>,
    /// With devices for other nodes only. They use the same counters.
    pub(crate) elsewhere: Vec<&'a Slice>,
    /// The counters' values by set and counter.
    pub(crate) counters: BTreeMap<&'a str, BTreeMap<&'a str, i128>>,
}

/// Whether devices of a pool may be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PoolState {
    Usable,
    /// There are fewer slices than they say.
    Incomplete,
    /// The slices contradict each other.
    Invalid(String),
}

impl Pool<'_> {
    pub(crate) fn key_of(&self, device: &Device) -> DeviceKey {
        (self.key.0.clone(), self.key.1.clone(), device.name.clone())
    }

    fn has_binding_conditions(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| &slice.spec.devices);
        devices.any(|device| !device.binding_conditions.is_empty())
    }
}

/// The pools with devices for the node, in the order in which the scheduler tries them: by driver and name, those with
/// binding conditions last. Only the newest generation of a pool counts.
pub(crate) fn gather<'a>(slices: &'a [Slice], node: &Node) -> Vec<Pool<'a>> {
    let mut here: BTreeMap<PoolKey, Vec<&Slice>> = BTreeMap::new();
    // The scheduler looks at the slices that name the node before those for several nodes.
    let (named, others): (Vec<&Slice>, Vec<&Slice>) = slices
        .iter()
        .filter(|slice| is_for(slice, node))
        .partition(|slice| slice.spec.place.node_name.is_some());
    for slice in named.into_iter().chain(others) {
        here.entry(key_of(slice)).or_default().push(slice);
    }
    let mut pools: Vec<Pool<'a>> =
        here.into_iter().filter_map(|(key, here)| pool(key, newest(here), slices)).collect();
    pools.sort_by_key(Pool::has_binding_conditions);
    pools
}

/// Whether the place includes the node.
pub(crate) fn includes(place: &Place, node: &Node) -> bool {
    match (&place.node_name, &place.node_selector) {
        (Some(name), _) => node.metadata.name.as_ref() == Some(name),
        _ if place.all_nodes => true,
        (None, Some(selector)) => nodes::selects(selector, node),
        (None, None) => false,
    }
}

fn is_for(slice: &Slice, node: &Node) -> bool {
    if slice.spec.per_device_node_selection {
        return slice.spec.devices.iter().any(|device| includes(&device.place, node));
    }
    includes(&slice.spec.place, node)
}

fn key_of(slice: &Slice) -> PoolKey {
    (slice.spec.driver.clone(), slice.spec.pool.name.clone())
}

fn newest(mut slices: Vec<&Slice>) -> Vec<&Slice> {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    slices.retain(|slice| Some(slice.spec.pool.generation) == newest);
    slices
}

/// A pool whose slices for the node are as many as they say is used as it is, whatever other slices have its name: so do the
/// allocators of the scheduler of 1.37.2 (`GatherPools`). Else the slices for other nodes count too. None if these have a
/// newer generation, which then has nothing for the node.
fn pool<'a>(key: PoolKey, here: Vec<&'a Slice>, all: &'a [Slice]) -> Option<Pool<'a>> {
    let PoolOfSlice { generation, resource_slice_count: count, .. } = here.first()?.spec.pool;
    let mut pool = Pool {
        key,
        state: PoolState::Usable,
        slices: Vec::new(),
        elsewhere: Vec::new(),
        counters: BTreeMap::new(),
    };
    let are_all = |slices: &[&Slice]| i64::try_from(slices.len()).ok() == Some(count);
    let mut elsewhere = Vec::new();
    if !are_all(&here) {
        let of_pool: Vec<&Slice> = all.iter().filter(|slice| key_of(slice) == pool.key).collect();
        if of_pool.iter().any(|slice| slice.spec.pool.generation > generation) {
            return None;
        }
        let whole = newest(of_pool);
        if !are_all(&whole) {
            pool.state = PoolState::Incomplete;
            return Some(pool);
        }
        let names: BTreeSet<&str> = here.iter().map(|slice| slice.metadata.name.as_str()).collect();
        elsewhere = whole;
        elsewhere.retain(|slice| !names.contains(slice.metadata.name.as_str()));
    }
    let has_counters = |slice: &&Slice| !slice.spec.shared_counters.is_empty();
    let (mut with_counters, with_devices): (Vec<&Slice>, Vec<&Slice>) =
        here.into_iter().partition(has_counters);
    let (counters_elsewhere, devices_elsewhere): (Vec<&Slice>, Vec<&Slice>) =
        elsewhere.into_iter().partition(has_counters);
    with_counters.extend(counters_elsewhere);
    (pool.slices, pool.elsewhere) = (with_devices, devices_elsewhere);
    pool.slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    if let Err(reason) = add_counters(&mut pool, &with_counters).and_then(|()| check(&pool)) {
        pool.state = PoolState::Invalid(reason);
    }
    Some(pool)
}

fn add_counters<'a>(pool: &mut Pool<'a>, slices: &[&'a Slice]) -> Result<(), String> {
    for set in slices.iter().flat_map(|slice| &slice.spec.shared_counters) {
        let counters = set.counters.iter().map(|(name, counter)| (name.as_str(), counter.value.nanos));
        if pool.counters.insert(&set.name, counters.collect()).is_some() {
            return Err(format!("duplicate counter set name {}", set.name));
        }
    }
    Ok(())
}

fn check(pool: &Pool<'_>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for device in pool.slices.iter().flat_map(|slice| &slice.spec.devices) {
        if !names.insert(&device.name) {
            return Err(format!("duplicate device name {}", device.name));
        }
    }
    let devices = pool.slices.iter().chain(&pool.elsewhere).flat_map(|slice| &slice.spec.devices);
    for consumption in devices.flat_map(|device| &device.consumes_counters) {
        let set = consumption.counter_set.as_str();
        let known = pool.counters.get(set).ok_or_else(|| format!("counter set {set} not found"))?;
        if let Some(counter) = consumption.counters.keys().find(|name| !known.contains_key(name.as_str())) {
            return Err(format!("counter {counter} not found in counter set {set}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, (generation, count): (i64, i64), more: &Value) -> Slice {
        let mut slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "d", "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": name}],
        }});
        for (field, value) in more.as_object().expect("an object") {
            slice["spec"][field] = value.clone();
        }
        serde_json::from_value(slice).expect("a slice")
    }

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "node-1"}})).expect("a node")
    }

    /// Name, state and devices of each pool.
    fn gathered(slices: &[Slice]) -> Vec<(String, PoolState, Vec<String>)> {
        let devices = |pool: &Pool<'_>| {
            let devices = pool.slices.iter().flat_map(|slice| &slice.spec.devices);
            devices.map(|device| device.name.clone()).collect()
        };
        gather(slices, &node())
            .iter()
            .map(|pool| (pool.key.1.clone(), pool.state.clone(), devices(pool)))
            .collect()
    }

    #[test]
    fn only_the_newest_generation_counts_and_only_when_complete() {
        let here = json!({"nodeName": "node-1"});
        let there = json!({"nodeName": "node-2"});
        let old = slice("a", (1, 1), &here);
        let first = slice("b", (2, 2), &here);
        let second = slice("c", (2, 2), &here);
        let usable = |devices: &[&str]| {
            let devices = devices.iter().map(ToString::to_string).collect();
            vec![("p".to_owned(), PoolState::Usable, devices)]
        };
        assert_eq!(gathered(std::slice::from_ref(&old)), usable(&["a"]));
        let incomplete = vec![("p".to_owned(), PoolState::Incomplete, Vec::new())];
        assert_eq!(gathered(&[old.clone(), first.clone()]), incomplete);
        assert_eq!(gathered(&[second, old.clone(), first.clone()]), usable(&["b", "c"]));
        assert_eq!(
            gathered(&[first, slice("c", (2, 2), &there)]),
            usable(&["b"]),
            "whole with the other node's"
        );
        let newer = slice("c", (2, 1), &there);
        assert_eq!(gathered(&[old, newer.clone()]), usable(&["a"]), "complete, so nothing else is looked at");
        let part = slice("a", (1, 2), &here);
        assert_eq!(gathered(&[part, newer]), [], "replaced by one for another node");
    }

    #[test]
    fn a_whole_pool_is_usable_whatever_other_nodes_have_of_its_name() {
        let here = slice("a", (1, 1), &json!({"nodeName": "node-1"}));
        let there = |generation, count| slice("b", (generation, count), &json!({"nodeName": "node-2"}));
        for other in [there(1, 1), there(1, 2), there(2, 1), there(2, 3)] {
            let pools = gathered(&[other, here.clone()]);
            assert_eq!(pools, [("p".to_owned(), PoolState::Usable, vec!["a".to_owned()])]);
        }
    }

    #[test]
    fn devices_of_other_nodes_are_not_offered() {
        for (place, expected) in [
            (json!({"nodeName": "node-2"}), 0),
            (json!({"allNodes": true}), 1),
            (json!({"perDeviceNodeSelection": true}), 0),
            (json!({"perDeviceNodeSelection": true, "devices": [{"name": "x", "nodeName": "node-1"}]}), 1),
            (json!({"nodeSelector": nodes::only("node-1")}), 1),
            (json!({"nodeSelector": nodes::only("node-2")}), 0),
        ] {
            assert_eq!(gathered(&[slice("a", (1, 1), &place)]).len(), expected, "{place}");
        }
    }

    #[test]
    fn pools_that_contradict_themselves_are_invalid() {
        let set = json!({"name": "s", "counters": {"c": {"value": "1"}}});
        let counters = |sets: Value| {
            slice("counters", (1, 2), &json!({"nodeName": "node-1", "devices": [], "sharedCounters": sets}))
        };
        let consumer = |set: &str, counter: &str| {
            let consumes = json!([{"counterSet": set, "counters": {counter: {"value": "1"}}}]);
            let device = json!({"name": "x", "consumesCounters": consumes});
            slice("devices", (1, 2), &json!({"nodeName": "node-1", "devices": [device]}))
        };
        let twice = json!({"nodeName": "node-1", "devices": [{"name": "x"}, {"name": "x"}]});
        for (slices, reason) in [
            (vec![slice("a", (1, 1), &twice)], "duplicate device name x"),
            (vec![counters(json!([set, set])), consumer("s", "c")], "duplicate counter set name s"),
            (vec![counters(json!([set])), consumer("t", "c")], "counter set t not found"),
            (vec![counters(json!([set])), consumer("s", "d")], "counter d not found in counter set s"),
        ] {
            assert_eq!(gathered(&slices)[0].1, PoolState::Invalid(reason.to_owned()));
        }
        assert_eq!(gathered(&[counters(json!([set])), consumer("s", "c")])[0].1, PoolState::Usable);
    }

    #[test]
    fn pools_are_in_order_and_those_with_binding_conditions_last() {
        let of_pool = |pool: &str, conditions: Value| {
            let device = json!({"name": pool, "bindingConditions": conditions});
            let pool = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
            slice("s", (1, 1), &json!({"nodeName": "node-1", "pool": pool, "devices": [device]}))
        };
        let slices = [of_pool("c", json!([])), of_pool("a", json!(["x"])), of_pool("b", json!([]))];
        let order: Vec<String> = gathered(&slices).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(order, ["b", "c", "a"]);
    }
}
