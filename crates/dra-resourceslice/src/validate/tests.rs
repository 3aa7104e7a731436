//! Every limit of the API: at the limit nothing is wrong, one beyond it the right field is named.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm};

use super::*;
use crate::{
    AttributeValue, Capacity, CounterConsumption, DevicePlacement, DriverName, NodeAllocatable, NodeName,
    QualifiedName, Quantity, RequestPolicy, Taint,
};

fn node_scope() -> Scope {
    Scope::node(DriverName::new("gpu.example.com").unwrap(), NodeName::new("node-1").unwrap())
}

fn network_scope() -> Scope {
    Scope::network(node_scope().driver().clone())
}

fn pool_name() -> PoolName {
    PoolName::new("pool").unwrap()
}

fn device(name: &str) -> Device {
    Device::named(name).unwrap()
}

fn q(value: i64) -> Quantity {
    Quantity::from(value)
}

fn problems(scope: &Scope, pool: Pool) -> Vec<Problem> {
    validate(scope, &DriverResources::new().pool(pool_name(), pool))
}

/// The fields at fault of a device, which must lead to the device being left out, and to nothing else.
fn device_fields(device: Device) -> Vec<String> {
    let pool = Pool::new([Device::named("good").unwrap(), device]).counter_sets([set("set", 32)]);
    let (checked, problems) = checked(&node_scope(), &pool_name(), &pool);
    let left = checked.expect("the pool is not refused");
    assert_eq!(left.devices().count(), if problems.is_empty() { 2 } else { 1 });
    assert!(problems.iter().all(|problem| problem.consequence == Consequence::DeviceLeftOut), "{problems:?}");
    problems.into_iter().map(|problem| problem.field).collect()
}

fn set(name: &str, counters: usize) -> CounterSet {
    (0..counters).fold(CounterSet::new(name).unwrap(), |set, n| set.counter(&format!("c{n}"), 1).unwrap())
}

fn consumes(name: &str, counters: usize) -> CounterConsumption {
    let consumption = CounterConsumption::new(name).unwrap();
    (0..counters).fold(consumption, |consumption, n| consumption.counter(&format!("c{n}"), 1).unwrap())
}

fn attributes(count: usize) -> Device {
    (0..count).fold(device("d"), |device, n| device.try_attribute(&format!("a{n}"), 1).unwrap())
}

fn taints(count: usize) -> Device {
    (0..count).fold(device("d"), |device, n| device.taint(Taint::no_schedule(format!("t{n}"))))
}

