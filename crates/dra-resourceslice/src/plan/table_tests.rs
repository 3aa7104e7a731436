//! The cases in which publishers of slices have gone wrong. Those of the Go helper's own test are in `upstream_tests`.
//!
//! Each case says how many slices are created, updated and deleted. Where the Go helper 0.37 does it with other
//! numbers, `go` has them and the comment says why ours are better. After each case a second plan must be empty.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, NodeSelectorTerm},
        resource::v1::ResourceSlice,
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
    jiff::Timestamp,
};

use super::*;
use crate::{
    Capacity, CounterConsumption, CounterSet, Device, DriverName, Feature, NodeName, NodeOperation,
    Placement, Pool, PoolName, PoolWish, QualifiedName, Quantity, RequestPolicy, Scope, Slice, Taint,
    features::{self, Features},
    slice_name::slice_name,
    test_api::TestApi,
};

pub(super) struct Case {
    pub(super) name: &'static str,
    scope: Scope,
    observed: Vec<ResourceSlice>,
    pool: Pool,
    /// How many parts of the pool are left out because they break a rule.
    pub(super) problems: usize,
    /// Gates that are off in the API server.
    off: Vec<Feature>,
    /// Creates, updates, deletes.
    pub(super) writes: (usize, usize, usize),
    generation: i64,
    go: Option<(usize, usize, usize)>,
}

impl Case {
    pub(super) fn new(name: &'static str, observed: Vec<ResourceSlice>, pool: Pool) -> Self {
        let (writes, generation) = ((0, 0, 0), 1);
        let (scope, off) = (node_scope(), Vec::new());
        Self { name, scope, observed, pool, problems: 0, off, writes, generation, go: None }
    }

    pub(super) fn writes(self, creates: usize, updates: usize, deletes: usize) -> Self {
        Self { writes: (creates, updates, deletes), ..self }
    }

    pub(super) fn generation(self, generation: i64) -> Self {
        Self { generation, ..self }
    }

    fn go(self, creates: usize, updates: usize, deletes: usize) -> Self {
        Self { go: Some((creates, updates, deletes)), ..self }
    }

    pub(super) fn off(self, feature: Feature) -> Self {
        Self { off: vec![feature], ..self }
    }

    pub(super) fn network(self) -> Self {
        Self { scope: Scope::network(driver()), ..self }
    }

    pub(super) fn network_pool(self) -> Self {
        Self { scope: Scope::network_pool(driver(), pool_name()), ..self }
    }

    pub(super) fn problems(self, problems: usize) -> Self {
        Self { problems, ..self }
    }

    pub(super) fn check(&self) {
        let name = self.name;
        let (wish, problems) = PoolWish::new(&self.scope, &pool_name(), &self.pool);
        assert_eq!(problems.len(), self.problems, "{name}: {problems:?}");
        let mut wish = wish.unwrap();
        let mut api = TestApi::with(self.observed.clone(), self.off.iter().copied().collect());

        let plan = super::plan(&wish, api.slices());
        let counted = |kind: fn(&Write) -> bool| plan.writes.iter().filter(|write| kind(write)).count();
        let writes = (
            counted(|write| matches!(write, Write::Create(_))),
            counted(|write| matches!(write, Write::Update(_))),
            counted(|write| matches!(write, Write::Delete { .. })),
        );
        assert_eq!((writes, plan.generation), (self.writes, self.generation), "{name}");
        if let Some((creates, updates, deletes)) = self.go {
            let ours = writes.0 + writes.1 + writes.2;
            assert!(ours < creates + updates + deletes, "{name}: no better than the Go helper");
        }

        let mut dropped = Features::new();
        for write in &plan.writes {
            api.apply(write);
            if let Write::Create(sent) | Write::Update(sent) = write {
                dropped.extend(&features::used(&sent.spec) - &features::used(&api.get(write.name()).spec));
            }
        }
        let expected: BTreeSet<_> =
            if plan.writes.is_empty() { BTreeSet::new() } else { self.off.iter().copied().collect() };
        assert_eq!(dropped, expected, "{name}");
        wish.dropped = dropped;
        // A device that must not be there without its fields goes.
        let left_out = wish.clone().without_left_out().content != wish.content;
        if left_out {
            api.apply_all(&super::plan(&wish, api.slices()).writes);
        }
        assert_eq!(super::plan(&wish, api.slices()).writes, [], "{name}: a second plan has writes");
    }
}

pub(super) fn driver() -> DriverName {
    DriverName::new("gpu.example.com").unwrap()
}

pub(super) fn node_scope() -> Scope {
    Scope::node(driver(), NodeName::new("node-1").unwrap())
}

