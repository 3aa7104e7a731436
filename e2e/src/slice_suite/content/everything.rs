//! Slices that use all features, and as much as there may be.

use anyhow::Result;
use dra_resourceslice::{
    AttributeValue, CounterConsumption, CounterSet, Device, Feature, IfDropped, Pool, QualifiedName,
    Quantity, Taint, limits,
};

use super::{
    super::{Suite, device},
    on_node, partition,
};

/// All features that fields of a node's slices depend on.
const ALL: [Feature; 9] = [
    Feature::DeviceTaints,
    Feature::PartitionableDevices,
    Feature::DeviceBindingConditions,
    Feature::ConsumableCapacity,
    Feature::PartitionableDevicesType,
    Feature::OptionalNodeOperations,
    Feature::DeviceCompatibilityGroups,
    Feature::NodeAllocatableResources,
    Feature::ListTypeAttributes,
];

/// What the API server stores of it shows which gates are off, all of them and no other.
pub(super) async fn at_once(suite: &Suite) -> Result<()> {
    use dra_resourceslice::{Capacity, NodeAllocatable, NodeOperation, RequestPolicy};
    let cores = QualifiedName::new("cores")?;
    let whole = partition("a", 1, &["g"])?
        .try_attribute("list", vec![1_i64, 2])?
        .taint(Taint::no_execute("example.com/k"))
        .binding_conditions(["ready"], ["failed"])
        .if_dropped(Feature::DeviceBindingConditions, IfDropped::Keep)
        .allow_multiple_allocations(true)
        .capacity(
            cores.clone(),
            Capacity::new(4.into()).with_policy(RequestPolicy::any(Some(Quantity::from(1)))),
        )
        .node_allocatable("cpu", NodeAllocatable::per_capacity(cores, 1));
    let devices = vec![whole, device("b")?];
    let pool = Pool::new(devices.clone())
        .counter_sets(super::counter_sets(1)?)
        .partition_type_attribute(QualifiedName::new("example.com/kind")?)
        .skip_node_operations([NodeOperation::All]);
    // Without counters, a consumer of them cannot be told by its partition type either.
    on_node(suite, "everything", pool, devices, 2, &ALL).await
}

/// Everything at its limit in one slice: the API server's own limit on the size of a request must not be met.
pub(super) async fn biggest(suite: &Suite) -> Result<()> {
    let text = "x".repeat(limits::MAX_ATTRIBUTE_LENGTH);
    let domain = format!("{}.{}", "d".repeat(31), "d".repeat(31));
    let plain = |index: usize| {
        let name = format!("{}-{index:03}", "n".repeat(59));
        (0..limits::MAX_ATTRIBUTES_AND_CAPACITIES).try_fold(device(&name)?, |device, n| {
            Ok(device.try_attribute(&format!("{domain}/a{n:031}"), text.clone())?)
        })
    };
    let devices: Vec<Device> = (0..limits::MAX_DEVICES).map(plain).collect::<Result<_>>()?;
    on_node(suite, "biggest", Pool::new(devices.clone()), devices, 1, &[]).await?;

    let counter = |n: usize| format!("{}-{n:02}", "c".repeat(60));
    let set = |n: usize| format!("{}-{n:02}", "s".repeat(60));
    let sets = (0..limits::MAX_COUNTER_SETS).map(|n| {
        (0..limits::MAX_COUNTERS)
            .try_fold(CounterSet::new(&set(n))?, |set, n| Ok(set.counter(&counter(n), i64::MAX)?))
    });
    let advanced = |index: usize| {
        let mut device =
            plain(index)?.try_attribute(&format!("{domain}/a{:031}", 0), AttributeValue::version("1.0.0"))?;
        device = device.if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
        for n in 0..limits::MAX_CONSUMED_COUNTER_SETS {
            let consumption = CounterConsumption::new(&set(n))?;
            device =
                device
                    .consumes((0..limits::MAX_COUNTERS).try_fold(consumption, |consumption, n| {
                        consumption.counter(&counter(n), i64::MAX)
                    })?);
        }
        for n in 0..limits::MAX_TAINTS {
            let key = format!("{domain}/{}-{n:02}", "k".repeat(60));
            device = device.taint(Taint::no_schedule(key).value("v".repeat(63)));
        }
        Ok(device)
    };
    let devices: Vec<Device> = (0..limits::MAX_DEVICES_ADVANCED).map(advanced).collect::<Result<_>>()?;
    let pool = Pool::new(devices.clone()).counter_sets(sets.collect::<Result<Vec<_>>>()?);
    let needs = [Feature::DeviceTaints, Feature::PartitionableDevices];
    on_node(suite, "biggest-advanced", pool, devices, 2, &needs).await
}