fn conditions(count: usize) -> Device {
    let names = |prefix: &str| (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    device("d").binding_conditions(names("ok"), names("bad"))
}

fn with_capacity(capacity: Capacity) -> Device {
    device("d").allow_multiple_allocations(true).try_capacity("c", capacity).unwrap()
}

fn ranged(default: i64, min: i64, max: Option<i64>, step: Option<i64>) -> Device {
    let policy = RequestPolicy::range(q(default), q(min), max.map(q), step.map(q));
    with_capacity(Capacity::new(q(10)).with_policy(policy))
}

fn listed(default: i64, values: &[i64]) -> Device {
    let policy = RequestPolicy::values(q(default), values.iter().copied().map(q));
    with_capacity(Capacity::new(q(100)).with_policy(policy))
}

#[test]
fn devices_at_the_limits_are_fine() {
    let good = [
        attributes(32),
        attributes(31).try_capacity("c", 1).unwrap(),
        attributes(0).try_attribute("list", (0..48_i64).collect::<Vec<_>>()).unwrap(),
        device("d").try_attribute("s", "x".repeat(64)).unwrap(),
        device("d").try_attribute("s", "").unwrap(),
        taints(16),
        device("d").taint(Taint::no_execute("example.com/k").value("v")),
        device("d").consumes(consumes("set", 32)),
        conditions(4),
        with_capacity(Capacity::new(q(10)).with_policy(RequestPolicy::any(None))),
        listed(1, &(1..=10).collect::<Vec<_>>()),
        ranged(4, 2, Some(10), Some(2)),
        ranged(2, 2, None, None),
        device("d").node_allocatable("cpu", NodeAllocatable::per_device(8)),
        device("d").node_allocatable("hugepages-2Mi", NodeAllocatable::overhead(Some(q(0)), Some(q(1)))),
        device("d")
            .try_capacity("c", 1)
            .unwrap()
            .node_allocatable("memory", NodeAllocatable::per_capacity(QualifiedName::new("c").unwrap(), 2)),
    ];
    for device in good {
        assert_eq!(device_fields(device.clone()), Vec::<String>::new(), "{device:?}");
    }
}

#[test]
fn devices_beyond_a_limit_are_left_out_with_the_field_named() {
    let group = |count: usize| {
        (0..count).fold(consumes("set", 1), |all, n| all.compatibility_group(&format!("g{n}")).unwrap())
    };
    let bad: Vec<(Device, &str)> = vec![
        (attributes(33), "attributes and capacity"),
        (attributes(32).try_capacity("c", 1).unwrap(), "attributes and capacity"),
        (attributes(1).try_attribute("list", vec![0_i64; 48]).unwrap(), "attributes (values)"),
        (device("d").try_attribute("list", Vec::<i64>::new()).unwrap(), "attributes[list]"),
        (device("d").try_attribute("s", "x".repeat(65)).unwrap(), "attributes[s]"),
        (device("d").try_attribute("s", "ä".repeat(33)).unwrap(), "attributes[s]"),
        (device("d").try_attribute("s", vec!["x".repeat(65)]).unwrap(), "attributes[s]"),
        (taints(17), "taints"),
        (device("d").taint(Taint::no_schedule("")), "taints[].key"),
        (device("d").taint(Taint::no_schedule("x".repeat(64))), "taints[].key"),
        (device("d").taint(Taint::no_schedule("k").value("x y")), "taints[].value"),
        (device("d").consumes(consumes("set", 0)), "consumesCounters[set]"),
        (device("d").consumes(consumes("other", 1)), "consumesCounters[other].counterSet"),
        (device("d").consumes(consumes("set", 1).counter("x", 1).unwrap()), "consumesCounters[set].counters"),
        (device("d").consumes(consumes("set", 1)).consumes(consumes("set", 1)), "consumesCounters[set]"),
        (device("d").consumes(group(3)), "consumesCounters[set].compatibilityGroups"),
        (
            device("d").consumes(group(1).compatibility_group("g0").unwrap()),
            "consumesCounters[set].compatibilityGroups",
        ),
        (device("d").binding_conditions(["a"], Vec::<String>::new()), "bindingConditions"),
        (device("d").binding_conditions(["a"], ["a"]), "bindingConditions"),
        (device("d").binding_conditions(["a b"], ["c"]), "bindingConditions"),
        (device("d").placed(DevicePlacement::AllNodes), "placement"),
        (device("good"), "name"),
        (
            device("d").try_capacity("c", Capacity::new(q(1)).with_policy(RequestPolicy::any(None))).unwrap(),
            "capacity[c].requestPolicy",
        ),
        (listed(1, &(1..=11).collect::<Vec<_>>()), "capacity[c].requestPolicy"),
        (listed(1, &[2, 3]), "capacity[c].requestPolicy"),
        (listed(1, &[2, 1]), "capacity[c].requestPolicy"),
        (listed(1, &[1, 1]), "capacity[c].requestPolicy"),
        (listed(1, &[1, 101]), "capacity[c].requestPolicy"),
        (ranged(1, 2, None, None), "capacity[c].requestPolicy"),
        (ranged(9, 2, Some(8), None), "capacity[c].requestPolicy"),
        (ranged(2, 2, Some(11), None), "capacity[c].requestPolicy"),
        (ranged(2, -1, None, None), "capacity[c].requestPolicy"),
        (ranged(2, 2, None, Some(0)), "capacity[c].requestPolicy"),
        (ranged(3, 2, None, Some(2)), "capacity[c].requestPolicy"),
        (ranged(2, 2, Some(9), Some(2)), "capacity[c].requestPolicy"),
        (ranged(2, 2, None, Some(9)), "capacity[c].requestPolicy"),
        (
            device("d").node_allocatable("example.com/x", NodeAllocatable::per_device(1)),
            "nodeAllocatableResources[example.com/x]",
        ),
        (device("d").node_allocatable("cpu", NodeAllocatable::default()), "nodeAllocatableResources[cpu]"),
        (
            device("d").node_allocatable("cpu", NodeAllocatable::per_device(0)),
            "nodeAllocatableResources[cpu]",
        ),
        (
            device("d").node_allocatable("cpu", NodeAllocatable::overhead(Some(q(-1)), None)),
            "nodeAllocatableResources[cpu]",
        ),
        (
            device("d")
                .node_allocatable("cpu", NodeAllocatable::per_capacity(QualifiedName::new("c").unwrap(), 1)),
            "nodeAllocatableResources[cpu]",
        ),
    ];
    for (device, field) in bad {
        assert_eq!(device_fields(device.clone()), [field], "{device:?}");
    }
    let five = device_fields(conditions(5));
    assert_eq!(five, ["bindingConditions", "bindingFailureConditions"]);
    let three = (0..3).fold(device("d"), |device, n| device.consumes(consumes(&format!("s{n}"), 1)));
    assert!(device_fields(three).contains(&"consumesCounters".to_owned()));
}

#[test]
fn a_version_that_is_not_semantic_costs_the_attribute_only() {
    for version in ["6.19.14.31400000", "550.127.08", "535", ""] {
        let odd = device("d").try_attribute("v", AttributeValue::version(version)).unwrap();
        let (pool, problems) =
            checked(&node_scope(), &pool_name(), &Pool::new([odd.try_attribute("i", 1).unwrap()]));
        assert_eq!(pool.unwrap().devices().next().unwrap().attributes.len(), 1);
        assert_eq!(problems[0].consequence, Consequence::AttributeLeftOut);
        assert_eq!(problems[0].field, "attributes[v]");
    }
}

#[test]
fn counter_sets_at_fault_go_with_the_devices_that_draw_on_them() {
    let pool = |sets: Vec<CounterSet>| {
        Pool::new([device("d").consumes(consumes("set", 1)), device("e")]).counter_sets(sets)
    };
    let outcome = |sets| {
        let problems = problems(&node_scope(), pool(sets));
        problems.into_iter().map(|problem| (problem.subject, problem.consequence)).collect::<Vec<_>>()
    };
    let set_out = (Subject::CounterSet("set".into()), Consequence::CounterSetLeftOut);
    let device_out = (Subject::Device("d".into()), Consequence::DeviceLeftOut);
    assert_eq!(outcome(vec![set("set", 1)]), []);
    assert_eq!(outcome(vec![set("set", 1), set("set", 2)]), std::slice::from_ref(&set_out));
    assert_eq!(outcome(vec![set("set", 0)]), [set_out.clone(), device_out.clone()]);
    assert_eq!(outcome(vec![set("set", 33)]), [set_out, device_out.clone()]);
    assert_eq!(outcome(vec![]), [device_out]);
}

#[test]
fn explicit_slices_must_keep_the_limits_of_a_slice() {
    let plain = |count: usize| Slice::new((0..count).map(|n| device(&format!("d{n}"))));
    let tainted = |count: usize| {
        Slice::new((0..count).map(|n| device(&format!("d{n}")).taint(Taint::no_schedule("k"))))
    };
    let sets = |count: usize| Slice::counters((0..count).map(|n| set(&format!("s{n}"), 1)));
    let mixed = Slice { counter_sets: vec![set("s", 1)], ..plain(1) };
    let table = [
        (plain(0), None),
        (plain(128), None),
        (plain(129), Some("devices")),
        (tainted(64), None),
        (tainted(65), Some("devices")),
        (sets(8), None),
        (sets(9), Some("sharedCounters")),
        (mixed, Some("sharedCounters")),
    ];
    for (slice, expected) in table {
        let problems = problems(&node_scope(), Pool::from_slices([Slice::default(), slice]));
        let found: Vec<_> =
            problems.iter().map(|problem| (problem.field.as_str(), problem.subject.clone())).collect();
        assert_eq!(found, expected.map(|field| (field, Subject::Slice(1))).into_iter().collect::<Vec<_>>());
        assert!(problems.iter().all(|problem| problem.consequence == Consequence::PoolRefused));
    }
    // The same devices in a pool that is split by itself are fine.
    assert_eq!(problems(&node_scope(), Pool::new((0..129).map(|n| device(&format!("d{n}"))))), []);
}

#[test]
fn placement_must_fit_the_scope() {
    let selector = |terms: usize| {
        Box::new(NodeSelector { node_selector_terms: vec![NodeSelectorTerm::default(); terms] })
    };
    let per_device = |placement| Pool::new([device("d").placed(placement)]).placement(Placement::PerDevice);
    let pool = |placement| Pool::new([]).placement(placement);
    let only = Scope::network_pool(network_scope().driver().clone(), PoolName::new("other").unwrap());
    let table: Vec<(Scope, Pool, Option<&str>)> = vec![
        (node_scope(), pool(Placement::Local), None),
        (node_scope(), pool(Placement::AllNodes), Some("placement")),
        (node_scope(), per_device(DevicePlacement::AllNodes), Some("placement")),
        (network_scope(), pool(Placement::Local), Some("placement")),
        (network_scope(), pool(Placement::AllNodes), None),
        (network_scope(), pool(Placement::Selector(selector(1))), None),
        (network_scope(), pool(Placement::Selector(selector(0))), Some("nodeSelector")),
        (network_scope(), pool(Placement::Selector(selector(2))), Some("nodeSelector")),
        (network_scope(), per_device(DevicePlacement::Node(NodeName::new("n").unwrap())), None),
        (network_scope(), per_device(DevicePlacement::Selector(selector(1))), None),
        (network_scope(), per_device(DevicePlacement::Selector(selector(2))), Some("placement")),
        (network_scope(), Pool::new([device("d")]).placement(Placement::PerDevice), Some("placement")),
        (only, pool(Placement::AllNodes), Some("name")),
        (node_scope(), pool(Placement::Local).at_least_generation(-1), Some("generation")),
    ];
    for (scope, pool, expected) in table {
        let problems = problems(&scope, pool.clone());
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, expected.into_iter().collect::<Vec<_>>(), "{scope:?} {pool:?}");
    }
}

