//! Draws a world: small, so that both can try all of it, and with something odd in most.

mod amounts;
mod claims;
mod devices;
mod slices;

use serde_json::{Value, json};

use super::world::World;
use crate::dice::Dice;

/// The node that claims are allocated for, and another one.
const NODE: &str = "n1";
const OTHER_NODE: &str = "n2";
const DRIVERS: [&str; 2] = ["a.test", "b.test"];
/// Selectors that fail on no device.
const SELECTORS: [&str; 9] = [
    "device.driver == 'a.test'",
    "device.attributes['a.test'].?model.orValue('') == 'A'",
    "device.attributes['a.test'].?model.orValue('') != 'A'",
    "'numa' in device.attributes['a.test']",
    "'rack' in device.attributes['other.test'] && device.attributes['other.test'].rack == 'r1'",
    "'memory' in device.capacity['a.test'] && device.capacity['a.test'].memory.compareTo(quantity('4')) >= 0",
    "device.allowMultipleAllocations == true",
    "device.driver != 'b.test'",
    "true",
];
/// Selectors that fail on devices without the attribute or the capacity.
const FAILING: [&str; 4] = [
    "device.attributes['a.test'].model == 'A'",
    "device.attributes['a.test'].numa == 0",
    "device.capacity['a.test'].memory.isGreaterThan(quantity('1'))",
    "false",
];

/// The world with this number. The same seed and number give the same one.
pub(super) fn world(seed: u64, number: u64) -> World {
    let mut draw = Draw::new(Dice::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(number)));
    let node = draw.node();
    let slices = draw.slices();
    let held = draw.held(&slices);
    let classes = draw.classes();
    let claims = draw.claims();
    World { node, classes, slices, held, claims }
}

/// Draws parts of a world.
struct Draw {
    dice: Dice,
    theme: Theme,
}

/// What a world is about. One with a bit of everything would allocate next to nothing.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is drawn alone")]
struct Theme {
    capacity: bool,
    constraints: bool,
    counters: bool,
    /// Pools that are incomplete, invalid or replaced, names that are gone, selectors that fail.
    faults: bool,
    /// What only the newest allocators know.
    newest: bool,
    taints: bool,
}

impl Draw {
    fn new(mut dice: Dice) -> Self {
        let mut drawn = |percent| dice.between(0, 100) < percent;
        let theme = Theme {
            capacity: drawn(45),
            constraints: drawn(40),
            counters: drawn(35),
            faults: drawn(35),
            newest: drawn(35),
            taints: drawn(35),
        };
        Self { dice, theme }
    }

    /// True so many times in a hundred, in worlds with faults.
    fn fault(&mut self, percent: u64) -> bool {
        self.theme.faults && self.percent(percent)
    }

    fn below(&mut self, limit: usize) -> usize {
        // A number below a usize is one.
        usize::try_from(self.dice.between(0, limit as u64)).unwrap_or_default()
    }

