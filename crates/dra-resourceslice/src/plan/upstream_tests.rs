//! The 37 cases of the Go helper's own test of its sync (`resourceslicecontroller_test.go` in version 0.37.2), in its order and in
//! our words. Each row has the Go helper's creates, updates and deletes, and ours; where they differ, a comment says why.

use k8s_openapi::{
    api::resource::v1::ResourceSlice, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};

use super::table_tests::{Case, device, devices, left_by, node_scope, selector, with_attribute};
use crate::{
    CounterConsumption, CounterSet, Device, DevicePlacement, Feature, NodeName, NodeOperation, Placement,
    Pool, Scope, Slice, Taint,
};

/// Creates, updates, deletes.
type Counts = (usize, usize, usize);

/// The names that the Go helper gives: index first.
const NAMES: [Option<&str>; 3] = [Some("00000-a-b-c"), Some("00001-a-b-d"), Some("00002-a-b-e")];
const RANDOM: [Option<&str>; 3] = [Some("random-1"), Some("random-2"), Some("random-3")];

#[test]
fn the_go_helpers_cases_take_as_few_writes_or_fewer() {
    let rows = [single_slices(), several_slices(), network(), partitions(), bad_input(), migration()];
    let rows: Vec<_> = rows.into_iter().flatten().collect();
    assert_eq!(rows.len(), 37);
    let total = |(creates, updates, deletes): Counts| creates + updates + deletes;
    for (go, case) in rows {
        case.check();
        // Where we write more, it is because the Go helper publishes nothing of the pool.
        assert!(total(case.writes) <= total(go) || case.problems > 0, "{}: more than {go:?}", case.name);
    }
}

fn existing(pool: &Pool) -> Vec<ResourceSlice> {
    left_by(&node_scope(), pool, &NAMES, 1)
}

/// The pool of these slices, each with one device.
fn slices(names: &[&str]) -> Pool {
    Pool::from_slices(names.iter().map(|name| devices(&[name])))
}

fn single_slices() -> Vec<(Counts, Case)> {
    let one = || Pool::new([device("a")]);
    let empty = || Pool::new([]);
    let skipping = || one().skip_node_operations([NodeOperation::All]);
    let taint = || Taint::no_execute("k");
    let tainted = || Pool::new([device("a").taint(taint())]);
    let more_taints = || {
        let late =
            Taint::no_execute("m").added_at(std::time::UNIX_EPOCH + std::time::Duration::from_millis(1500));
        Pool::new([device("a").taint(taint()).taint(Taint::no_schedule("l")).taint(late)])
    };
    let with_time = || {
        let mut slices = existing(&tainted());
        for taint in slices[0].spec.devices.as_mut().unwrap()[0].taints.iter_mut().flatten() {
            taint.time_added = Some(Time(Timestamp::from_second(100).unwrap()));
        }
        slices
    };
    let shared = || Pool::new([device("a").allow_multiple_allocations(true)]);
    let twins = || [existing(&one()), left_by(&node_scope(), &one(), &NAMES[1..], 1)].concat();
    vec![
        ((1, 0, 0), Case::new("a new slice", vec![], one()).writes(1, 0, 0)),
        ((1, 0, 0), Case::new("a new slice that skips operations", vec![], skipping()).writes(1, 0, 0)),
        ((0, 0, 0), Case::new("an unchanged slice", existing(&one()), one())),
        (
            (0, 0, 0),
            Case::new("an unchanged taint, whose time the API server has set", with_time(), tainted()),
        ),
        ((0, 1, 0), Case::new("more taints", with_time(), more_taints()).writes(0, 1, 0)),
        // The publisher finds the losses out by a dry run, and then writes nothing.
        (
            (0, 1, 0),
            Case::new("a taint, gate off", existing(&one()), tainted())
                .writes(0, 1, 0)
                .off(Feature::DeviceTaints),
        ),
        (
            (0, 1, 0),
            Case::new("a device to share, gate off", existing(&one()), shared())
                .writes(0, 1, 0)
                .off(Feature::ConsumableCapacity),
        ),
        (
            (0, 1, 0),
            Case::new("operations to skip, gate off", existing(&one()), skipping())
                .writes(0, 1, 0)
                .off(Feature::OptionalNodeOperations),
        ),
        (
            (2, 0, 0),
            Case::new("compatibility groups, gate off", vec![], partitioned(&["g", "h"]))
                .network()
                .writes(2, 0, 0)
                .off(Feature::DeviceCompatibilityGroups),
        ),
        // A pool that is not wished for any more goes the same way (`plan_removal`).
        ((0, 0, 1), Case::new("a slice that goes", existing(&one()), Pool::from_slices([])).writes(0, 0, 1)),
        ((0, 1, 0), Case::new("the first device", existing(&empty()), one()).writes(0, 1, 0)),
        (
            (0, 1, 0),
            Case::new(
                "the first device of the first of two slices",
                existing(&Pool::from_slices([Slice::new([]), devices(&["b"])])),
                slices(&["a", "b"]),
            )
            .writes(0, 1, 0),
        ),
        ((0, 0, 1), Case::new("a second slice with the same device", twins(), one()).writes(0, 0, 1)),
        (
            (0, 1, 0),
            Case::new("another attribute", existing(&one()), Pool::from_slices([with_attribute("a", 1)]))
                .writes(0, 1, 0),
        ),
        (
            (0, 1, 0),
            Case::new(
                "another attribute of the second device",
                existing(&Pool::new([device("a"), device("b")])),
                Pool::new([device("a"), device("b").try_attribute("x", 1).unwrap()]),
            )
            .writes(0, 1, 0),
        ),
    ]
}

