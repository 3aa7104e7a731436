//! Limits on a slice as a whole.

use dra_resourceslice::Feature;
use serde_json::{Value, json};

use super::{Row, device_with, entries, letters, list, slice, slice_with};

pub(super) fn rows() -> Vec<Row> {
    [names(), placement(), selectors(), sizes(), counter_sets(), partition_types(), operations()]
        .into_iter()
        .flatten()
        .collect()
}

fn pool(name: &str, generation: i64) -> Value {
    slice_with(&json!({"pool": {"name": name, "generation": generation, "resourceSliceCount": 1}}))
}

fn names() -> Vec<Row> {
    let driver = |name: &str| slice_with(&json!({"driver": name}));
    let node = |name: &str| slice_with(&json!({"nodeName": name}));
    vec![
        Row::new("a sound slice").fits(slice()),
        Row::new("length of the driver's name").fits(driver(&letters(63))).breaks(driver(&letters(64))),
        Row::new("form of the driver's name")
            .fits(driver("a-1.b"))
            .breaks(driver("a_b"))
            .breaks(driver("a..b"))
            .breaks(driver("-a"))
            .breaks(driver("")),
        Row::new("driver names in upper case only earn a warning, but make bad object names")
            .ours_alone(driver("GPU.example.com")),
        Row::new("length of the pool's name").fits(pool(&letters(253), 1)).breaks(pool(&letters(254), 1)),
        Row::new("form of the pool's name")
            .fits(pool("a/b-1.c/d", 1))
            .breaks(pool("a//b", 1))
            .breaks(pool("A", 1))
            .breaks(pool("", 1)),
        Row::new("generation").fits(pool("p", 0)).breaks(pool("p", -1)),
        Row::new("length of the node's name").fits(node(&letters(253))).breaks(node(&letters(254))),
        Row::new("form of the node's name").breaks(node("a_b")).breaks(node("")),
    ]
}

