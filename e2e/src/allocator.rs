//! Cases for the allocator of the test kit, to hold it against the real scheduler.
//!
//! Each case has a driver, a class, a pool and a node of its own, so that all of them can run at once.

mod facts;
pub(crate) mod fuzz;

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(crate) use self::facts::facts;

/// Label of a case's node.
pub(crate) const LABEL: &str = "alloc.test/case";

/// One case, with the names of its own filled in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Whether it runs before every merge, and on all versions.
    #[serde(default)]
    pub(crate) gate: bool,
    /// Specs of slices; each may have the name of its slice too.
    slices: Vec<Value>,
    /// What is scheduled, one after the other.
    pods: Vec<Asking>,
    #[serde(skip)]
    number: usize,
}

/// A pod: its claims, and what the scheduler says if it has to refuse them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Asking {
    claims: Vec<Value>,
    pub(crate) refused: Option<String>,
}

/// All cases of the table.
pub(crate) fn cases() -> Result<Vec<Case>> {
    let table: Vec<Value> =
        serde_yaml_ng::from_str(include_str!("allocator/cases.yaml")).context("reading the table")?;
    let case = |(number, value): (usize, &Value)| {
        let text = value.to_string();
        let own = own_name(number);
        let text = text.replace("$D", &format!("{own}.alloc.test"));
        let text = ["$C", "$P", "$N"].iter().fold(text, |text, name| text.replace(name, &own));
        let case: Case = serde_json::from_str(&text).with_context(|| format!("reading {text}"))?;
        Ok(Case { number, ..case })
    };
    table.iter().enumerate().map(case).collect()
}

fn own_name(number: usize) -> String {
    format!("alloc-{number:02}")
}

impl Case {
    /// The name of its class, pool and node, and the beginning of all its other names.
    pub(crate) fn own_name(&self) -> String {
        own_name(self.number)
    }

    /// A node without a kubelet, for any number of pods.
    pub(crate) fn node(&self) -> Result<Node> {
        let own = self.own_name();
        let room = json!({"cpu": "100", "memory": "100Gi", "pods": "100"});
        read(json!({
            "metadata": {"name": own, "labels": {LABEL: own}},
            "status": {"capacity": room, "allocatable": room},
        }))
    }

    pub(crate) fn class(&self) -> Result<DeviceClass> {
        let own = self.own_name();
        let selector = json!({"cel": {"expression": format!("device.driver == '{own}.alloc.test'")}});
        let config =
            json!({"opaque": {"driver": format!("{own}.alloc.test"), "parameters": {"from": "class"}}});
        read(json!({"metadata": {"name": own}, "spec": {"selectors": [selector], "config": [config]}}))
    }

    pub(crate) fn slices(&self) -> Result<Vec<ResourceSlice>> {
        let own = self.own_name();
        let slice = |(index, told): (usize, &Value)| {
            let mut spec = told.clone();
            let fields = spec.as_object_mut().context("a slice is a map")?;
            let name = fields.remove("name");
            let name = name.as_ref().and_then(Value::as_str).map_or_else(|| index.to_string(), str::to_owned);
            let pool = json!({"name": own, "generation": 1, "resourceSliceCount": self.slices.len()});
            fields.entry("driver").or_insert_with(|| json!(format!("{own}.alloc.test")));
            fields.entry("pool").or_insert(pool);
            let is_placed = |field: &&str| fields.contains_key(*field);
            if !["allNodes", "nodeSelector", "perDeviceNodeSelection"].iter().any(is_placed) {
                fields.entry("nodeName").or_insert_with(|| json!(own));
            }
            read(json!({"metadata": {"name": format!("{own}-{name}")}, "spec": spec}))
        };
        self.slices.iter().enumerate().map(slice).collect()
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = (usize, &Asking)> {
        self.pods.iter().enumerate()
    }

    /// The claims of the pod with this number.
    pub(crate) fn claims(&self, pod: usize) -> Result<Vec<ResourceClaim>> {
        let claim = |(index, devices): (usize, &Value)| {
            let name = format!("{}-{pod}-{index}", self.own_name());
            read(json!({"metadata": {"name": name}, "spec": {"devices": devices}}))
        };
        self.pods[pod].claims.iter().enumerate().map(claim).collect()
    }

    /// The pod with this number, for the case's node only.
    pub(crate) fn pod(&self, pod: usize) -> Result<Pod> {
        let own = self.own_name();
        let numbers = 0..self.pods[pod].claims.len();
        let claims: Vec<Value> = numbers
            .map(|index| json!({"name": format!("c{index}"), "resourceClaimName": format!("{own}-{pod}-{index}")}))
            .collect();
        let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim["name"]})).collect();
        read(json!({"metadata": {"name": format!("{own}-{pod}")}, "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"claims": used}}],
            "resourceClaims": claims,
            "nodeSelector": {LABEL: own},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
        }}))
    }
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T> {
    let text = object.to_string();
    serde_json::from_value(object).with_context(|| format!("reading {text}"))
}

#[cfg(test)]
mod tests {
    use dra_testkit::scheduler::{Known, allocate};

    use super::*;

    /// Schedules the case's pods on the stand-in; gives how many were refused.
    fn run(case: &Case) -> usize {
        let (node, class, slices) = (case.node().unwrap(), case.class().unwrap(), case.slices().unwrap());
        let mut held: Vec<ResourceClaim> = Vec::new();
        let mut refused = 0;
        for (number, pod) in case.pods() {
            let known = Known {
                slices: &slices,
                classes: std::slice::from_ref(&class),
                claims: &held,
                taint_rules: &[],
            };
            let mut claims = case.claims(number).unwrap();
            let outcome = allocate(&known, &node, &claims);
            assert_eq!(outcome.is_err(), pod.refused.is_some(), "{}, pod {number}: {outcome:?}", case.name);
            let Ok(allocations) = outcome else {
                refused += 1;
                continue;
            };
            for (claim, allocation) in claims.iter_mut().zip(allocations) {
                claim.status.get_or_insert_default().allocation = Some(allocation);
            }
            held.extend(claims);
        }
        refused
    }

    #[test]
    fn the_stand_in_refuses_what_the_table_says_and_nothing_else() {
        let cases = cases().unwrap();
        let refused: usize = cases.iter().map(run).sum();
        assert!(cases.len() >= 50 && refused >= 20, "{} cases, {refused} refused", cases.len());
        assert!(cases.iter().filter(|case| case.gate).count() >= 12);
        let document = include_str!("../../crates/dra-allocator/README.md");
        let figure = format!("a table of {} cases", cases.len());
        assert!(document.contains(&figure), "the document does not say {figure:?}");
    }

    #[test]
    fn names_of_cases_are_unique() {
        let mut names: Vec<String> = cases().unwrap().into_iter().map(|case| case.name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