fn several_slices() -> Vec<(Counts, Case)> {
    let three = || slices(&["a", "b", "c"]);
    let second = || Pool::from_slices([devices(&["a"]), with_attribute("b", 1), devices(&["c"])]);
    let both = || Pool::from_slices([devices(&["a"]), with_attribute("b", 1), with_attribute("c", 1)]);
    let generations = || {
        let one_of = |name, devices: &[&str], generation| {
            let devices = devices.iter().map(|name| device(name));
            left_by(&node_scope(), &Pool::new(devices), &[name], generation)
        };
        [one_of(NAMES[0], &[], 1), one_of(NAMES[1], &["a"], 2), one_of(NAMES[2], &[], 1)].concat()
    };
    vec![
        ((0, 0, 0), Case::new("three unchanged slices", existing(&three()), three())),
        // The slice of the newest generation is what is wished, whatever the index in its name: it stays.
        (
            (1, 0, 3),
            Case::new("slices of two generations", generations(), slices(&["a"]))
                .writes(0, 0, 2)
                .generation(2),
        ),
        ((0, 1, 0), Case::new("one of three changed", existing(&three()), second()).writes(0, 1, 0)),
        (
            (0, 3, 0),
            Case::new("two of three changed", existing(&three()), both()).writes(0, 3, 0).generation(2),
        ),
        (
            (0, 2, 1),
            Case::new("one of three gone", existing(&three()), slices(&["a", "b"]))
                .writes(0, 2, 1)
                .generation(2),
        ),
        (
            (1, 3, 0),
            Case::new("a fourth", existing(&three()), slices(&["a", "b", "c", "d"]))
                .writes(1, 3, 0)
                .generation(2),
        ),
    ]
}