fn placement() -> Vec<Row> {
    let placed = |fields: Value| {
        let mut spec = slice_with(&json!({"nodeName": null}));
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    let selector = |terms: usize| json!({"nodeSelectorTerms": list(terms, |_| term.clone())});
    let per_device = |device: Value| {
        let mut spec = placed(json!({"perDeviceNodeSelection": true}));
        spec["devices"] = json!([device]);
        spec
    };
    vec![
        Row::new("exactly one placement")
            .fits(placed(json!({"allNodes": true})))
            .breaks(placed(json!({})))
            .breaks(placed(json!({"allNodes": false})))
            .breaks(placed(json!({"allNodes": true, "nodeName": "n"})))
            .breaks(placed(json!({"allNodes": true, "nodeSelector": selector(1)}))),
        Row::new("terms of the selector")
            .fits(placed(json!({"nodeSelector": selector(1)})))
            .breaks(placed(json!({"nodeSelector": selector(0)})))
            .breaks(placed(json!({"nodeSelector": selector(2)}))),
        Row::new("exactly one placement for each device")
            .needs(Feature::PartitionableDevices)
            .fits(per_device(json!({"name": "d", "allNodes": true})))
            .fits(per_device(json!({"name": "d", "nodeName": "n"})))
            .fits(per_device(json!({"name": "d", "nodeSelector": selector(1)})))
            .breaks(per_device(json!({"name": "d"})))
            .breaks(per_device(json!({"name": "d", "allNodes": false})))
            .breaks(per_device(json!({"name": "d", "nodeName": "a_b"})))
            .breaks(per_device(json!({"name": "d", "nodeSelector": selector(0)})))
            .breaks(per_device(json!({"name": "d", "allNodes": true, "nodeName": "n"})))
            .breaks(device_with(&json!({"nodeName": "n"})))
            .breaks(device_with(&json!({"allNodes": true}))),
        Row::new("a device's selector has one term by the API's own description")
            .needs(Feature::PartitionableDevices)
            .ours_alone(per_device(json!({"name": "d", "nodeSelector": selector(2)}))),
    ]
}

fn selectors() -> Vec<Row> {
    let spec =
        |term: Value| slice_with(&json!({"nodeName": null, "nodeSelector": {"nodeSelectorTerms": [term]}}));
    let label = |key: &str, operator: &str, values: &[&str]| {
        spec(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    let field = |key: &str, operator: &str, values: &[&str]| {
        spec(json!({"matchFields": [{"key": key, "operator": operator, "values": values}]}))
    };
    let long_prefix = format!("{}/a", letters(253));
    let too_long_prefix = format!("{}/a", letters(254));
    vec![
        Row::new("an empty term").fits(spec(json!({}))),
        Row::new("operators of labels")
            .fits(label("a", "In", &["x", ""]))
            .fits(label("a", "NotIn", &["x"]))
            .fits(label("a", "Exists", &[]))
            .fits(label("a", "DoesNotExist", &[]))
            .fits(label("a", "Gt", &["1"]))
            .fits(label("a", "Lt", &["1"]))
            .breaks(label("a", "In", &[]))
            .breaks(label("a", "NotIn", &[]))
            .breaks(label("a", "Exists", &["x"]))
            .breaks(label("a", "DoesNotExist", &["x"]))
            .breaks(label("a", "Gt", &[]))
            .breaks(label("a", "Lt", &["1", "2"]))
            .breaks(label("a", "Equals", &["x"])),
        Row::new("keys of labels")
            .fits(label(&letters(63), "Exists", &[]))
            .fits(label(&long_prefix, "Exists", &[]))
            .breaks(label(&letters(64), "Exists", &[]))
            .breaks(label(&too_long_prefix, "Exists", &[]))
            .breaks(label("a b", "Exists", &[]))
            .breaks(label("", "Exists", &[])),
        Row::new("values of labels")
            .fits(label("a", "In", &[&letters(63)]))
            .breaks(label("a", "In", &[&letters(64)]))
            .breaks(label("a", "In", &["x y"])),
        Row::new("fields")
            .fits(field("metadata.name", "In", &["n"]))
            .fits(field("metadata.name", "NotIn", &["n"]))
            .breaks(field("metadata.name", "In", &[]))
            .breaks(field("metadata.name", "In", &["n", "m"]))
            .breaks(field("metadata.name", "Exists", &[]))
            .breaks(field("metadata.name", "In", &["a_b"]))
            .breaks(field("spec.unschedulable", "In", &["true"])),
    ]
}

fn sizes() -> Vec<Row> {
    let with = |count: usize, extra: Value| {
        let mut spec = slice_with(&json!({"devices": list(count, |n| json!({"name": format!("d{n}")}))}));
        for (field, value) in extra.as_object().into_iter().flatten() {
            spec["devices"][7][field] = value.clone();
        }
        spec
    };
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let counter = json!({"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]});
    let listed = json!({"attributes": {"a": {"ints": [1]}}});
    vec![
        Row::new("devices").fits(with(128, json!({}))).breaks(with(129, json!({}))),
        Row::new("devices, one with a taint")
            .needs(Feature::DeviceTaints)
            .fits(with(64, taint.clone()))
            .breaks(with(65, taint)),
        Row::new("devices, one with a counter")
            .needs(Feature::PartitionableDevices)
            .fits(with(64, counter.clone()))
            .breaks(with(65, counter)),
        Row::new("devices, one with a list")
            .needs(Feature::ListTypeAttributes)
            .fits(with(64, listed.clone()))
            .breaks(with(65, listed)),
        Row::new("devices of one name")
            .breaks(slice_with(&json!({"devices": [{"name": "d"}, {"name": "d"}]}))),
        Row::new("devices and counter sets in one slice").needs(Feature::PartitionableDevices).breaks(
            slice_with(&json!({"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]})),
        ),
    ]
}

fn counter_sets() -> Vec<Row> {
    let sets = |sets: Value| slice_with(&json!({"devices": null, "sharedCounters": sets}));
    let one = json!({"c": {"value": "1"}});
    let set = |name: &str, counters: &Value| sets(json!([{"name": name, "counters": counters}]));
    let many = |count: usize| sets(list(count, |n| json!({"name": format!("s{n}"), "counters": one})));
    let counters = |count: usize| entries("c", count, &json!({"value": "1"}));
    let named = |name: &str| json!({name: {"value": "1"}});
    [
        Row::new("counter sets").fits(many(8)).breaks(many(9)),
        Row::new("counters of a set")
            .fits(set("s", &counters(1)))
            .fits(set("s", &counters(32)))
            .breaks(set("s", &counters(33)))
            .breaks(set("s", &counters(0))),
        Row::new("names of counter sets")
            .fits(set(&letters(63), &one))
            .breaks(set(&letters(64), &one))
            .breaks(set("A", &one))
            .breaks(set("a.b", &one))
            .breaks(set("", &one))
            .breaks(sets(json!([{"name": "s", "counters": one}, {"name": "s", "counters": one}]))),
        Row::new("names of counters")
            .fits(set("s", &named(&letters(63))))
            .breaks(set("s", &named(&letters(64))))
            .breaks(set("s", &named("a_b"))),
    ]
    .map(|row| row.needs(Feature::PartitionableDevices))
    .into()
}

fn partition_types() -> Vec<Row> {
    let spec = |name: &str, attributes: Value| {
        let consumes = json!([{"counterSet": "s", "counters": {"c": {"value": "1"}}}]);
        slice_with(&json!({
            "partitionTypeAttribute": name,
            "devices": [{"name": "d", "attributes": attributes, "consumesCounters": consumes}, {"name": "e"}],
        }))
    };
    let text = |name: &str| json!({name: {"string": "half"}});
    let (id, domain) = (letters(32), letters(63));
    let longest = format!("{domain}/{id}");
    [
        Row::new("partition types are full names")
            .fits(spec("example.com/kind", text("example.com/kind")))
            .fits(spec(&longest, text(&longest)))
            .breaks(spec("kind", text("kind")))
            .breaks(spec("example.com/a-b", text("example.com/kind"))),
        Row::new("devices with counters have their partition type as a text")
            .fits(spec("limits.example.com/kind", text("kind")))
            .breaks(spec("example.com/kind", json!({})))
            .breaks(spec("example.com/kind", text("kind")))
            .breaks(spec("example.com/kind", json!({"example.com/kind": {"int": 1}}))),
    ]
    .map(|row| row.needs(Feature::PartitionableDevices).needs(Feature::PartitionableDevicesType))
    .into()
}

fn operations() -> Vec<Row> {
    let skip = |operations: &[&str]| slice_with(&json!({"skipNodeOperations": operations}));
    let (prepare, unprepare) = ("NodePrepareResources", "NodeUnprepareResources");
    let row = Row::new("operations to skip")
        .fits(skip(&["*"]))
        .fits(skip(&[unprepare]))
        .fits(skip(&[prepare, unprepare]))
        .fits(skip(&[prepare, "*"]))
        .breaks(skip(&[prepare]))
        .breaks(skip(&[unprepare, unprepare]))
        .breaks(skip(&["Other"]));
    vec![row.needs(Feature::OptionalNodeOperations)]
}
