//! Limits on a device.

use dra_resourceslice::Feature;
use serde_json::{Value, json};

use super::{Row, device_with, entries, letters, list, local::MISSING, slice_with};

pub(super) fn rows() -> Vec<Row> {
    [names(), counts(), values(), lists(), taints(), consumptions(), binding(), node_allocatable()]
        .into_iter()
        .flatten()
        .collect()
}

fn attributes(attributes: &Value) -> Value {
    device_with(&json!({"attributes": attributes}))
}

fn names() -> Vec<Row> {
    let named = |name: &str| slice_with(&json!({"devices": [{"name": name}]}));
    let attribute = |name: &str| attributes(&json!({name: {"int": 1}}));
    let capacity = |name: &str| device_with(&json!({"capacity": {name: {"value": "1"}}}));
    let with_domain = |length: usize, id: usize| format!("{}/{}", letters(length), letters(id));
    let forms = |row: Row, spec: &dyn Fn(&str) -> Value| {
        row.fits(spec(&letters(32)))
            .fits(spec(&with_domain(63, 32)))
            .fits(spec("_aB9"))
            .fits(spec("a.b-c/d"))
            .breaks(spec(&letters(33)))
            .breaks(spec(&with_domain(64, 1)))
            .breaks(spec(&with_domain(1, 33)))
            .breaks(spec("a-b"))
            .breaks(spec("9a"))
            .breaks(spec("/a"))
            .breaks(spec("a/"))
            .breaks(spec("a_b/c"))
            .breaks(spec(""))
    };
    vec![
        Row::new("length of a device's name").fits(named(&letters(63))).breaks(named(&letters(64))),
        Row::new("form of a device's name")
            .fits(named("0-a"))
            .breaks(named("A"))
            .breaks(named("a_b"))
            .breaks(named("a.b"))
            .breaks(named("-a"))
            .breaks(named("")),
        forms(Row::new("names of attributes"), &attribute),
        forms(Row::new("names of capacities"), &capacity),
        Row::new("the API server misses a second slash in a name, which no claim could use")
            .ours_alone(attribute("a/b/c")),
    ]
}

fn counts() -> Vec<Row> {
    let both = |attributes: usize, capacities: usize| {
        let (attributes, capacities) = (
            entries("a", attributes, &json!({"bool": true})),
            entries("c", capacities, &json!({"value": "1"})),
        );
        device_with(&json!({"attributes": attributes, "capacity": capacities}))
    };
    vec![
        Row::new("attributes and capacities")
            .fits(both(32, 0))
            .fits(both(0, 32))
            .fits(both(16, 16))
            .breaks(both(33, 0))
            .breaks(both(0, 33))
            .breaks(both(16, 17)),
    ]
}

fn values() -> Vec<Row> {
    let text = |text: &str| attributes(&json!({"a": {"string": text}}));
    let version = |text: &str| attributes(&json!({"a": {"version": text}}));
    let long_version = |length: usize| version(&format!("1.0.0-{}", letters(length - 6)));
    vec![
        Row::new("exactly one value")
            .fits(attributes(&json!({"a": {"int": i64::MIN}})))
            .fits(attributes(&json!({"a": {"bool": false}})))
            .breaks(attributes(&json!({"a": {}}))),
        Row::new("bytes of a text")
            .fits(text(""))
            .fits(text(&letters(64)))
            .fits(text(&"ä".repeat(32)))
            .breaks(text(&letters(65)))
            .breaks(text(&format!("{}a", "ä".repeat(32)))),
        Row::new("bytes of a version").fits(long_version(64)).breaks(long_version(65)),
        Row::new("form of a version")
            .fits(version("0.0.0"))
            .fits(version("1.2.3-0a.b+01.-"))
            .breaks(version(""))
            .breaks(version("535"))
            .breaks(version("1.2"))
            .breaks(version("v1.2.3"))
            .breaks(version("550.127.08"))
            .breaks(version("6.19.14.31400000"))
            .breaks(version("1.2.3-"))
            .breaks(version("1.2.3-01"))
            .breaks(version("1.2.3-a..b"))
            .breaks(version("1.2.3+"))
            .breaks(version("1.2.3+a_b")),
        Row::new("a number of more than 18 digits in a version, which 1.38 refuses")
            .fits(version("1.2.999999999999999999"))
            .ours_alone(version("1.2.1000000000000000000")),
    ]
}

