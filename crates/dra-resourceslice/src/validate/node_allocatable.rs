//! Rules on `nodeAllocatableResources`.

use super::device::FieldFault;
use crate::{Device, Fault, NodeAllocatable, NodeAllocatableMapping, Quantity};

pub(super) fn faults(device: &Device, faults: &mut Vec<FieldFault>) {
    for (resource, value) in &device.node_allocatable {
        let fault = resource_fault(resource).or_else(|| value_fault(device, value));
        faults.extend(fault.map(|fault| (format!("nodeAllocatableResources[{resource}]"), fault)));
    }
}

/// Only resources of which the scheduler counts what claims take: the node's CPUs, memory and huge pages.
fn resource_fault(resource: &str) -> Option<Fault> {
    let known = matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-");
    let rule = "is no resource that devices can stand for; cpu, memory and hugepages-… are";
    (!known).then(|| Fault::Invalid { value: resource.to_owned(), rule })
}

fn value_fault(device: &Device, value: &NodeAllocatable) -> Option<Fault> {
    let overheads = [&value.overhead_per_pod, &value.overhead_per_container];
    if value.mapping.is_none() && overheads.iter().all(|overhead| overhead.is_none()) {
        return Some(Fault::Rule("needs a mapping or an overhead"));
    }
    if overheads.into_iter().flatten().any(|overhead| overhead < &Quantity::from(0)) {
        return Some(Fault::Rule("an overhead must not be negative"));
    }
    let multiplier = match &value.mapping {
        Some(NodeAllocatableMapping::PerCapacity { capacity, .. })
            if !device.capacity.contains_key(capacity) =>
        {
            return Some(Fault::Unknown { value: capacity.to_string() });
        }
        Some(
            NodeAllocatableMapping::PerCapacity { multiplier, .. }
            | NodeAllocatableMapping::PerDevice(multiplier),
        ) => multiplier,
        None => return None,
    };
    (multiplier <= &Quantity::from(0)).then_some(Fault::Rule("the multiplier must be above zero"))
}
