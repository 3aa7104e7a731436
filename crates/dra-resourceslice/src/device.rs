//! The device model: what one device offers to the scheduler.

mod attribute;
mod capacity;
mod counters;
mod node_allocatable;
mod sorted_map;
mod taint;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelector;

pub use attribute::{AttributeValue, is_semver};
pub use capacity::{Capacity, RequestPolicy, ValidRequests};
pub use counters::{CounterConsumption, CounterSet};
pub use node_allocatable::{NodeAllocatable, NodeAllocatableMapping};
pub(crate) use sorted_map::SortedMap;
pub(crate) use taint::whole_seconds;
pub use taint::{Taint, TaintEffect, UnknownTaintEffect};

use crate::{DeviceName, Feature, IfDropped, InvalidName, NodeName, QualifiedName, Quantity};

/// One device of a pool, as `spec.devices[]` of a `ResourceSlice`.
///
/// Names are checked when they are made; what depends on the whole device or its neighbours (counts, sums,
/// references) is checked by [`validate`](crate::validate).
///
/// ```
/// use dra_resourceslice::{AttributeValue, Device, Quantity, Taint};
///
/// let device = Device::named("gpu-0")?
///     .try_attribute("model", "LATEST-GPU-MODEL")?
///     .try_attribute("index", 0)?
///     .try_attribute("driverVersion", AttributeValue::version("1.0.0"))?
///     .try_capacity("memory", Quantity::parse("80Gi")?)?
///     .taint(Taint::no_schedule("example.com/unhealthy"));
/// assert_eq!(device.name().as_str(), "gpu-0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Device {
    pub(crate) name: DeviceName,
    pub(crate) attributes: SortedMap<QualifiedName, AttributeValue>,
    pub(crate) capacity: SortedMap<QualifiedName, Capacity>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) consumes_counters: Vec<CounterConsumption>,
    pub(crate) placement: Option<DevicePlacement>,
    pub(crate) binding_conditions: Vec<String>,
    pub(crate) binding_failure_conditions: Vec<String>,
    pub(crate) binds_to_node: bool,
    pub(crate) allow_multiple_allocations: bool,
    pub(crate) node_allocatable: BTreeMap<String, NodeAllocatable>,
    /// Where the driver has said it.
    pub(crate) if_dropped: BTreeMap<Feature, IfDropped>,
}

/// Where a device of a pool with [`Placement::PerDevice`](crate::Placement::PerDevice) can be used.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DevicePlacement {
    /// On this node (`nodeName`).
    Node(NodeName),
    /// On the nodes that match (`nodeSelector`, with exactly one term).
    Selector(Box<NodeSelector>),
    /// On every node (`allNodes`).
    AllNodes,
}

impl Device {
    /// A device with nothing but a name.
    pub fn new(name: DeviceName) -> Self {
        Self {
            name,
            attributes: SortedMap::new(),
            capacity: SortedMap::new(),
            taints: Vec::new(),
            consumes_counters: Vec::new(),
            placement: None,
            binding_conditions: Vec::new(),
            binding_failure_conditions: Vec::new(),
            binds_to_node: false,
            allow_multiple_allocations: false,
            node_allocatable: BTreeMap::new(),
            if_dropped: BTreeMap::new(),
        }
    }