fn lists() -> Vec<Row> {
    let ints = |count: usize| attributes(&json!({"a": {"ints": list(count, |n| json!(n))}, "b": {"int": 1}}));
    [
        Row::new("attribute values, which lists have several of").fits(ints(47)).breaks(ints(48)),
        Row::new("empty lists")
            .breaks(attributes(&json!({"a": {"bools": []}})))
            .breaks(attributes(&json!({"a": {"ints": []}})))
            .breaks(attributes(&json!({"a": {"strings": []}})))
            .breaks(attributes(&json!({"a": {"versions": []}}))),
        Row::new("texts in a list")
            .fits(attributes(&json!({"a": {"strings": ["x", letters(64)]}})))
            .breaks(attributes(&json!({"a": {"strings": ["x", letters(65)]}}))),
        Row::new("versions in a list")
            .fits(attributes(&json!({"a": {"versions": ["1.0.0"]}})))
            .breaks(attributes(&json!({"a": {"versions": ["1.0.0", "1"]}}))),
    ]
    .map(|row| row.needs(Feature::ListTypeAttributes))
    .into()
}

fn taints() -> Vec<Row> {
    let many = |count| list(count, |n| json!({"key": format!("k{n}"), "effect": "NoSchedule"}));
    let taints = |taints: Value| device_with(&json!({"taints": taints}));
    let taint = |key: &str, value: &str, effect: &str| {
        taints(json!([{"key": key, "value": value, "effect": effect}]))
    };
    let prefixed = |length| format!("{}/{}", letters(length), letters(63));
    [
        Row::new("taints").fits(taints(many(16))).breaks(taints(many(17))),
        Row::new("keys of taints")
            .fits(taint(&letters(63), "", "None"))
            .fits(taint(&prefixed(253), "", "None"))
            .fits(taint("A_b.c", "", "None"))
            .breaks(taint(&letters(64), "", "None"))
            .breaks(taint(&prefixed(254), "", "None"))
            .breaks(taint("a/b/c", "", "None"))
            .breaks(taint("A.b/c", "", "None"))
            .breaks(taint("-a", "", "None"))
            .breaks(taint("", "", "None")),
        Row::new("values of taints")
            .fits(taint("k", &letters(63), "None"))
            .breaks(taint("k", &letters(64), "None"))
            .breaks(taint("k", "a b", "None")),
        Row::new("effects of taints")
            .fits(taint("k", "v", "NoSchedule"))
            .fits(taint("k", "v", "NoExecute"))
            .breaks(taint("k", "v", "PreferNoSchedule"))
            .breaks(taint("k", "v", "")),
    ]
    .map(|row| row.needs(Feature::DeviceTaints))
    .into()
}

fn consumptions() -> Vec<Row> {
    let consumes = |consumptions: Value| device_with(&json!({"consumesCounters": consumptions}));
    let one = json!({"c": {"value": "1"}});
    let many = |count| consumes(list(count, |n| json!({"counterSet": format!("s{n}"), "counters": one})));
    let set = |name: &str| consumes(json!([{"counterSet": name, "counters": one}]));
    let counters = |counters: Value| consumes(json!([{"counterSet": "s", "counters": counters}]));
    let counts = |count| counters(entries("c", count, &json!({"value": "1"})));
    let groups = |groups: Value| {
        consumes(json!([{"counterSet": "s", "counters": one, "compatibilityGroups": groups}]))
    };
    let consumption = [
        Row::new("counter sets of a device").fits(many(2)).breaks(many(3)),
        Row::new("counters of a consumption").fits(counts(32)).breaks(counts(33)).breaks(counts(0)),
        Row::new("names in a consumption")
            .fits(set(&letters(63)))
            .fits(counters(json!({letters(63): {"value": "1"}})))
            .breaks(set(&letters(64)))
            .breaks(set("a_b"))
            .breaks(set(""))
            .breaks(counters(json!({letters(64): {"value": "1"}})))
            .breaks(consumes(json!([
                {"counterSet": "s", "counters": one}, {"counterSet": "s", "counters": one},
            ]))),
        Row::new("a counter set that is in no slice of the pool makes the device useless")
            .ours_alone(set(MISSING)),
    ];
    let group = Row::new("compatibility groups")
        .fits(groups(json!([letters(63), "h"])))
        .breaks(groups(json!(["g", "h", "i"])))
        .breaks(groups(json!(["g", "g"])))
        .breaks(groups(json!([letters(64)])))
        .breaks(groups(json!(["a_b"])))
        .breaks(groups(json!([""])))
        .needs(Feature::DeviceCompatibilityGroups);
    consumption.into_iter().chain([group]).map(|row| row.needs(Feature::PartitionableDevices)).collect()
}

