use std::collections::BTreeSet;

use super::*;

fn gpus(node: &str, options: GpuOptions) -> Gpus {
    Gpus { node: node.parse().unwrap(), count: 2, options }
}

fn devices(options: GpuOptions) -> Vec<Device> {
    gpus("node-1", options).pool().unwrap().devices().cloned().collect()
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.name().as_str()).collect()
}

#[test]
fn gpus_are_stable_for_a_node_and_unique_among_nodes() {
    let uuids = |node: &str| -> Vec<String> {
        let pool = gpus(node, GpuOptions::default()).pool().unwrap();
        pool.devices().map(|device| format!("{:?}", device.attribute_value("uuid"))).collect()
    };
    assert_eq!(uuids("node-1"), uuids("node-1"));
    let all: BTreeSet<_> = uuids("node-1").into_iter().chain(uuids("node-2")).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn a_gpu_has_the_attributes_and_capacities_that_selectors_are_written_for() {
    let devices = devices(GpuOptions::default());
    assert_eq!(names(&devices), ["gpu-0", "gpu-1"]);
    let attributes: Vec<_> = devices[1].attributes().map(|(name, _)| name.as_str()).collect();
    assert_eq!(attributes, ["driverVersion", "index", "model", "uuid"]);
    let capacities: Vec<_> =
        devices[1].capacities().map(|(name, capacity)| (name.as_str(), capacity.clone())).collect();
    let expected =
        [("compute", Capacity::from(100)), ("memory", Capacity::new(Quantity::parse("80Gi").unwrap()))];
    assert_eq!(capacities, expected);
}

#[test]
fn partitions_and_the_whole_of_a_gpu_draw_on_its_counters() {
    let options = GpuOptions { gpu_partitions: 3, ..GpuOptions::default() };
    let devices = devices(options.clone());
    let expected = ["gpu-0-partition-0", "gpu-0-partition-1", "gpu-0-partition-2", "gpu-0-full"];
    assert_eq!(names(&devices[..4]), expected);
    let part = CounterConsumption::new("gpu-0-counters").unwrap();
    let part = part.counter("memory", gibibytes(26).unwrap()).unwrap().counter("compute", 33).unwrap();
    assert!(format!("{:?}", devices[0]).contains(&format!("{part:?}")), "{:?}", devices[0]);
    assert_eq!(devices[1].attribute_value("partition"), Some(&AttributeValue::Int(1)));
    assert_eq!(devices[3].attribute_value("full"), Some(&AttributeValue::Bool(true)));
    let set = CounterSet::new("gpu-1-counters").unwrap();
    let set = set.counter("memory", gibibytes(80).unwrap()).unwrap().counter("compute", 100).unwrap();
    let pool = format!("{:?}", gpus("node-1", options).pool().unwrap());
    assert!(pool.contains(&format!("{set:?}")), "{pool}");
}

#[test]
fn the_api_takes_every_number_of_partitions_that_the_option_takes() {
    for gpu_partitions in 0..=MEMORY {
        let options =
            GpuOptions { gpu_partitions, gpu_allow_multiple_allocations: true, binding_conditions: true };
        for device in devices(options) {
            for (name, capacity) in device.capacities() {
                assert!(capacity.value >= gibibytes(1).unwrap() || name.as_str() == "compute");
                assert!(capacity.value >= 1.into(), "{} has no {name}", device.name());
            }
        }
    }
}

#[test]
fn shared_gpus_say_how_much_a_claim_may_take() {
    let options = GpuOptions { gpu_allow_multiple_allocations: true, ..GpuOptions::default() };
    let devices = devices(options);
    let gi = |count| gibibytes(count).unwrap();
    let policy = RequestPolicy::range(gi(80), gi(1), Some(gi(80)), Some(gi(1)));
    let memory = devices[0].capacities().find(|(name, _)| name.as_str() == "memory").unwrap().1;
    assert_eq!(memory.request_policy.as_deref(), Some(&policy));
}

#[test]
fn the_whole_of_a_gpu_conflicts_with_its_own_partitions_only() {
    let gpus = gpus("node-1", GpuOptions::default());
    let device = |pool: &str, name: &str| DeviceRef::new(pool.parse().unwrap(), name.parse().unwrap());
    let whole = device("node-1", "gpu-0-full");
    let table = [
        (device("node-1", "gpu-0-partition-1"), true),
        (device("node-1", "gpu-1-partition-1"), false),
        (device("node-2", "gpu-0-partition-1"), false),
        (device("node-1", "gpu-0"), false),
    ];
    for (other, expected) in table {
        assert_eq!(gpus.conflicts(&whole, &other), expected, "{other}");
        assert_eq!(gpus.conflicts(&other, &whole), expected, "{other}");
    }
    let (first, second) = (device("node-1", "gpu-0-partition-0"), device("node-1", "gpu-0-partition-1"));
    assert!(!gpus.conflicts(&first, &second));
}