    /// True so many times in a hundred.
    fn percent(&mut self, percent: u64) -> bool {
        self.dice.between(0, 100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn node(&mut self) -> Value {
        let mut node = json!({"metadata": {"name": NODE, "labels": {"zone": "z1", "size": "3"}}});
        if self.percent(60) {
            node["status"] = json!({"declaredFeatures": ["DRAOptionalNodeOperations"]});
        }
        node
    }

    fn classes(&mut self) -> Vec<Value> {
        let config = |driver: &str| json!([{"opaque": {"driver": driver, "parameters": {"of": driver}}}]);
        let of_driver = json!([{"cel": {"expression": "device.driver == 'a.test'"}}]);
        let mut classes = vec![
            json!({"metadata": {"name": "any"}, "spec": {}}),
            json!({"metadata": {"name": "of-a"}, "spec": {"selectors": of_driver, "config": config("a.test")}}),
        ];
        if self.percent(50) {
            classes[0]["spec"]["config"] = config("b.test");
        }
        let expression = self.selector();
        classes.push(
            json!({"metadata": {"name": "odd"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
        );
        classes
    }

    fn selector(&mut self) -> &'static str {
        if self.fault(30) { self.pick(&FAILING) } else { self.pick(&SELECTORS) }
    }

    /// Claims that hold some of the devices, and some that are gone.
    fn held(&mut self, slices: &[Value]) -> Vec<Value> {
        if self.percent(40) {
            return Vec::new();
        }
        let mut claims = Vec::new();
        for slice in slices {
            for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
                if self.percent(18) {
                    claims.push(self.holder(claims.len(), &slice["spec"], device));
                }
            }
        }
        claims
    }

    fn holder(&mut self, number: usize, spec: &Value, device: &Value) -> Value {
        let name = if self.fault(10) { json!("gone") } else { device["name"].clone() };
        let mut result =
            json!({"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": name});
        let mut is_shared = device["allowMultipleAllocations"] == true;
        // The driver may have changed its mind since.
        if self.fault(8) {
            is_shared = !is_shared;
        }
        if is_shared {
            result["shareID"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            if let Some(capacity) = device["capacity"].as_object()
                && !self.percent(5)
            {
                let amounts: serde_json::Map<String, Value> =
                    capacity.keys().map(|name| (name.clone(), json!(self.small()))).collect();
                result["consumedCapacity"] = json!(amounts);
            }
        }
        if self.percent(6) {
            result["adminAccess"] = json!(true);
        }
        let allocation = json!({"devices": {"results": [result]}});
        json!({"metadata": {"name": format!("held-{number}"), "namespace": "other"}, "spec": {}, "status": {"allocation": allocation}})
    }

    /// A node selector of the node, or of others.
    fn node_selector(&mut self) -> Value {
        let requirement = |key: &str, operator: &str, values: Value| match values {
            Value::Null => json!({"key": key, "operator": operator}),
            values => json!({"key": key, "operator": operator, "values": values}),
        };
        let by_label =
            |requirements: Value| json!({"nodeSelectorTerms": [{"matchExpressions": requirements}]});
        match self.below(10) {
            0 => by_label(json!([requirement("zone", "In", json!(["z1", "z2"]))])),
            1 => by_label(json!([requirement("zone", "In", json!(["z2"]))])),
            2 => by_label(json!([requirement("zone", "NotIn", json!(["z2"]))])),
            3 => by_label(json!([requirement("rack", "DoesNotExist", Value::Null)])),
            4 => by_label(json!([
                requirement("zone", "Exists", Value::Null),
                requirement("size", "Gt", json!(["2"]))
            ])),
            5 => by_label(json!([requirement("size", "Lt", json!(["3"]))])),
            6 => by_label(json!([requirement("zone", "Gt", json!(["1"]))])),
            7 => {
                json!({"nodeSelectorTerms": [{"matchFields": [requirement("metadata.name", "In", json!([NODE]))]}]})
            }
            8 => {
                json!({"nodeSelectorTerms": [{"matchFields": [requirement("metadata.name", "NotIn", json!([OTHER_NODE]))]}]})
            }
            _ => {
                json!({"nodeSelectorTerms": [{"matchFields": [requirement("metadata.name", "In", json!([OTHER_NODE]))]}]})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_worlds_and_another_does_not() {
        let worlds = |seed| (0..20).map(|number| world(seed, number)).collect::<Vec<_>>();
        assert_eq!(worlds(1), worlds(1));
        assert_ne!(worlds(1), worlds(2));
    }

    /// All that was asked for is drawn, and often enough to matter.
    #[test]
    fn worlds_have_something_of_everything() {
        let texts: Vec<String> = (0..2000).map(|number| json!(world(1, number)).to_string()).collect();
        for part in [
            "nodeSelector",
            "perDeviceNodeSelection",
            "allNodes",
            "requestPolicy",
            "validRange",
            "validValues",
            "shareID",
            "sharedCounters",
            "compatibilityGroups",
            "taints",
            "tolerations",
            "\"All\"",
            "adminAccess",
            "firstAvailable",
            "matchAttribute",
            "distinctAttribute",
            "bindingConditions",
            "skipNodeOperations",
            "consumedCapacity",
            "ints",
            "\"generation\":2",
            "\"count\":33",
            "bindsToNode",
            "config",
        ] {
            let count = texts.iter().filter(|text| text.contains(part)).count();
            assert!(count >= 20, "{part} is in {count} of {} worlds", texts.len());
        }
    }
}