fn pool_name() -> PoolName {
    PoolName::new("pool").unwrap()
}

pub(super) fn device(name: &str) -> Device {
    Device::named(name).unwrap()
}

pub(super) fn devices(names: &[&str]) -> Slice {
    Slice::new(names.iter().map(|name| device(name)))
}

pub(super) fn with_attribute(name: &str, value: i64) -> Slice {
    Slice::new([device(name).try_attribute("a", value).unwrap()])
}

/// The pool as an earlier publisher has left it, with these names of slices; `None` stands for our own names.
pub(super) fn left_by(
    scope: &Scope,
    pool: &Pool,
    names: &[Option<&str>],
    generation: i64,
) -> Vec<ResourceSlice> {
    let (wish, _) = PoolWish::new(scope, &pool_name(), pool);
    let mut api = TestApi::default();
    api.apply_all(&super::plan(&wish.unwrap(), &[]).writes);
    let mut slices = api.slices().to_vec();
    for (slice, name) in slices.iter_mut().zip(names) {
        slice.spec.pool.generation = generation;
        if let Some(name) = name {
            slice.metadata.name = Some((*name).to_owned());
        }
    }
    slices
}

fn ours(pool: &Pool) -> Vec<ResourceSlice> {
    left_by(&node_scope(), pool, &[], 1)
}

fn three() -> Pool {
    Pool::from_slices([devices(&["a"]), devices(&["b"]), devices(&["c"])])
}

pub(super) fn selector(node: &str) -> Placement {
    let term = NodeSelectorTerm {
        match_fields: Some(vec![k8s_openapi::api::core::v1::NodeSelectorRequirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: Some(vec![node.into()]),
        }]),
        ..Default::default()
    };
    Placement::Selector(Box::new(NodeSelector { node_selector_terms: vec![term] }))
}