fn network() -> Vec<(Counts, Case)> {
    let pool = |placement| Pool::new([device("a")]).placement(placement);
    let choosing = || {
        let here = DevicePlacement::Node(NodeName::new("n").unwrap());
        Pool::new([device("a").placed(here)]).placement(Placement::PerDevice)
    };
    let existing = left_by(&Scope::network(node_scope().driver().clone()), &pool(selector("m")), &NAMES, 1);
    let new = |name, pool| ((1, 0, 0), Case::new(name, vec![], pool).writes(1, 0, 0));
    let (all, some) =
        (new("for all nodes", pool(Placement::AllNodes)), new("for some nodes", pool(selector("m"))));
    let only = [
        new("for all nodes, one pool's publisher", pool(Placement::AllNodes)),
        new("for some nodes, one pool's publisher", pool(selector("m"))),
        new("devices choose, one pool's publisher", choosing()),
    ];
    let other = Case::new("for other nodes", existing, pool(selector("n"))).writes(0, 1, 0);
    let mut rows: Vec<_> = [all, some].map(|(go, case)| (go, case.network())).into();
    rows.extend(only.map(|(go, case)| (go, case.network_pool())));
    rows.push(((0, 1, 0), other.network()));
    rows
}

fn counters(name: &str) -> Slice {
    Slice::counters([CounterSet::new("set").unwrap().counter(name, 1).unwrap()])
}

fn consumer(counter: &str) -> Device {
    device("a").consumes(CounterConsumption::new("set").unwrap().counter(counter, 1).unwrap())
}

/// Counters and a device that draws on them, for a node that the device names.
fn partitioned(groups: &[&str]) -> Pool {
    let consumption = CounterConsumption::new("set").unwrap().counter("memory", 1).unwrap();
    let consumption =
        groups.iter().fold(consumption, |consumption, group| consumption.compatibility_group(group).unwrap());
    let here = DevicePlacement::Node(NodeName::new("n").unwrap());
    let device = device("a").placed(here).consumes(consumption);
    Pool::from_slices([counters("memory"), Slice::new([device])]).placement(Placement::PerDevice)
}

fn partitions() -> Vec<(Counts, Case)> {
    let local = Pool::from_slices([counters("memory"), Slice::new([consumer("memory")])]);
    let bound = || Pool::new([device("a").binding_conditions(["ready"], ["failed"]).binds_to_node(true)]);
    vec![
        ((2, 0, 0), Case::new("partitions", vec![], partitioned(&[])).network().writes(2, 0, 0)),
        (
            (2, 0, 0),
            Case::new("partitions, gate off", vec![], local)
                .writes(2, 0, 0)
                .off(Feature::PartitionableDevices),
        ),
        ((1, 0, 0), Case::new("binding conditions", vec![], bound()).writes(1, 0, 0)),
        (
            (1, 0, 0),
            Case::new("binding conditions, gate off", vec![], bound())
                .writes(1, 0, 0)
                .off(Feature::DeviceBindingConditions),
        ),
    ]
}

/// The Go helper publishes nothing of such a pool, and of no other. We leave out what is at fault, say so, and
/// publish the rest.
fn bad_input() -> Vec<(Counts, Case)> {
    let case = |name, slices: Vec<Slice>| Case::new(name, vec![], Pool::from_slices(slices)).problems(1);
    let draws = |counter| Slice::new([consumer(counter)]);
    vec![
        (
            (0, 0, 0),
            case("a counter set twice", vec![counters("memory"), counters("memory")]).writes(2, 0, 0),
        ),
        ((0, 0, 0), case("a device twice", vec![devices(&["a"]), devices(&["a"])]).writes(2, 0, 0)),
        ((0, 0, 0), case("an unknown counter set", vec![draws("memory")]).writes(1, 0, 0)),
        ((0, 0, 0), case("an unknown counter", vec![counters("memory"), draws("cpu")]).writes(2, 0, 0)),
    ]
}

/// Names are no reason for us to write, so the pool stays as it is.
fn migration() -> Vec<(Counts, Case)> {
    let three = || slices(&["a", "b", "c"]);
    let left = |names: [Option<&str>; 3]| left_by(&node_scope(), &three(), &names, 1);
    vec![
        ((3, 0, 3), Case::new("three random names", left(RANDOM), three())),
        ((2, 1, 2), Case::new("two random names", left([RANDOM[0], NAMES[1], RANDOM[2]]), three())),
    ]
}
