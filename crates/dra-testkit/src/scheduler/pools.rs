//! Which devices of the published slices can be used from a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

use super::nodes;

/// One device, named by driver, pool and device.
pub(super) type DeviceKey = (String, String, String);

/// A device that can be used from the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) slice: &'a ResourceSlice,
    pub(super) device: &'a Device,
}

impl Offer<'_> {
    pub(super) fn key(&self) -> DeviceKey {
        let spec = &self.slice.spec;
        (spec.driver.clone(), spec.pool.name.clone(), self.device.name.clone())
    }
}

/// The devices of all complete pools that can be used from the node, in the order of slice names and devices.
///
/// Of each pool only the newest generation counts, and only if all its slices are there. Devices that consume
/// shared counters are left out, and so are slices that place each device on its own.
pub(super) fn offers<'a>(slices: &'a [ResourceSlice], node: &Node) -> Vec<Offer<'a>> {
    let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        pools.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
    }
    let complete = pools.into_values().filter_map(newest_if_complete).flatten();
    let usable = complete.filter(|slice| is_usable_from(slice, node));
    usable
        .flat_map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            devices
                .filter(|device| device.consumes_counters.is_none())
                .map(move |device| Offer { slice, device })
        })
        .collect()
}

/// The slices of the newest generation, by name, if there are as many as they say.
fn newest_if_complete(slices: Vec<&ResourceSlice>) -> Option<Vec<&ResourceSlice>> {
    let generation = slices.iter().map(|slice| slice.spec.pool.generation).max()?;
    let mut newest: Vec<&ResourceSlice> =
        slices.into_iter().filter(|slice| slice.spec.pool.generation == generation).collect();
    newest.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let count = i64::try_from(newest.len()).ok()?;
    newest.iter().all(|slice| slice.spec.pool.resource_slice_count == count).then_some(newest)
}

fn is_usable_from(slice: &ResourceSlice, node: &Node) -> bool {
    let spec = &slice.spec;
    spec.all_nodes == Some(true)
        || spec.node_name.is_some() && spec.node_name == node.metadata.name
        || spec.node_selector.as_ref().is_some_and(|selector| nodes::selects(selector, node))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, (generation, count): (i64, i64), place: &Value, device: &str) -> ResourceSlice {
        let mut slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "d", "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": device}],
        }});
        for (field, value) in place.as_object().expect("an object") {
            slice["spec"][field] = value.clone();
        }
        serde_json::from_value(slice).expect("a slice")
    }

    fn offered(slices: &[ResourceSlice]) -> Vec<String> {
        let node = serde_json::from_value(json!({"metadata": {"name": "node-1"}})).expect("a node");
        offers(slices, &node).iter().map(|offer| offer.device.name.clone()).collect()
    }

    #[test]
    fn only_the_newest_generation_counts_and_only_when_complete() {
        let here = json!({"nodeName": "node-1"});
        let old = slice("a", (1, 1), &here, "old");
        let first = slice("b", (2, 2), &here, "first");
        let second = slice("c", (2, 2), &here, "second");
        assert_eq!(offered(std::slice::from_ref(&old)), ["old"]);
        assert_eq!(offered(&[old.clone(), first.clone()]), [""; 0], "the new generation is not complete");
        assert_eq!(offered(&[second, old, first]), ["first", "second"]);
    }

    #[test]
    fn devices_of_other_nodes_are_not_offered() {
        for (place, expected) in [
            (json!({"nodeName": "node-2"}), 0),
            (json!({"allNodes": true}), 1),
            (json!({"perDeviceNodeSelection": true}), 0),
            (json!({"nodeSelector": nodes::only("node-1")}), 1),
            (json!({"nodeSelector": nodes::only("node-2")}), 0),
        ] {
            assert_eq!(offered(&[slice("a", (1, 1), &place, "x")]).len(), expected, "{place}");
        }
    }
}
