//! What we say of a slice before anything is sent: the names' types and `validate`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use dra_resourceslice::{
    CounterSet, Device, DriverName, DriverResources, NodeName, NodeOperation, Placement, Pool, PoolName,
    QualifiedName, Quantity, Scope, Slice, validate,
};
use k8s_openapi::api::resource::v1::{self as api, ResourceSliceSpec};
use serde_json::Value;

type Verdict<T> = Result<T, String>;

/// Whether we would publish a slice with this spec.
///
/// # Errors
/// Why not.
pub(super) fn check(spec: &Value) -> Verdict<()> {
    let spec: ResourceSliceSpec = serde_json::from_value(spec.clone()).map_err(text)?;
    let driver = DriverName::new(spec.driver.clone()).map_err(text)?;
    let (scope, placement) = place(driver, &spec)?;
    if spec.devices.is_some() && spec.shared_counters.is_some() {
        return Err("a slice of the model has devices or counter sets".to_owned());
    }
    let mut slices = vec![content(&spec)?];
    let referenced = referenced_counters(&spec)?;
    if !referenced.is_empty() {
        slices.extend(referenced.chunks(8).map(|sets| Slice::counters(sets.iter().cloned())));
    }
    let pool = Pool::from_slices(slices).placement(placement).at_least_generation(spec.pool.generation);
    let name = PoolName::new(spec.pool.name).map_err(text)?;
    let problems = validate(&scope, &DriverResources::new().pool(name, pool));
    if problems.is_empty() { Ok(()) } else { Err(format!("{problems:?}")) }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn place(driver: DriverName, spec: &ResourceSliceSpec) -> Verdict<(Scope, Placement)> {
    let node = spec.node_name.clone().map(NodeName::new).transpose().map_err(text)?;
    let flags = [spec.all_nodes, spec.per_device_node_selection];
    if flags.contains(&Some(false)) {
        return Err("the model has no flag that is set and false".to_owned());
    }
    match (node, &spec.node_selector, flags) {
        (Some(node), None, [None, None]) => Ok((Scope::node(driver, node), Placement::Local)),
        (None, Some(selector), [None, None]) => {
            Ok((Scope::network(driver), Placement::Selector(Box::new(selector.clone()))))
        }
        (None, None, [Some(true), None]) => Ok((Scope::network(driver), Placement::AllNodes)),
        (None, None, [None, Some(true)]) => Ok((Scope::network(driver), Placement::PerDevice)),
        _ => Err("a pool of the model has exactly one placement".to_owned()),
    }
}

fn content(spec: &ResourceSliceSpec) -> Verdict<Slice> {
    let mut slice = if let Some(sets) = &spec.shared_counters {
        Slice::counters(sets.iter().map(counter_set).collect::<Verdict<Vec<_>>>()?)
    } else {
        Slice::new(spec.devices.iter().flatten().map(device).collect::<Verdict<Vec<_>>>()?)
    };
    if let Some(name) = &spec.partition_type_attribute {
        slice = slice.partition_type_attribute(QualifiedName::new(name.clone()).map_err(text)?);
    }
    let operations = spec.skip_node_operations.iter().flatten().map(|operation| {
        let all = [NodeOperation::Prepare, NodeOperation::Unprepare, NodeOperation::All];
        let found = all.into_iter().find(|known| known.as_str() == operation);
        found.ok_or_else(|| format!("the model has no operation {operation:?}"))
    });
    Ok(slice.skip_node_operations(operations.collect::<Verdict<Vec<_>>>()?))
}

fn counter_set(set: &api::CounterSet) -> Verdict<CounterSet> {
    let empty = CounterSet::new(&set.name).map_err(text)?;
    set.counters.iter().try_fold(empty, |set, (name, counter)| {
        let total = Quantity::try_from(&counter.value).map_err(text)?;
        set.counter(name, total).map_err(text)
    })
}

fn device(device: &api::Device) -> Verdict<Device> {
    let placements = [device.node_name.is_some(), device.node_selector.is_some(), device.all_nodes.is_some()];
    if device.all_nodes == Some(false) || placements.into_iter().filter(|set| *set).count() > 1 {
        return Err("a device of the model has one placement".to_owned());
    }
    Device::try_from(device).map_err(text)
}

/// The counter sets that the devices draw on. The API server does not look for them, we do.
fn referenced_counters(spec: &ResourceSliceSpec) -> Verdict<Vec<CounterSet>> {
    let mut sets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for device in spec.devices.iter().flatten() {
        for consumption in device.consumes_counters.iter().flatten() {
            let counters = sets.entry(&consumption.counter_set).or_default();
            counters.extend(consumption.counters.keys().map(String::as_str));
        }
    }
    // A name that is refused is the device's fault, which is found there. So is a set without counters.
    sets.retain(|name, counters| *name != MISSING && !counters.is_empty());
    sets.into_iter()
        .map(|(name, counters)| {
            counters.into_iter().try_fold(CounterSet::new(name).map_err(text)?, |set, counter| {
                set.counter(counter, 1).map_err(text)
            })
        })
        .collect()
}

/// The name of a counter set that is in no pool.
pub(super) const MISSING: &str = "missing";