fn binding() -> Vec<Row> {
    let conditions = |good: Value, bad: Value| {
        device_with(&json!({"bindingConditions": good, "bindingFailureConditions": bad}))
    };
    let many = |prefix: &'static str, count| list(count, |n| json!(format!("{prefix}{n}")));
    let row = Row::new("binding conditions")
        .fits(conditions(many("g", 4), many("b", 4)))
        .fits(conditions(json!([format!("{}/{}", letters(253), letters(63))]), json!(["b"])))
        .breaks(conditions(many("g", 5), many("b", 4)))
        .breaks(conditions(many("g", 4), many("b", 5)))
        .breaks(conditions(many("g", 1), json!([])))
        .breaks(conditions(json!([]), many("b", 1)))
        .breaks(conditions(json!(["a", "a"]), json!(["b"])))
        .breaks(conditions(json!(["a"]), json!(["b", "b"])))
        .breaks(conditions(json!(["a"]), json!(["a"])))
        .breaks(conditions(json!(["a b"]), json!(["b"])))
        .breaks(conditions(json!([letters(64)]), json!(["b"])))
        .breaks(conditions(json!(["a"]), json!([""])));
    vec![row.needs(Feature::DeviceBindingConditions)]
}

fn node_allocatable() -> Vec<Row> {
    let resources = |resources: Value| {
        device_with(&json!({"capacity": {"cores": {"value": "4"}}, "nodeAllocatableResources": resources}))
    };
    let named = |name: &str| resources(json!({name: {"mapping": {"deviceMultiplier": "1"}}}));
    let cpu = |value: Value| resources(json!({"cpu": value}));
    let mapping = |mapping: Value| cpu(json!({"mapping": mapping}));
    let overhead = |overhead: Value| cpu(json!({"overhead": overhead}));
    [
        Row::new("node resources that devices can stand for")
            .fits(named("cpu"))
            .fits(named("memory"))
            .fits(named("hugepages-2Mi"))
            .breaks(named("ephemeral-storage"))
            .breaks(named("pods"))
            .breaks(named("example.com/x"))
            .breaks(named("")),
        Row::new("mappings to node resources")
            .fits(mapping(json!({"deviceMultiplier": "1n"})))
            .fits(mapping(json!({"capacityKey": "cores", "capacityMultiplier": "1"})))
            .breaks(cpu(json!({})))
            .breaks(mapping(json!({"deviceMultiplier": "0"})))
            .breaks(mapping(json!({"capacityKey": "cores", "capacityMultiplier": "0"})))
            .breaks(mapping(json!({"capacityKey": "cores"})))
            .breaks(mapping(json!({"capacityKey": "other", "capacityMultiplier": "1"}))),
        Row::new("overheads of node resources")
            .fits(overhead(json!({"perPod": "0"})))
            .fits(overhead(json!({"perContainer": "1"})))
            .breaks(overhead(json!({})))
            .breaks(overhead(json!({"perPod": "-1"})))
            .breaks(overhead(json!({"perPod": "0", "perContainer": "-1"}))),
    ]
    .map(|row| row.needs(Feature::NodeAllocatableResources))
    .into()
}