#[test]
fn operations_and_partition_types_follow_their_rules() {
    use NodeOperation::{All, Prepare, Unprepare};
    let skip = |operations: &[NodeOperation]| {
        problems(&node_scope(), Pool::new([]).skip_node_operations(operations.iter().copied())).len()
    };
    let counts =
        [skip(&[]), skip(&[All]), skip(&[Unprepare]), skip(&[Prepare, Unprepare]), skip(&[Prepare, All])];
    assert_eq!(counts, [0; 5]);
    assert_eq!([skip(&[Prepare]), skip(&[All, All])], [1; 2]);

    let kind = |name: &str, device: Device| {
        let pool = Pool::new([device]).counter_sets([set("set", 1)]);
        let problems =
            problems(&node_scope(), pool.partition_type_attribute(QualifiedName::new(name).unwrap()));
        problems.into_iter().map(|problem| problem.field).collect::<Vec<_>>()
    };
    let partition = || device("d").consumes(consumes("set", 1));
    let named = |value: AttributeValue| partition().try_attribute("example.com/kind", value).unwrap();
    assert_eq!(kind("example.com/kind", named("half".into())), Vec::<String>::new());
    assert_eq!(kind("example.com/kind", named(1.into())), ["attributes[example.com/kind]"]);
    assert_eq!(kind("example.com/kind", partition()), ["attributes[example.com/kind]"]);
    assert_eq!(kind("example.com/kind", device("plain")), Vec::<String>::new());
    assert_eq!(kind("kind", device("plain")), ["partitionTypeAttribute"]);
    // In the driver's own domain the attribute may go without it.
    let bare = partition().try_attribute("kind", "half").unwrap();
    assert_eq!(kind("gpu.example.com/kind", bare.clone()), Vec::<String>::new());
    assert_eq!(kind("example.com/kind", bare), ["attributes[example.com/kind]"]);
}

