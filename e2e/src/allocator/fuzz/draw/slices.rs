//! Slices: whole pools and others, of several generations and nodes.

use serde_json::{Value, json};

use super::{DRIVERS, Draw, NODE, OTHER_NODE, devices::Kinds};

/// Devices of a pool, so that both can try all choices.
const MOST_DEVICES: usize = 5;

impl Draw {
    pub(super) fn slices(&mut self) -> Vec<Value> {
        let mut slices = Vec::new();
        for number in 0..[1, 1, 2, 2, 3][self.below(5)] {
            let driver = if self.percent(75) { DRIVERS[0] } else { DRIVERS[1] };
            let name = format!("{}{number}", self.pick(&["p", "a", "z"]));
            self.pool(driver, &name, &mut slices);
        }
        for index in (1..slices.len()).rev() {
            let other = self.below(index + 1);
            slices.swap(index, other);
        }
        slices
    }

    fn pool(&mut self, driver: &str, name: &str, slices: &mut Vec<Value>) {
        let kinds = Kinds {
            has_counters: self.theme.counters && self.percent(80),
            is_shared: self.theme.capacity && self.percent(70),
            is_placed: self.percent(12),
            is_new: self.theme.newest,
        };
        let generation = 1 + self.below(2);
        let mut whole = self.generation(driver, name, generation, kinds);
        // Another generation, here or elsewhere, whole or not.
        if self.fault(40) {
            let other = generation + self.below(2) * 2 - usize::from(generation > 0 && self.percent(60));
            whole.extend(self.generation(driver, name, other, kinds));
        }
        if self.fault(12) {
            let lost = self.below(whole.len());
            whole.remove(lost);
        }
        for mut slice in whole {
            let number = self.below(1000);
            slice["metadata"] = json!({"name": format!("s{number:03}-{}", slices.len())});
            slices.push(slice);
        }
    }

    fn generation(&mut self, driver: &str, name: &str, generation: usize, kinds: Kinds) -> Vec<Value> {
        let mut specs = Vec::new();
        if kinds.has_counters {
            let counters = |amount: &str| json!({"c": {"value": amount}, "d": {"value": "2"}});
            let sets = json!([
                {"name": "s", "counters": counters(self.pick(&["4", "6", "2500m"]))},
                {"name": "t", "counters": counters(self.pick(&["2", "4"]))},
            ]);
            specs.push(json!({"sharedCounters": sets}));
        }
        let mut left = 1 + self.below(MOST_DEVICES);
        let mut number = 0;
        while left > 0 {
            let count = 1 + self.below(left);
            left -= count;
            let mut devices = Vec::new();
            for _ in 0..count {
                // A name may be there twice: the pool is not valid then.
                if !self.fault(2) {
                    number += 1;
                }
                devices.push(self.device(&format!("d{number}"), kinds));
            }
            specs.push(json!({"devices": devices}));
        }
        let count = if self.fault(10) { specs.len() + 1 } else { specs.len() };
        let mut slices = Vec::new();
        let usual = self.below(10);
        for mut spec in specs {
            let mut count = count;
            if self.fault(5) {
                count = 1 + self.below(3);
            }
            spec["driver"] = json!(driver);
            spec["pool"] = json!({"name": name, "generation": generation, "resourceSliceCount": count});
            let place = if self.percent(12) { self.below(10) } else { usual };
            let has_devices = spec.get("devices").is_some();
            match place {
                _ if kinds.is_placed && has_devices => spec["perDeviceNodeSelection"] = json!(true),
                0..=5 => spec["nodeName"] = json!(NODE),
                6 => spec["nodeName"] = json!(OTHER_NODE),
                7 | 8 => spec["nodeSelector"] = self.node_selector(),
                _ => spec["allNodes"] = json!(true),
            }
            if kinds.is_new && has_devices && self.percent(10) {
                spec["skipNodeOperations"] = json!(["NodePrepareResources"]);
            }
            slices.push(json!({"spec": spec}));
        }
        slices
    }
}
