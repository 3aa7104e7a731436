//! API features whose fields an API server drops without a word when their gate is off.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::resource::v1::{Device, ResourceSliceSpec};

use crate::compat;

/// A feature gate of the API server that `ResourceSlice` fields depend on.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Feature {
    /// `devices[].taints`
    DeviceTaints,
    /// `sharedCounters`, `perDeviceNodeSelection`, and of devices `consumesCounters`, `nodeName`, `nodeSelector`
    /// and `allNodes`
    PartitionableDevices,
    /// Of devices `bindingConditions`, `bindingFailureConditions` and `bindsToNode`
    DeviceBindingConditions,
    /// Of devices `allowMultipleAllocations` and `capacity[].requestPolicy`
    ConsumableCapacity,
    /// `partitionTypeAttribute`
    PartitionableDevicesType,
    /// `skipNodeOperations`
    OptionalNodeOperations,
    /// `devices[].consumesCounters[].compatibilityGroups`
    DeviceCompatibilityGroups,
    /// `devices[].nodeAllocatableResources`
    NodeAllocatableResources,
    /// Attributes with a list value. An API server without the gate does not store less, it refuses the slice.
    ListTypeAttributes,
    /// Of request policies, amounts that are fractions and do not fit the rules once they are rounded up to whole numbers.
    /// An API server without the gate refuses the slice.
    FractionalCapacityRange,
}

impl Feature {
    /// All features that have a gate.
    pub(crate) const GATED: [Self; 10] = [
        Self::DeviceTaints,
        Self::PartitionableDevices,
        Self::DeviceBindingConditions,
        Self::ConsumableCapacity,
        Self::PartitionableDevicesType,
        Self::OptionalNodeOperations,
        Self::DeviceCompatibilityGroups,
        Self::NodeAllocatableResources,
        Self::ListTypeAttributes,
        Self::FractionalCapacityRange,
    ];

    /// Those without which an API server refuses a slice.
    pub(crate) const REFUSED: [Self; 2] = [Self::ListTypeAttributes, Self::FractionalCapacityRange];

    /// What becomes of a device whose fields are dropped, if the driver does not say.
    ///
    /// Without counters a GPU and its partitions can be allocated to different pods, and without binding conditions a
    /// pod starts before the device is there. Other fields leave a device that is less useful, but not a wrong one.
    #[must_use]
    pub fn default_if_dropped(self) -> IfDropped {
        match self {
            Self::PartitionableDevices | Self::DeviceBindingConditions | Self::FractionalCapacityRange => {
                IfDropped::LeaveOut
            }
            _ => IfDropped::Keep,
        }
    }

    /// The fields of a device, or of the slice.
    pub(crate) fn fields(self) -> &'static str {
        match self {
            Self::DeviceTaints => "taints",
            Self::PartitionableDevices => "consumesCounters",
            Self::DeviceBindingConditions => "bindingConditions",
            Self::ConsumableCapacity => "allowMultipleAllocations",
            Self::PartitionableDevicesType => "partitionTypeAttribute",
            Self::OptionalNodeOperations => "skipNodeOperations",
            Self::DeviceCompatibilityGroups => "compatibilityGroups",
            Self::NodeAllocatableResources => "nodeAllocatableResources",
            Self::ListTypeAttributes => "attributes",
            Self::FractionalCapacityRange => "capacity",
        }
    }

    /// The name of the API server's feature gate.
    #[must_use]
    pub fn gate(self) -> &'static str {
        match self {
            Self::DeviceTaints => "DRADeviceTaints",
            Self::PartitionableDevices => "DRAPartitionableDevices",
            Self::DeviceBindingConditions => "DRADeviceBindingConditions",
            Self::ConsumableCapacity => "DRAConsumableCapacity",
            Self::PartitionableDevicesType => "DRAPartitionableDevicesType",
            Self::OptionalNodeOperations => "DRAOptionalNodeOperations",
            Self::DeviceCompatibilityGroups => "DRADeviceCompatibilityGroups",
            Self::NodeAllocatableResources => "DRANodeAllocatableResources",
            Self::ListTypeAttributes => "DRAListTypeAttributes",
            Self::FractionalCapacityRange => "DRAFractionalCapacityRange",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.gate())
    }
}

/// What becomes of a device whose fields the API server drops. See [`Device::if_dropped`](crate::Device::if_dropped).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum IfDropped {
    /// It is published without these fields.
    Keep,
    /// It is not published.
    LeaveOut,
}

/// A set of features.
pub(crate) type Features = BTreeSet<Feature>;

/// The content as an API server stores it that drops these features.
pub(crate) fn without(spec: ResourceSliceSpec, features: &Features) -> ResourceSliceSpec {
    features.iter().fold(spec, |spec, &feature| stripped(spec, feature))
}

/// The features that the content needs.
pub(crate) fn used(spec: &ResourceSliceSpec) -> Features {
    // Most slices need none, and one comparison tells.
    if without(spec.clone(), &Features::from(Feature::GATED)) == *spec {
        return Features::new();
    }
    Feature::GATED.into_iter().filter(|&feature| strip(spec, feature) != *spec).collect()
}

fn strip(spec: &ResourceSliceSpec, feature: Feature) -> ResourceSliceSpec {
    stripped(spec.clone(), feature)
}

fn stripped(mut spec: ResourceSliceSpec, feature: Feature) -> ResourceSliceSpec {
    match feature {
        Feature::PartitionableDevices => {
            spec.shared_counters = None;
            spec.per_device_node_selection = None;
        }
        Feature::PartitionableDevicesType => compat::clear_partition_type_attribute(&mut spec),
        Feature::OptionalNodeOperations => compat::clear_skip_node_operations(&mut spec),
        // Nothing is left of such a device: without the policy it would be another one.
        Feature::FractionalCapacityRange => {
            spec.devices.iter_mut().for_each(|devices| devices.retain(|device| !has_fractions(device)));
        }
        _ => {}
    }
    for device in spec.devices.iter_mut().flatten() {
        strip_device(device, feature);
    }
    spec
}

fn strip_device(device: &mut Device, feature: Feature) {
    match feature {
        Feature::DeviceTaints => device.taints = None,
        Feature::PartitionableDevices => {
            device.consumes_counters = None;
            device.node_name = None;
            device.node_selector = None;
            device.all_nodes = None;
        }
        Feature::DeviceBindingConditions => {
            device.binding_conditions = None;
            device.binding_failure_conditions = None;
            device.binds_to_node = None;
        }
        Feature::ConsumableCapacity => {
            device.allow_multiple_allocations = None;
            for capacity in device.capacity.iter_mut().flat_map(|map| map.values_mut()) {
                capacity.request_policy = None;
            }
        }
        Feature::DeviceCompatibilityGroups => {
            device.consumes_counters.iter_mut().flatten().for_each(compat::clear_compatibility_groups);
        }
        Feature::NodeAllocatableResources => compat::clear_node_allocatable(device),
        Feature::ListTypeAttributes => {
            device.attributes.iter_mut().for_each(|map| map.retain(|_, value| compat::list(value).is_none()));
        }
        Feature::PartitionableDevicesType
        | Feature::OptionalNodeOperations
        | Feature::FractionalCapacityRange => {}
    }
}

fn has_fractions(device: &Device) -> bool {
    let mut policies = device.capacity.iter().flat_map(|map| map.values()).map(|value| &value.request_policy);
    policies.any(Option::is_some)
        && crate::Device::try_from(device).is_ok_and(|device| device.uses(Feature::FractionalCapacityRange))
}
