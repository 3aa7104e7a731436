//! What of a node's own resources (`cpu`, `memory`, …) a device stands for or costs.

use crate::{QualifiedName, Quantity};

/// An entry of `nodeAllocatableResources` (Kubernetes 1.37): a mapping, an overhead, or both.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct NodeAllocatable {
    /// The device itself is such a resource.
    pub mapping: Option<NodeAllocatableMapping>,
    /// What each pod that uses the device costs on top.
    pub overhead_per_pod: Option<Quantity>,
    /// What each container that uses the device costs on top.
    pub overhead_per_container: Option<Quantity>,
}

/// How much of the node's resource an allocation stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NodeAllocatableMapping {
    /// This amount for each device.
    PerDevice(Quantity),
    /// This amount for each unit of a consumed capacity.
    #[non_exhaustive]
    PerCapacity {
        /// A capacity of the device.
        capacity: QualifiedName,
        /// The amount for one unit; above zero.
        multiplier: Quantity,
    },
}

impl NodeAllocatable {
    /// The device is `amount` of the resource.
    #[must_use]
    pub fn per_device(amount: impl Into<Quantity>) -> Self {
        Self { mapping: Some(NodeAllocatableMapping::PerDevice(amount.into())), ..Self::default() }
    }

    /// Each unit consumed of `capacity` is `multiplier` of the resource.
    #[must_use]
    pub fn per_capacity(capacity: QualifiedName, multiplier: impl Into<Quantity>) -> Self {
        let multiplier = multiplier.into();
        Self {
            mapping: Some(NodeAllocatableMapping::PerCapacity { capacity, multiplier }),
            ..Self::default()
        }
    }

    /// No mapping, only an overhead for each pod and each container.
    #[must_use]
    pub fn overhead(per_pod: Option<Quantity>, per_container: Option<Quantity>) -> Self {
        Self::default().with_overhead(per_pod, per_container)
    }

    /// Sets the overhead for each pod and each container.
    #[must_use]
    pub fn with_overhead(mut self, per_pod: Option<Quantity>, per_container: Option<Quantity>) -> Self {
        self.overhead_per_pod = per_pod;
        self.overhead_per_container = per_container;
        self
    }
}