    /// [`Device::new`] with a name that is still to be checked.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn named(name: &str) -> Result<Self, InvalidName> {
        DeviceName::new(name).map(Self::new)
    }

    /// Sets an attribute, which CEL selectors and constraints can read.
    pub fn attribute(mut self, name: QualifiedName, value: impl Into<AttributeValue>) -> Self {
        self.attributes.insert(name, value.into());
        self
    }

    /// [`Device::attribute`] with a name that is still to be checked.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a [`QualifiedName`].
    pub fn try_attribute(self, name: &str, value: impl Into<AttributeValue>) -> Result<Self, InvalidName> {
        Ok(self.attribute(QualifiedName::new(name)?, value))
    }

    /// Sets a capacity.
    pub fn capacity(mut self, name: QualifiedName, value: impl Into<Capacity>) -> Self {
        self.capacity.insert(name, value.into());
        self
    }

    /// [`Device::capacity`] with a name that is still to be checked.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a [`QualifiedName`].
    pub fn try_capacity(self, name: &str, value: impl Into<Capacity>) -> Result<Self, InvalidName> {
        Ok(self.capacity(QualifiedName::new(name)?, value))
    }

    /// Adds a taint. A taint with the same key and effect is replaced.
    pub fn taint(mut self, taint: Taint) -> Self {
        self.set_taint(taint);
        self
    }

    /// The same, in place.
    pub(crate) fn set_taint(&mut self, taint: Taint) {
        self.taints.retain(|other| !other.same_slot(&taint));
        self.taints.push(taint);
    }

    /// Adds a consumption of a counter set of the same pool.
    pub fn consumes(mut self, consumption: CounterConsumption) -> Self {
        self.consumes_counters.push(consumption);
        self
    }

    /// Says where the device can be used. Only for pools with [`Placement::PerDevice`](crate::Placement::PerDevice).
    pub fn placed(mut self, placement: DevicePlacement) -> Self {
        self.placement = Some(placement);
        self
    }

    /// Sets the conditions that must be true, and those that mean failure, before a pod is bound
    /// (`bindingConditions`, `bindingFailureConditions`). The API wants both or none.
    pub fn binding_conditions(
        mut self,
        conditions: impl IntoIterator<Item = impl Into<String>>,
        failure_conditions: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.binding_conditions = conditions.into_iter().map(Into::into).collect();
        self.binding_failure_conditions = failure_conditions.into_iter().map(Into::into).collect();
        self
    }

    /// Ties an allocation of this device to the node that was chosen for it (`bindsToNode`).
    pub fn binds_to_node(mut self, yes: bool) -> Self {
        self.binds_to_node = yes;
        self
    }

    /// Lets several requests share the device, each with a part of its capacity (`allowMultipleAllocations`).
    pub fn allow_multiple_allocations(mut self, yes: bool) -> Self {
        self.allow_multiple_allocations = yes;
        self
    }

    /// Says what of a node resource, such as `cpu`, the device stands for or costs (`nodeAllocatableResources`).
    /// Needs k8s-openapi's `v1_37`.
    pub fn node_allocatable(mut self, resource: impl Into<String>, value: NodeAllocatable) -> Self {
        self.node_allocatable.insert(resource.into(), value);
        self
    }

    /// Says what becomes of the device if the API server drops its fields of this feature, because the feature gate is
    /// off. By default a device that consumes counters or has binding conditions is left out then, and all others are
    /// kept ([`Feature::default_if_dropped`]).
    ///
    /// A GPU and its partitions exclude each other by counters, so only one of the two may stay without them:
    ///
    /// ```
    /// # use dra_resourceslice::{CounterConsumption, Device, Feature, IfDropped};
    /// let all = CounterConsumption::new("gpu-0")?.counter("memory", 8)?;
    /// let half = CounterConsumption::new("gpu-0")?.counter("memory", 4)?;
    /// let gpu = Device::named("gpu-0")?.consumes(all).if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
    /// let partition = Device::named("gpu-0-half-0")?.consumes(half);
    /// # Ok::<(), dra_resourceslice::InvalidName>(())
    /// ```
    pub fn if_dropped(mut self, feature: Feature, then: IfDropped) -> Self {
        self.if_dropped.insert(feature, then);
        self
    }

    /// Whether the device has fields of the feature and must not be published without them.
    pub(crate) fn depends_on(&self, feature: Feature) -> bool {
        let then = self.if_dropped.get(&feature).copied().unwrap_or_else(|| feature.default_if_dropped());
        let by_a_taint = feature == Feature::DeviceTaints && self.taints.iter().any(Taint::is_essential);
        by_a_taint || then == IfDropped::LeaveOut && self.uses(feature)
    }

    pub(crate) fn uses(&self, feature: Feature) -> bool {
        match feature {
            Feature::DeviceTaints => !self.taints.is_empty(),
            Feature::PartitionableDevices => !self.consumes_counters.is_empty() || self.placement.is_some(),
            Feature::DeviceBindingConditions => {
                self.binds_to_node
                    || !self.binding_conditions.is_empty()
                    || !self.binding_failure_conditions.is_empty()
            }
            Feature::ConsumableCapacity => {
                let mut policies = self.capacity.iter().map(|(_, capacity)| &capacity.request_policy);
                self.allow_multiple_allocations || policies.any(Option::is_some)
            }
            Feature::DeviceCompatibilityGroups => {
                self.consumes_counters.iter().any(|taken| !taken.compatibility_groups.is_empty())
            }
            Feature::NodeAllocatableResources => !self.node_allocatable.is_empty(),
            Feature::ListTypeAttributes => self.attributes.iter().any(|(_, value)| value.is_list()),
            Feature::FractionalCapacityRange => {
                let mut policies =
                    self.capacity.iter().filter_map(|(_, capacity)| capacity.request_policy.as_deref());
                policies.any(RequestPolicy::needs_fractions)
            }
            // Fields of the slice.
            Feature::PartitionableDevicesType | Feature::OptionalNodeOperations => false,
        }
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The attributes, in the order of their names.
    #[must_use]
    pub fn attributes(&self) -> impl ExactSizeIterator<Item = (&QualifiedName, &AttributeValue)> {
        self.attributes.iter()
    }

    /// The value of the attribute of this name.
    #[must_use]
    pub fn attribute_value(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.get(name)
    }

    /// The capacities, in the order of their names.
    #[must_use]
    pub fn capacities(&self) -> impl ExactSizeIterator<Item = (&QualifiedName, &Capacity)> {
        self.capacity.iter()
    }

    /// The taints, in order.
    pub fn taints(&self) -> &[Taint] {
        &self.taints
    }

    /// Removes the taints that the predicate does not keep.
    pub fn retain_taints(&mut self, keep: impl FnMut(&Taint) -> bool) {
        self.taints.retain(keep);
    }
}

/// A plain quantity is a capacity without a request policy.
impl From<Quantity> for Capacity {
    fn from(value: Quantity) -> Self {
        Self::new(value)
    }
}
