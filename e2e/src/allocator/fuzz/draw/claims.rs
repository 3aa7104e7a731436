//! Claims of a pod.

use serde_json::{Value, json};

use super::Draw;

/// Attributes that constraints compare.
const ATTRIBUTES: [&str; 6] =
    ["a.test/numa", "a.test/model", "other.test/rack", "b.test/numa", "a.test/version", "a.test/flag"];
/// Devices that are asked for by number, so that both can try all choices.
const MOST_ASKED: usize = 5;
/// More devices than a claim can have.
const TOO_MANY: usize = 33;

impl Draw {
    pub(super) fn claims(&mut self) -> Vec<Value> {
        let mut budget = MOST_ASKED;
        let count = [1, 1, 2, 3][self.below(4)];
        let mut claims = Vec::new();
        for number in 0..count {
            if budget == 0 {
                break;
            }
            let devices = self.claim(&mut budget);
            claims.push(json!({
                "metadata": {"name": format!("c{number}"), "namespace": "default", "uid": format!("u{number}")},
                "spec": {"devices": devices},
            }));
        }
        claims
    }

    fn claim(&mut self, budget: &mut usize) -> Value {
        let (mut requests, mut names) = (Vec::new(), Vec::new());
        for number in 0..[1, 1, 2, 2, 3][self.below(5)] {
            if *budget == 0 && number > 0 {
                break;
            }
            let name = format!("r{number}");
            names.push(name.clone());
            if self.percent(75) {
                let mut exactly = self.ask(budget);
                if self.percent(8) {
                    exactly["adminAccess"] = json!(true);
                }
                requests.push(json!({"name": name, "exactly": exactly}));
                continue;
            }
            let mut alternatives = Vec::new();
            for alternative in ["x", "y", "z"].iter().take(1 + self.below(3)) {
                let mut ask = self.ask(budget);
                ask["name"] = json!(alternative);
                names.push(format!("{name}/{alternative}"));
                alternatives.push(ask);
            }
            requests.push(json!({"name": name, "firstAvailable": alternatives}));
        }
        let mut devices = json!({"requests": requests});
        if self.theme.constraints && self.percent(70) {
            let constraints = 1 + self.below(2);
            devices["constraints"] = (0..constraints).map(|_| self.constraint(&names)).collect();
        }
        if self.percent(25) {
            let configs = 1 + self.below(3);
            devices["config"] = (0..configs).map(|number| self.config(number, &names)).collect();
        }
        devices
    }

    fn ask(&mut self, budget: &mut usize) -> Value {
        let class = if self.fault(1) { "missing" } else { self.pick(&["any", "any", "any", "of-a", "odd"]) };
        let mut ask = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
        if self.percent(18) {
            *budget = budget.saturating_sub(1);
            ask = json!({"deviceClassName": class, "allocationMode": "All"});
        } else if self.fault(4) {
            ask["count"] = json!(TOO_MANY);
        } else if *budget > 2 && self.percent(35) {
            let count = 2 + self.below(2);
            *budget = budget.saturating_sub(count);
            ask["count"] = json!(count);
        } else {
            *budget = budget.saturating_sub(1);
        }
        if self.percent(25) {
            let expression = self.selector();
            ask["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
        if self.percent(if self.theme.taints { 60 } else { 10 }) {
            let tolerations = 1 + self.below(2);
            ask["tolerations"] = (0..tolerations).map(|_| self.toleration()).collect();
        }
        if self.theme.capacity && self.percent(50) {
            ask["capacity"] = self.capacity_request();
        }
        ask
    }

    fn toleration(&mut self) -> Value {
        let mut toleration = match self.below(4) {
            0 => json!({"operator": "Exists"}),
            1 => json!({"operator": "Exists", "key": self.pick(&["k", "l"])}),
            2 => json!({"operator": "Equal", "key": self.pick(&["k", "l"]), "value": self.pick(&["v", "w"])}),
            _ => json!({"operator": "Equal", "key": self.pick(&["k", "l"])}),
        };
        if self.percent(25) {
            toleration["effect"] = json!(self.pick(&["NoSchedule", "NoExecute"]));
        }
        toleration
    }

    fn some(&mut self, names: &[String]) -> Value {
        let mut some: Vec<&String> = Vec::new();
        for name in names {
            if self.percent(45) {
                some.push(name);
            }
        }
        json!(some)
    }

    fn constraint(&mut self, names: &[String]) -> Value {
        let kind = if self.percent(65) { "matchAttribute" } else { "distinctAttribute" };
        let mut constraint = json!({kind: self.pick(&ATTRIBUTES)});
        if self.percent(50) {
            constraint["requests"] = self.some(names);
        }
        constraint
    }

    fn config(&mut self, number: usize, names: &[String]) -> Value {
        let mut config = json!({"opaque": {"driver": "a.test", "parameters": {"number": number}}});
        if self.percent(70) {
            config["requests"] = self.some(names);
        }
        config
    }
}
