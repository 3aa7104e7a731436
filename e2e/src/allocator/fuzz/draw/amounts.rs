//! Quantities, and the policies of devices for requests of them.

use serde_json::{Value, json};

use super::Draw;

const SMALL: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "8", "10"];
/// Amounts with which rounding and comparing differ.
const ODD: [&str; 13] = [
    "500m",
    "1500m",
    "2500m",
    "1",
    "3000m",
    "100n",
    "1u",
    "1Ki",
    "1024",
    "1k",
    "9223372036854775807",
    "9223372036854775808",
    "16E",
];

impl Draw {
    /// A small whole amount.
    pub(super) fn small(&mut self) -> &'static str {
        self.pick(&SMALL)
    }

    /// An amount that a claim asks for.
    pub(super) fn asked(&mut self) -> &'static str {
        if self.fault(30) { self.pick(&ODD) } else { self.small() }
    }

    /// The capacities of a device that is shared, or not.
    pub(super) fn capacity(&mut self, is_shared: bool) -> Value {
        let mut capacity = json!({"memory": self.capacity_value(is_shared)});
        if self.percent(25) {
            capacity["a.test/lanes"] = self.capacity_value(is_shared);
        }
        capacity
    }

    fn capacity_value(&mut self, is_shared: bool) -> Value {
        let mut capacity = json!({"value": self.pick(&["4", "8", "10", "12", "12000m", "16"])});
        // The API server takes policies of shared devices only.
        if is_shared && self.percent(60) {
            capacity["requestPolicy"] = self.policy();
        }
        if is_shared && self.fault(6) {
            capacity = json!({"value": self.pick(&["1k", "16E", "1Ki"])});
        }
        capacity
    }

    fn policy(&mut self) -> Value {
        match self.below(9) {
            0 => json!({"default": "2", "validRange": {"min": "1"}}),
            1 => json!({"default": "1", "validRange": {"min": "1", "max": "4"}}),
            2 => json!({"default": "3", "validRange": {"min": "1", "max": "7", "step": "2"}}),
            3 => json!({"default": "500m", "validRange": {"min": "500m", "max": "3500m", "step": "500m"}}),
            4 => json!({"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}),
            5 => json!({"default": "2", "validValues": ["1", "2", "4"]}),
            6 => json!({"default": "1", "validValues": ["500m", "1"]}),
            7 => json!({"default": "0", "validRange": {"min": "0", "step": "1"}}),
            _ => json!({"default": "3"}),
        }
    }

    /// A share that a claim asks of capacities.
    pub(super) fn capacity_request(&mut self) -> Value {
        let mut requests = serde_json::Map::new();
        let name = self.pick(&["memory", "memory", "memory", "a.test/lanes", "a.test/memory"]);
        requests.insert(name.to_owned(), json!(self.asked()));
        if self.percent(10) {
            requests.insert("memory".to_owned(), json!(self.asked()));
        }
        json!({"requests": requests})
    }
}
