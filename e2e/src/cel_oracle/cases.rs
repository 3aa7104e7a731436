//! Our table: each expression on several devices, stored and new.

use serde_json::{Value, json};

use super::Case;

const DRIVER: &str = "gpu.example.com";

/// All cases.
pub(super) fn ours() -> Vec<Case> {
    let expressions = include_str!("expressions.txt").lines();
    expressions
        .flat_map(|expression| devices().into_iter().flat_map(move |device| ways(expression, &device)))
        .collect()
}

/// The expression as it is stored, and as a new one with all gates off and on.
fn ways(expression: &str, device: &Value) -> Vec<Case> {
    let case = |(stored, gates)| Case {
        name: device["name"].as_str().unwrap_or_default().to_owned(),
        expression: expression.to_owned(),
        driver: DRIVER.to_owned(),
        device: device.clone(),
        stored,
        consumable_capacity: gates,
        list_attributes: gates,
    };
    [(true, true), (false, false), (false, true)].map(case).to_vec()
}

/// One with everything, one with other values, one with nothing, and one with other types.
fn devices() -> Vec<Value> {
    vec![
        json!({
            "name": "full",
            "attributes": {
                "model": {"string": "A100"}, "numa": {"int": 1}, "ecc": {"bool": true},
                "driverVersion": {"version": "550.54.15"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                "tags": {"strings": ["fast", "free"]}, "numas": {"ints": [1, 2]},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            "allowMultipleAllocations": true,
        }),
        json!({
            "name": "plain",
            "attributes": {
                "model": {"string": "H100"}, "numa": {"int": 0}, "ecc": {"bool": false},
                "driverVersion": {"version": "1.0.0-rc.1+build.5"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }),
        json!({"name": "bare"}),
        json!({
            "name": "odd",
            "attributes": {
                "model": {"int": 4}, "numa": {"string": "one"}, "ecc": {"string": "on"},
                "driverVersion": {"string": "1.0.0"}, "tags": {"string": "fast"}, "numas": {"int": 2},
            },
            "capacity": {"memory": {"value": "1500m"}},
        }),
    ]
}
