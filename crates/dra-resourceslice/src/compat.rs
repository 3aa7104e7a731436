//! What differs between the Kubernetes versions that k8s-openapi can be compiled for.
//!
//! The binary that links this crate chooses the version. Fields that the chosen one lacks are reported as
//! [`Unsupported`] when a driver uses them, and are absent when read.

use k8s_openapi::{
    api::resource::v1::{Device, DeviceAttribute, DeviceCounterConsumption, ResourceSliceSpec},
    k8s_if_ge_1_36, k8s_if_ge_1_37, k8s_if_le_1_35, k8s_if_le_1_36,
};

use crate::{AttributeValue, Device as DeviceModel};

/// A field that the linked k8s-openapi version does not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unsupported {
    pub(crate) field: &'static str,
    /// The k8s-openapi feature that has it.
    pub(crate) since: &'static str,
}

k8s_if_ge_1_36! {
    /// Sets a list value; other values are left to the caller.
    #[allow(clippy::unnecessary_wraps, reason = "older versions fail")]
    pub(crate) fn set_list(attribute: &mut DeviceAttribute, value: &AttributeValue) -> Result<(), Unsupported> {
        match value {
            AttributeValue::Bools(list) => attribute.bools = Some(list.clone()),
            AttributeValue::Ints(list) => attribute.ints = Some(list.clone()),
            AttributeValue::Strings(list) => attribute.strings = Some(list.clone()),
            AttributeValue::Versions(list) => attribute.versions = Some(list.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Reads a list value.
    pub(crate) fn list(attribute: &DeviceAttribute) -> Option<AttributeValue> {
        let bools = attribute.bools.clone().map(AttributeValue::Bools);
        let ints = || attribute.ints.clone().map(AttributeValue::Ints);
        let strings = || attribute.strings.clone().map(AttributeValue::Strings);
        let versions = || attribute.versions.clone().map(AttributeValue::Versions);
        bools.or_else(ints).or_else(strings).or_else(versions)
    }
}

k8s_if_le_1_35! {
    /// Lists came with 1.36.
    pub(crate) fn set_list(_: &mut DeviceAttribute, _: &AttributeValue) -> Result<(), Unsupported> {
        Err(Unsupported { field: "attributes (list value)", since: "v1_36" })
    }

    /// Lists came with 1.36.
    pub(crate) fn list(_: &DeviceAttribute) -> Option<AttributeValue> {
        None
    }
}

k8s_if_ge_1_37! {
    use std::collections::BTreeMap;

    use k8s_openapi::{
        api::resource::v1::{
            NodeAllocatableMapping as ApiMapping, NodeAllocatableOverhead as ApiOverhead, NodeAllocatableResource,
        },
        apimachinery::pkg::api::resource::Quantity as ApiQuantity,
    };

    use crate::{InvalidName, InvalidQuantity, NodeAllocatable, NodeAllocatableMapping, QualifiedName, Quantity};

    /// Sets `partitionTypeAttribute`.
    #[allow(clippy::unnecessary_wraps, reason = "older versions fail")]
    pub(crate) fn set_partition_type_attribute(
        spec: &mut ResourceSliceSpec,
        name: Option<String>,
    ) -> Result<(), Unsupported> {
        spec.partition_type_attribute = name;
        Ok(())
    }

    /// Sets `skipNodeOperations`.
    #[allow(clippy::unnecessary_wraps, reason = "older versions fail")]
    pub(crate) fn set_skip_node_operations(
        spec: &mut ResourceSliceSpec,
        operations: Vec<String>,
    ) -> Result<(), Unsupported> {
        spec.skip_node_operations = (!operations.is_empty()).then_some(operations);
        Ok(())
    }

    /// Sets `compatibilityGroups`.
    #[allow(clippy::unnecessary_wraps, reason = "older versions fail")]
    pub(crate) fn set_compatibility_groups(
        consumption: &mut DeviceCounterConsumption,
        groups: Vec<String>,
    ) -> Result<(), Unsupported> {
        consumption.compatibility_groups = (!groups.is_empty()).then_some(groups);
        Ok(())
    }

    /// Sets `nodeAllocatableResources`.
    #[allow(clippy::unnecessary_wraps, reason = "older versions fail")]
    pub(crate) fn set_node_allocatable(device: &mut Device, model: &DeviceModel) -> Result<(), Unsupported> {
        let entries = model.node_allocatable.iter().map(|(resource, value)| (resource.clone(), to_api(value)));
        let map: BTreeMap<_, _> = entries.collect();
        device.node_allocatable_resources = (!map.is_empty()).then_some(map);
        Ok(())
    }

    fn to_api(value: &NodeAllocatable) -> NodeAllocatableResource {
        let mapping = value.mapping.as_ref().map(|mapping| match mapping {
            NodeAllocatableMapping::PerDevice(amount) => {
                ApiMapping { device_multiplier: Some(amount.to_api()), ..ApiMapping::default() }
            }
            NodeAllocatableMapping::PerCapacity { capacity, multiplier } => ApiMapping {
                capacity_key: Some(capacity.to_string()),
                capacity_multiplier: Some(multiplier.to_api()),
                ..ApiMapping::default()
            },
        });
        let (pod, container) = (&value.overhead_per_pod, &value.overhead_per_container);
        let overhead = (pod.is_some() || container.is_some()).then(|| ApiOverhead {
            per_pod: pod.as_ref().map(Quantity::to_api),
            per_container: container.as_ref().map(Quantity::to_api),
        });
        NodeAllocatableResource { mapping, overhead }
    }

    /// Why `nodeAllocatableResources` could not be read.
    #[derive(Debug, thiserror::Error)]
    pub(crate) enum Unreadable {
        #[error(transparent)]
        Name(#[from] InvalidName),
        #[error(transparent)]
        Quantity(#[from] InvalidQuantity),
    }

    /// Reads `nodeAllocatableResources`.
    pub(crate) fn node_allocatable(device: &Device) -> Result<BTreeMap<String, NodeAllocatable>, Unreadable> {
        let entries = device.node_allocatable_resources.iter().flatten();
        entries.map(|(resource, value)| Ok((resource.clone(), from_api(value)?))).collect()
    }

    fn from_api(value: &NodeAllocatableResource) -> Result<NodeAllocatable, Unreadable> {
        let quantity = |quantity: &Option<ApiQuantity>| quantity.as_ref().map(Quantity::try_from).transpose();
        let mapping = match &value.mapping {
            None => None,
            Some(ApiMapping { capacity_key: Some(key), capacity_multiplier, .. }) => {
                Some(NodeAllocatableMapping::PerCapacity {
                    capacity: QualifiedName::new(key.clone())?,
                    multiplier: quantity(capacity_multiplier)?.unwrap_or_else(|| Quantity::from(0)),
                })
            }
            Some(ApiMapping { device_multiplier, .. }) => {
                quantity(device_multiplier)?.map(NodeAllocatableMapping::PerDevice)
            }
        };
        let overhead = value.overhead.as_ref();
        let read = |field: fn(&ApiOverhead) -> &Option<ApiQuantity>| {
            overhead.map_or(Ok(None), |overhead| quantity(field(overhead)))
        };
        let per_pod = read(|overhead| &overhead.per_pod)?;
        let per_container = read(|overhead| &overhead.per_container)?;
        Ok(NodeAllocatable { mapping, ..NodeAllocatable::overhead(per_pod, per_container) })
    }

    /// Reads `compatibilityGroups`.
    pub(crate) fn compatibility_groups(consumption: &DeviceCounterConsumption) -> &[String] {
        consumption.compatibility_groups.as_deref().unwrap_or_default()
    }

    pub(crate) fn clear_partition_type_attribute(spec: &mut ResourceSliceSpec) {
        spec.partition_type_attribute = None;
    }

    pub(crate) fn clear_skip_node_operations(spec: &mut ResourceSliceSpec) {
        spec.skip_node_operations = None;
    }

    pub(crate) fn clear_compatibility_groups(consumption: &mut DeviceCounterConsumption) {
        consumption.compatibility_groups = None;
    }

    pub(crate) fn clear_node_allocatable(device: &mut Device) {
        device.node_allocatable_resources = None;
    }

    /// Applies a change to every quantity that only some versions have.
    pub(crate) fn for_each_quantity(device: &mut Device, mut change: impl FnMut(&mut ApiQuantity)) {
        let resources = device.node_allocatable_resources.iter_mut().flat_map(|map| map.values_mut());
        for resource in resources {
            if let Some(mapping) = &mut resource.mapping {
                mapping.capacity_multiplier.iter_mut().for_each(&mut change);
                mapping.device_multiplier.iter_mut().for_each(&mut change);
            }
            if let Some(overhead) = &mut resource.overhead {
                overhead.per_pod.iter_mut().for_each(&mut change);
                overhead.per_container.iter_mut().for_each(&mut change);
            }
        }
    }

    /// Makes nil of empty collections that only some versions have.
    pub(crate) fn clear_empty(spec: &mut ResourceSliceSpec) {
        spec.skip_node_operations.take_if(|list| list.is_empty());
        for device in spec.devices.iter_mut().flatten() {
            device.node_allocatable_resources.take_if(|map| map.is_empty());
            for consumption in device.consumes_counters.iter_mut().flatten() {
                consumption.compatibility_groups.take_if(|list| list.is_empty());
            }
        }
    }
}

k8s_if_le_1_36! {
    use std::{collections::BTreeMap, convert::Infallible};

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

    use crate::NodeAllocatable;

    const SINCE: &str = "v1_37";

    /// Came with 1.37.
    pub(crate) fn set_partition_type_attribute(
        _: &mut ResourceSliceSpec,
        name: Option<String>,
    ) -> Result<(), Unsupported> {
        if name.is_some() { Err(Unsupported { field: "partitionTypeAttribute", since: SINCE }) } else { Ok(()) }
    }

    /// Came with 1.37.
    pub(crate) fn set_skip_node_operations(
        _: &mut ResourceSliceSpec,
        operations: Vec<String>,
    ) -> Result<(), Unsupported> {
        if operations.is_empty() { Ok(()) } else { Err(Unsupported { field: "skipNodeOperations", since: SINCE }) }
    }

    /// Came with 1.37.
    pub(crate) fn set_compatibility_groups(
        _: &mut DeviceCounterConsumption,
        groups: Vec<String>,
    ) -> Result<(), Unsupported> {
        let field = "consumesCounters.compatibilityGroups";
        if groups.is_empty() { Ok(()) } else { Err(Unsupported { field, since: SINCE }) }
    }

    /// Came with 1.37 in this form.
    pub(crate) fn set_node_allocatable(_: &mut Device, model: &DeviceModel) -> Result<(), Unsupported> {
        let field = "nodeAllocatableResources";
        if model.node_allocatable.is_empty() { Ok(()) } else { Err(Unsupported { field, since: SINCE }) }
    }

    /// Came with 1.37 in this form.
    pub(crate) fn node_allocatable(_: &Device) -> Result<BTreeMap<String, NodeAllocatable>, Infallible> {
        Ok(BTreeMap::new())
    }

    /// Came with 1.37.
    pub(crate) fn compatibility_groups(_: &DeviceCounterConsumption) -> &[String] {
        &[]
    }

    pub(crate) fn clear_partition_type_attribute(_: &mut ResourceSliceSpec) {}

    pub(crate) fn clear_skip_node_operations(_: &mut ResourceSliceSpec) {}

    pub(crate) fn clear_compatibility_groups(_: &mut DeviceCounterConsumption) {}

    pub(crate) fn clear_node_allocatable(_: &mut Device) {}

    /// There are none.
    pub(crate) fn for_each_quantity(_: &mut Device, _: impl FnMut(&mut ApiQuantity)) {}

    /// There are none.
    pub(crate) fn clear_empty(_: &mut ResourceSliceSpec) {}
}
