//! Devices of a slice.

use serde_json::{Value, json};

use super::{Draw, NODE, OTHER_NODE};

/// What all devices of a pool have in common.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is drawn alone")]
pub(super) struct Kinds {
    /// Devices take of the pool's counters.
    pub(super) has_counters: bool,
    /// Devices may be shared.
    pub(super) is_shared: bool,
    /// Devices have places of their own.
    pub(super) is_placed: bool,
    /// Something new: groups, lists, binding conditions.
    pub(super) is_new: bool,
}

impl Draw {
    pub(super) fn device(&mut self, name: &str, kinds: Kinds) -> Value {
        let mut device = json!({"name": name});
        device["attributes"] = self.attributes(kinds);
        let is_shared = kinds.is_shared && self.percent(80);
        if is_shared {
            device["allowMultipleAllocations"] = json!(true);
        }
        if self.theme.capacity && (is_shared && self.percent(95) || self.percent(40)) {
            device["capacity"] = self.capacity(is_shared);
        }
        if kinds.has_counters && self.percent(85) {
            device["consumesCounters"] = self.consumption(kinds);
        }
        if kinds.is_placed {
            self.place(&mut device);
        }
        if self.theme.taints && self.percent(45) {
            let taints = 1 + self.below(2);
            device["taints"] = (0..taints).map(|_| self.taint()).collect();
        }
        if kinds.is_new && self.percent(15) {
            device["bindingConditions"] = json!(["ready"]);
            device["bindingFailureConditions"] = json!(["failed"]);
        }
        if kinds.is_new && self.percent(10) {
            device["bindsToNode"] = json!(true);
        }
        device
    }

    fn attributes(&mut self, kinds: Kinds) -> Value {
        let mut attributes = json!({});
        if !self.fault(20) {
            attributes["model"] = json!({"string": self.pick(&["A", "B"])});
        }
        if !self.fault(20) {
            let name = self.pick(&["numa", "numa", "a.test/numa"]);
            attributes[name] = match self.below(if kinds.is_new { 8 } else { 5 }) {
                0 | 1 => json!({"int": 0}),
                2 | 3 => json!({"int": 1}),
                4 => json!({"string": "0"}),
                5 => json!({"ints": [0, 1]}),
                6 => json!({"ints": [1, 2]}),
                _ => json!({"strings": ["0"]}),
            };
        }
        if self.percent(50) {
            attributes["other.test/rack"] = json!({"string": self.pick(&["r1", "r2"])});
        }
        if self.percent(20) {
            attributes["version"] = json!({"version": self.pick(&["1.0.0", "1.0.0+b", "2.0.0"])});
        }
        if self.percent(20) {
            attributes["flag"] = json!({"bool": self.percent(50)});
        }
        attributes
    }

    fn consumption(&mut self, kinds: Kinds) -> Value {
        let mut consumption = Vec::new();
        let all = self.percent(20);
        for set in ["s", "t"] {
            if !(all || set == "s" || self.percent(10)) {
                continue;
            }
            let mut counters = json!({"c": {"value": self.pick(&["1", "2", "3", "4", "500m"])}});
            if set == "s" && self.percent(20) {
                counters["d"] = json!({"value": "1"});
            }
            let mut consumed = json!({"counterSet": set, "counters": counters});
            if kinds.is_new && self.percent(40) {
                consumed["compatibilityGroups"] = json!([self.pick(&["g", "h"]), self.pick(&["g", "i"])]);
            }
            consumption.push(consumed);
        }
        if self.fault(2) && !consumption.is_empty() {
            consumption[0]["counterSet"] = json!("unknown");
        }
        json!(consumption)
    }

    fn place(&mut self, device: &mut Value) {
        match self.below(6) {
            0..=2 => device["nodeName"] = json!(NODE),
            3 => device["nodeName"] = json!(OTHER_NODE),
            4 => device["allNodes"] = json!(true),
            _ => device["nodeSelector"] = self.node_selector(),
        }
    }

    fn taint(&mut self) -> Value {
        let mut taint = json!({"key": self.pick(&["k", "l"]),
            "effect": self.pick(&["NoSchedule", "NoExecute", "None", "NoSchedule"])});
        if self.percent(50) {
            taint["value"] = json!(self.pick(&["v", "w"]));
        }
        taint
    }
}
