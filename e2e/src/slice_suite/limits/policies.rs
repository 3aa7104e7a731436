//! Limits on request policies.

use dra_resourceslice::Feature;
use serde_json::{Value, json};

use super::{Row, device_with, list};

pub(super) fn rows() -> Vec<Row> {
    [only_shared(), values(), ranges(), numbers(), fractions()]
        .into_iter()
        .flatten()
        .map(|row| row.needs(Feature::ConsumableCapacity))
        .collect()
}

/// A device to share, with this capacity and policy.
fn shared(capacity: &str, policy: &Value) -> Value {
    device_with(&json!({
        "allowMultipleAllocations": true,
        "capacity": {"c": {"value": capacity, "requestPolicy": policy}},
    }))
}

/// A range of a capacity of 10.
fn range(default: &str, range: &Value) -> Value {
    shared("10", &json!({"default": default, "validRange": range}))
}

fn only_shared() -> Vec<Row> {
    let alone =
        |policy: Value| device_with(&json!({"capacity": {"c": {"value": "10", "requestPolicy": policy}}}));
    vec![
        Row::new("request policies are for devices to share")
            .fits(shared("10", &json!({"default": "1"})))
            .fits(shared("10", &json!({})))
            .breaks(alone(json!({"default": "1"}))),
        Row::new("a default above the capacity is taken").fits(shared("10", &json!({"default": "11"}))),
    ]
}

fn values() -> Vec<Row> {
    let values =
        |default: &str, values: &[&str]| shared("100", &json!({"default": default, "validValues": values}));
    let many = |count| {
        shared("100", &json!({"default": "1", "validValues": list(count, |n| json!((n + 1).to_string()))}))
    };
    vec![
        Row::new("valid values").fits(many(10)).breaks(many(11)),
        Row::new("valid values ascend, each once")
            .fits(values("1", &["1", "2"]))
            .breaks(values("1", &["2", "1"]))
            .breaks(values("1", &["1", "1"])),
        Row::new("valid values have a default among them")
            .fits(values("1024", &[]))
            .breaks(values("3", &["1", "2"]))
            .breaks(shared("100", &json!({"validValues": ["1"]}))),
        Row::new("valid values and the capacity")
            .fits(values("1", &["1", "100"]))
            .breaks(values("1", &["1", "101"])),
    ]
}

fn ranges() -> Vec<Row> {
    vec![
        Row::new("a range has a default").breaks(shared("10", &json!({"validRange": {"min": "1"}}))),
        Row::new("default and minimum")
            .fits(range("2", &json!({"min": "2"})))
            .breaks(range("1", &json!({"min": "2"}))),
        Row::new("default and maximum")
            .fits(range("8", &json!({"min": "2", "max": "8"})))
            .breaks(range("9", &json!({"min": "2", "max": "8"}))),
        Row::new("maximum and capacity")
            .fits(range("2", &json!({"min": "2", "max": "10"})))
            .breaks(range("2", &json!({"min": "2", "max": "11"}))),
        Row::new("minimum and capacity")
            .fits(range("10", &json!({"min": "10"})))
            .breaks(range("11", &json!({"min": "11"}))),
        Row::new("minimum and maximum")
            .fits(range("2", &json!({"min": "2", "max": "2"})))
            .breaks(range("2", &json!({"min": "2", "max": "1"}))),
        Row::new("a default above the capacity, which no request could take")
            .ours_alone(range("11", &json!({"min": "1"}))),
        Row::new("a negative minimum, which no request could ask for")
            .ours_alone(range("-1", &json!({"min": "-1"}))),
        Row::new("steps")
            .fits(range("4", &json!({"min": "2", "max": "10", "step": "2"})))
            .fits(range("2", &json!({"min": "2", "step": "8"})))
            .breaks(range("2", &json!({"min": "2", "step": "9"})))
            .breaks(range("3", &json!({"min": "2", "step": "2"})))
            .breaks(range("2", &json!({"min": "2", "max": "9", "step": "2"}))),
        // 1.36.3 breaks the connection off at a step of 0, which no answer can tell from a failure of the network.
        Row::new("steps go up")
            .since(37)
            .breaks(range("2", &json!({"min": "2", "step": "0"})))
            .breaks(range("2", &json!({"min": "2", "step": "-1"}))),
    ]
}

/// The API server counts in 64 bits. Older versions compute with what overflows.
fn numbers() -> Vec<Row> {
    const MOST: &str = "9223372036854775807";
    const BEYOND: &str = "9223372036854775808";
    let large =
        |default: &str, range: &Value| shared("100E", &json!({"default": default, "validRange": range}));
    let within =
        |default: &str, range: &Value| shared(MOST, &json!({"default": default, "validRange": range}));
    vec![
        Row::new("numbers in a range with steps")
            .fits(within("0", &json!({"min": "0", "max": MOST, "step": "1"})))
            .fits(within("0", &json!({"min": "0", "step": MOST})))
            .breaks(large("0", &json!({"min": "0", "max": BEYOND, "step": "1"})))
            .breaks(large("0", &json!({"min": "0", "step": BEYOND})))
            .breaks(large(BEYOND, &json!({"min": "0", "step": "1"}))),
        Row::new("quantities beyond what the API's own description allows")
            .ours_alone(large("0", &json!({"min": "0"}))),
    ]
    .into_iter()
    .map(|row| row.since(37))
    .collect()
}

fn fractions() -> Vec<Row> {
    let large = |max: &str| shared("9E", &json!({"default": "500m", "validRange": {"min": "0", "max": max}}));
    vec![
        Row::new("fractions in a range")
            .fits(range("500m", &json!({"min": "0", "step": "250m"})))
            .fits(range("0.001", &json!({"min": "0"})))
            .breaks(range("500m", &json!({"min": "0", "step": "1"})))
            .breaks(range("0.0005", &json!({"min": "0"}))),
        Row::new("numbers in a range with fractions")
            .fits(large("9223372036854775"))
            .breaks(large("9223372036854776")),
    ]
    .into_iter()
    .map(|row| row.needs_gate("DRAFractionalCapacityRange"))
    .chain([rounded()])
    .collect()
}

/// Without the gate amounts are rounded up to whole numbers before they are compared.
fn rounded() -> Row {
    let values = |list: &[&str]| shared("10", &json!({"default": "1", "validValues": list}));
    Row::new("fractions where the gate is off")
        .without_gate("DRAFractionalCapacityRange")
        .fits(values(&["1", "1500m"]))
        .fits(range("500m", &json!({"min": "0", "step": "250m"})))
        .servers_alone(values(&["500m", "1"]))
        .servers_alone(range("3", &json!({"min": "500m", "step": "2500m"})))
        .servers_alone(range("500m", &json!({"min": "500m", "max": "3", "step": "2500m"})))
}