#[test]
fn pools_appear_change_and_go() {
    let one = || Pool::new([device("a")]);
    let cases = [
        Case::new("a new pool", vec![], one()).writes(1, 0, 0),
        Case::new("a new pool without devices", vec![], Pool::new([])).writes(1, 0, 0),
        Case::new("a pool of no slices that is not there", vec![], Pool::from_slices([])).generation(0),
        Case::new("an unchanged pool", ours(&one()), one()),
        Case::new("another device", ours(&one()), Pool::new([device("b")])).writes(0, 1, 0),
        Case::new("one more device", ours(&one()), Pool::new([device("a"), device("b")])).writes(0, 1, 0),
        Case::new(
            "another order of devices",
            ours(&Pool::new([device("a"), device("b")])),
            Pool::new([device("b"), device("a")]),
        )
        .writes(0, 1, 0),
        Case::new("all devices go", ours(&one()), Pool::new([])).writes(0, 1, 0),
        Case::new("a pool whose slices go", ours(&three()), Pool::from_slices([])).writes(0, 0, 3),
        Case::new("a generation that the driver wants", ours(&one()), one().at_least_generation(7))
            .writes(0, 1, 0)
            .generation(7),
        Case::new(
            "a generation that is reached already",
            left_by(&node_scope(), &one(), &[None], 9),
            one().at_least_generation(7),
        )
        .generation(9),
        Case::new("many devices", vec![], Pool::new((0..300).map(|n| device(&format!("d{n}")))))
            .writes(3, 0, 0),
        Case::new(
            "no devices after many",
            ours(&Pool::new((0..300).map(|n| device(&format!("d{n}"))))),
            Pool::new([]),
        )
        .writes(0, 1, 2)
        .generation(2),
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn several_slices_change_with_the_fewest_writes() {
    let changed = |first: i64, second: i64| {
        Pool::from_slices([with_attribute("a", first), with_attribute("b", second), with_attribute("c", 0)])
    };
    let before = || ours(&changed(0, 0));
    let cases = [
        Case::new("nothing changed", before(), changed(0, 0)),
        Case::new("one changed", before(), changed(1, 0)).writes(0, 1, 0),
        Case::new("two changed", before(), changed(1, 1)).writes(0, 3, 0).generation(2),
        Case::new("one removed", ours(&three()), Pool::from_slices([devices(&["a"]), devices(&["c"])]))
            .writes(0, 2, 1)
            .generation(2),
        Case::new(
            "one added",
            ours(&three()),
            Pool::from_slices([devices(&["a"]), devices(&["b"]), devices(&["c"]), devices(&["d"])]),
        )
        .writes(1, 3, 0)
        .generation(2),
        // The Go helper raises the generation and writes the two others as well.
        Case::new("one has vanished", ours(&three())[1..].to_vec(), three()).writes(1, 0, 0).go(1, 2, 0),
        // The pool is incomplete until the last write anyway.
        Case::new("one has vanished and one changed", before()[1..].to_vec(), changed(0, 1))
            .writes(1, 1, 0)
            .go(1, 2, 0),
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn slices_of_other_publishers_are_taken_over() {
    let random = [
        Some("node-1-gpu.example.com-7xk2p"),
        Some("node-1-gpu.example.com-b9d4f"),
        Some("node-1-gpu.example.com-zz81q"),
    ];
    let indexed = [
        Some("00000-gpu.example.com-node-1-abcde"),
        Some("00001-gpu.example.com-node-1-fghij"),
        Some("00002-gpu.example.com-node-1-klmno"),
    ];
    let swapped = [indexed[2], indexed[0], indexed[1]];
    let mixed = [indexed[0], random[1], indexed[2]];
    let pool = |devices: usize| Pool::new((0..devices).map(|n| device(&format!("d{n}"))));
    let split = |sizes: &[usize]| {
        let mut next = 0..;
        Pool::from_slices(
            sizes
                .iter()
                .map(|&size| Slice::new(next.by_ref().take(size).map(|n| device(&format!("d{n}")))).clone())
                .collect::<Vec<_>>(),
        )
    };
    let left = |names: &[Option<&str>], pool: &Pool| left_by(&node_scope(), pool, names, 4);
    let changed =
        || Pool::from_slices([with_attribute("a", 1), with_attribute("b", 1), with_attribute("c", 1)]);
    let cases = [
        Case::new("8 devices of the Go helper", left(&indexed, &pool(8)), pool(8)).generation(4),
        // Go 0.36 and later delete slices with random names and create all anew.
        Case::new(
            "300 devices cut by hand, random names",
            left(&random, &split(&[100, 100, 100])),
            pool(300),
        )
        .generation(4)
        .go(3, 0, 3),
        Case::new(
            "300 devices cut by hand, indexed names",
            left(&indexed, &split(&[100, 100, 100])),
            pool(300),
        )
        .generation(4),
        Case::new("slices whose names tell another order", left(&swapped, &three()), three())
            .generation(4)
            .go(0, 3, 0),
        Case::new("a changed pool with random names", left(&random, &three()), changed())
            .writes(3, 0, 3)
            .generation(5),
        Case::new("a changed pool with one random name", left(&mixed, &three()), changed())
            .writes(1, 2, 1)
            .generation(5)
            .go(2, 2, 1),
        // In place, since only one slice differs and the names do not matter.
        Case::new(
            "one slice changed among random names",
            left(&random, &three()),
            Pool::from_slices([devices(&["a"]), devices(&["b"]), with_attribute("c", 1)]),
        )
        .writes(0, 1, 0)
        .generation(4)
        .go(3, 0, 3),
        Case::new(
            "one slice with a random name",
            left(&random, &Pool::new([device("a")])),
            Pool::new([device("b")]),
        )
        .writes(0, 1, 0)
        .generation(4)
        .go(1, 0, 1),
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn leftovers_and_duplicates_go() {
    let one = || Pool::new([device("a")]);
    let with_extra = |extra: Vec<ResourceSlice>| [ours(&one()), extra].concat();
    let old = |name: &'static str| left_by(&node_scope(), &Pool::new([device("old")]), &[Some(name)], 0);
    let same = |name: &'static str| left_by(&node_scope(), &Pool::new([device("old")]), &[Some(name)], 1);
    let generations = || {
        let mut slices = left_by(&node_scope(), &three(), &[Some("x-1"), Some("x-2"), Some("x-3")], 1);
        slices[2].spec.pool.generation = 2;
        slices
    };
    let cases = [
        Case::new("a slice of an old generation", with_extra(old("00000-x")), one()).writes(0, 0, 1),
        Case::new("a slice too many", with_extra(same("x-1")), one()).writes(0, 0, 1),
        Case::new("several too many", with_extra([same("x-1"), same("x-2")].concat()), one()).writes(0, 0, 2),
        // The slice of the newest generation is used, not replaced.
        Case::new("several generations, one wished", generations(), one())
            .writes(0, 1, 2)
            .generation(2)
            .go(1, 0, 3),
        Case::new("one wished, several there", ours(&three()), one()).writes(0, 1, 2).generation(2),
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn network_pools_have_selectors_instead_of_a_node() {
    let pool = |placement| Pool::new([device("a")]).placement(placement);
    let network = Scope::network(driver());
    let before = left_by(&network, &pool(selector("m")), &[], 1);
    let cases = [
        Case::new("for all nodes", vec![], pool(Placement::AllNodes)).network().writes(1, 0, 0),
        Case::new("for some nodes", vec![], pool(selector("m"))).network().writes(1, 0, 0),
        Case::new("for the same nodes", before.clone(), pool(selector("m"))).network(),
        Case::new("for other nodes", before, pool(selector("n"))).network().writes(0, 1, 0),
        Case::new(
            "a node's slices are not those of the network",
            ours(&Pool::new([device("a")])),
            pool(Placement::AllNodes),
        )
        .network()
        .writes(1, 0, 0),
    ];
    cases.iter().for_each(Case::check);
}

fn partitions() -> Pool {
    let consumer = |name: &str| {
        let consumption = CounterConsumption::new("set").unwrap().counter("slices", 1).unwrap();
        device(name)
            .try_attribute("example.com/kind", "half")
            .unwrap()
            .consumes(consumption.compatibility_group("g").unwrap())
    };
    Pool::new([consumer("a"), consumer("b")])
        .counter_sets([CounterSet::new("set").unwrap().counter("slices", 2).unwrap()])
}

#[test]
fn fields_behind_feature_gates_are_published_and_their_loss_is_noticed() {
    let skip = || Pool::new([device("a")]).skip_node_operations([NodeOperation::All]);
    let tainted = || Pool::new([device("a").taint(Taint::no_schedule("k"))]);
    let consumable = || {
        let policy = RequestPolicy::any(Some(Quantity::from(1)));
        let capacity = Capacity::new(Quantity::from(2)).with_policy(policy);
        Pool::new([device("a").allow_multiple_allocations(true).try_capacity("c", capacity).unwrap()])
    };
    let binding = || Pool::new([device("a").binding_conditions(["ready"], ["failed"]).binds_to_node(true)]);
    let kind = || partitions().partition_type_attribute(QualifiedName::new("example.com/kind").unwrap());
    let cases = [
        Case::new("skipped operations", vec![], skip()).writes(1, 0, 0),
        Case::new("skipped operations, gate off", vec![], skip())
            .writes(1, 0, 0)
            .off(Feature::OptionalNodeOperations),
        Case::new("a taint", vec![], tainted()).writes(1, 0, 0),
        Case::new("a taint, gate off", vec![], tainted()).writes(1, 0, 0).off(Feature::DeviceTaints),
        Case::new("consumable capacity", vec![], consumable()).writes(1, 0, 0),
        Case::new("consumable capacity, gate off", vec![], consumable())
            .writes(1, 0, 0)
            .off(Feature::ConsumableCapacity),
        Case::new("binding conditions", vec![], binding()).writes(1, 0, 0),
        Case::new("binding conditions, gate off", vec![], binding())
            .writes(1, 0, 0)
            .off(Feature::DeviceBindingConditions),
        Case::new("partitions", vec![], partitions()).writes(2, 0, 0),
        Case::new("partitions, gate for groups off", vec![], partitions())
            .writes(2, 0, 0)
            .off(Feature::DeviceCompatibilityGroups),
        Case::new("a partition type", vec![], kind()).writes(2, 0, 0),
        Case::new("a partition type, gate off", vec![], kind())
            .writes(2, 0, 0)
            .off(Feature::PartitionableDevicesType),
        Case::new("unchanged partitions", ours(&partitions()), partitions()),
    ];
    cases.iter().for_each(Case::check);

    let case = Case::new("", vec![], partitions()).off(Feature::PartitionableDevices);
    let (wish, _) = PoolWish::new(&case.scope, &pool_name(), &case.pool);
    let mut api = TestApi::with(vec![], case.off.iter().copied().collect());
    let mut dropped = Features::new();
    for write in &super::plan(&wish.clone().unwrap(), &[]).writes {
        api.apply(write);
        let Write::Create(sent) = write else { panic!("{write:?}") };
        dropped.extend(&features::used(&sent.spec) - &features::used(&api.get(write.name()).spec));
    }
    assert!(dropped.contains(&Feature::PartitionableDevices), "{dropped:?}");
    let wish = PoolWish { dropped, ..wish.unwrap() };
    api.apply_all(&super::plan(&wish, api.slices()).writes);
    assert_eq!(super::plan(&wish, api.slices()).writes, []);
}

#[test]
fn the_times_of_all_taints_are_kept_when_something_else_changes() {
    let pool = |value: i64| {
        let device = device("a").try_attribute("x", value).unwrap();
        Pool::new([device.taint(Taint::no_schedule("k").value("v")).taint(Taint::no_execute("l"))])
    };
    let mut before = ours(&pool(0));
    let at = |second| Time(Timestamp::from_second(second).unwrap());
    for (taint, second) in
        before[0].spec.devices.as_mut().unwrap()[0].taints.iter_mut().flatten().zip([100, 200])
    {
        taint.time_added = Some(at(second));
    }
    let (wish, _) = PoolWish::new(&node_scope(), &pool_name(), &pool(1));
    let plan = super::plan(&wish.unwrap(), &before);
    let [Write::Update(slice)] = plan.writes.as_slice() else { panic!("{plan:?}") };
    let taints = slice.spec.devices.as_ref().unwrap()[0].taints.as_ref().unwrap();
    assert_eq!(
        taints.iter().map(|taint| taint.time_added.clone()).collect::<Vec<_>>(),
        [Some(at(100)), Some(at(200))]
    );
}

#[test]
fn a_taint_with_another_value_gets_a_new_time() {
    let pool = |value: &str| Pool::new([device("a").taint(Taint::no_execute("k").value(value))]);
    let (wish, _) = PoolWish::new(&node_scope(), &pool_name(), &pool("new"));
    let plan = super::plan(&wish.unwrap(), &ours(&pool("old")));
    let [Write::Update(slice)] = plan.writes.as_slice() else { panic!("{plan:?}") };
    assert_eq!(slice.spec.devices.as_ref().unwrap()[0].taints.as_ref().unwrap()[0].time_added, None);
}

#[test]
fn of_two_slices_of_one_index_the_one_with_our_name_goes_first_and_alone() {
    let pool = Pool::new([device("a")]);
    let twins =
        [ours(&pool), left_by(&node_scope(), &pool, &[Some("00000-gpu.example.com-node-1-abcde")], 1)]
            .concat();
    let (wish, _) = PoolWish::new(&node_scope(), &pool_name(), &pool);
    let plan = super::plan(&wish.unwrap(), &twins);
    assert!(plan.needs_fresh_list);
    let our_name = slice_name(&node_scope(), &pool_name(), 0, 1, 0);
    assert_eq!(plan.writes.iter().map(Write::name).collect::<Vec<_>>(), [our_name]);
}

#[test]
fn a_node_that_was_made_anew_becomes_the_owner_without_a_new_generation() {
    let pool = three();
    let owner = |uid: &str| node_scope().owner(uid).unwrap();
    let other = OwnerReference { kind: "Other".into(), uid: "o".into(), ..Default::default() };
    let mut before = ours(&pool);
    for slice in &mut before {
        slice.metadata.owner_references = Some(vec![other.clone(), owner("old")]);
    }
    let (wish, _) = PoolWish::new(&node_scope(), &pool_name(), &pool);
    let plan = super::plan(&wish.unwrap().owned_by(owner("new")), &before);
    assert_eq!((plan.writes.len(), plan.generation), (3, 1));
    for write in &plan.writes {
        let Write::Update(slice) = write else { panic!("{write:?}") };
        assert_eq!(slice.metadata.owner_references, Some(vec![other.clone(), owner("new")]));
        assert_eq!(slice.spec.pool.generation, 1);
    }
}

#[test]
fn one_attribute_of_one_device_among_ten_thousand_costs_one_write() {
    let pool = |value: i64| {
        Pool::new((0..10_000).map(|n| {
            let value = if n == 5_000 { value } else { 0 };
            device(&format!("d{n}")).try_attribute("a", value).unwrap()
        }))
    };
    Case::new("10,000 devices", vec![], pool(0)).writes(79, 0, 0).check();
    Case::new("one attribute", ours(&pool(0)), pool(1)).writes(0, 1, 0).check();
    let gone = Pool::new(
        (0..10_000).filter(|n| *n != 5_000).map(|n| device(&format!("d{n}")).try_attribute("a", 0).unwrap()),
    );
    Case::new("one device gone", ours(&pool(0)), gone).writes(0, 1, 0).check();
}

#[test]
fn slices_of_other_pools_nodes_and_drivers_are_ignored() {
    let pool = Pool::new([device("a")]);
    let mut foreign = [ours(&pool), ours(&pool), ours(&pool)].concat();
    foreign[0].spec.pool.name = "other".into();
    foreign[1].spec.node_name = Some("node-2".into());
    foreign[2].spec.driver = "other.example.com".into();
    let (wish, _) = PoolWish::new(&node_scope(), &pool_name(), &pool);
    let plan = super::plan(&wish.unwrap(), &foreign);
    assert!(matches!(plan.writes.as_slice(), [Write::Create(_)]), "{plan:?}");
}