#[test]
fn a_problem_prints_as_one_line_with_where_and_what() {
    let bad = device("gpu-0").try_attribute("model", "x".repeat(65)).unwrap();
    let problem = problems(&node_scope(), Pool::new([bad])).remove(0).to_string();
    let expected = format!(
        "pool \"pool\": device \"gpu-0\": attributes[model]: {:?} has 65 bytes, at most 64 are allowed; \
         the device is left out",
        "x".repeat(65)
    );
    assert_eq!(problem, expected);
}

/// In an expression both are `device.attributes["gpu.example.com"].x`.
#[test]
fn a_name_that_is_there_with_and_without_the_drivers_domain_is_left_out_once() {
    let named = |names: &[&str]| {
        names.iter().fold(device("d"), |device, name| device.try_attribute(name, 1).unwrap())
    };
    let sized = device("d").try_capacity("x", 1).unwrap().try_capacity("gpu.example.com/x", 1).unwrap();
    let table = [
        (named(&["x"]), None),
        (named(&["gpu.example.com/x"]), None),
        (named(&["x", "other.example.com/x"]), None),
        (named(&["x", "gpu.example.com/x"]), Some("attributes[gpu.example.com/x]")),
        (sized, Some("capacity[gpu.example.com/x]")),
    ];
    for (device, expected) in table {
        let problems = problems(&node_scope(), Pool::new([device]));
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, expected.into_iter().collect::<Vec<_>>());
        assert!(problems.iter().all(|problem| problem.consequence == Consequence::AttributeLeftOut));
    }
}
