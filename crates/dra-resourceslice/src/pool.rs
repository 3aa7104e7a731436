//! Pools: what a driver wishes to see published.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::NodeSelector;

use crate::{CounterSet, Device, PoolName, QualifiedName};

/// Everything that a driver publishes in one scope: pools by name.
///
/// It is the whole wish. A pool that is missing from it is deleted, so an inventory that could not be read is an
/// error to handle, not an empty wish.
///
/// ```
/// use dra_resourceslice::{Device, DriverResources, PoolName};
///
/// let devices = [Device::named("gpu-0")?, Device::named("gpu-1")?];
/// let resources = DriverResources::single_pool(PoolName::new("node-1")?, devices);
/// assert_eq!(resources.pools().len(), 1);
/// # Ok::<(), dra_resourceslice::InvalidName>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct DriverResources {
    pub(crate) pools: BTreeMap<PoolName, Pool>,
}

impl DriverResources {
    /// No pools at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// One pool with these devices.
    pub fn single_pool(name: PoolName, devices: impl IntoIterator<Item = Device>) -> Self {
        Self::new().pool(name, Pool::new(devices))
    }

    /// Adds a pool, or replaces the one of that name.
    pub fn pool(mut self, name: PoolName, pool: Pool) -> Self {
        self.pools.insert(name, pool);
        self
    }

    /// The pools by name.
    #[must_use]
    pub fn pools(&self) -> &BTreeMap<PoolName, Pool> {
        &self.pools
    }
}

/// A pool of devices. It is split into slices by itself, unless made by [`Pool::from_slices`].
///
/// The order of the devices is the order in which the scheduler tries them. A clone shares the devices, so a driver can
/// keep what it publishes at no cost.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Pool {
    /// Shared by all copies.
    pub(crate) content: Arc<PoolContent>,
    pub(crate) placement: Placement,
    pub(crate) generation: i64,
}

/// The devices of a pool, still to be split, or split by the driver.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolContent {
    Whole(Slice),
    Slices(Vec<Slice>),
}

/// From which nodes the devices of a pool can be used.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Placement {
    /// From the node of the publisher's scope (`nodeName`). Only in [`Scope::node`](crate::Scope::node).
    #[default]
    Local,
    /// From every node (`allNodes`). Only in a network scope.
    AllNodes,
    /// From the nodes that match (`nodeSelector`, with exactly one term). Only in a network scope.
    Selector(Box<NodeSelector>),
    /// Each device says it itself (`perDeviceNodeSelection`). Only in a network scope.
    PerDevice,
}

impl Pool {
    /// A pool of these devices, which is split into as few slices as the API allows. Without devices it is
    /// published as one empty slice.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Self {
        Self::with_content(PoolContent::Whole(Slice::new(devices)))
    }

    /// A pool that is already split. The slices are published as they are, so one that is too long for the API refuses the
    /// pool; [`Pool::new`] splits.
    pub fn from_slices(slices: impl IntoIterator<Item = Slice>) -> Self {
        Self::with_content(PoolContent::Slices(slices.into_iter().collect()))
    }

    /// Adds counter sets for the devices to draw on. They are published in slices of their own.
    ///
    /// A pool made by [`Pool::from_slices`] gets them as one more slice.
    pub fn counter_sets(mut self, sets: impl IntoIterator<Item = CounterSet>) -> Self {
        match Arc::make_mut(&mut self.content) {
            PoolContent::Whole(slice) => slice.counter_sets.extend(sets),
            PoolContent::Slices(slices) => slices.push(Slice::counters(sets)),
        }
        self
    }

    /// Says from which nodes the pool can be used.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Makes the pool's generation at least this. It rises by itself when it must.
    pub fn at_least_generation(mut self, generation: i64) -> Self {
        self.generation = generation;
        self
    }

    /// Names the attribute that tells the kind of partition of each device (Kubernetes 1.37).
    pub fn partition_type_attribute(mut self, name: QualifiedName) -> Self {
        let name = Some(name);
        for slice in self.slices_mut() {
            slice.partition_type_attribute.clone_from(&name);
        }
        self
    }

    /// Names the kubelet's calls that the devices can do without (Kubernetes 1.37).
    pub fn skip_node_operations(mut self, operations: impl IntoIterator<Item = NodeOperation>) -> Self {
        let operations: Vec<_> = operations.into_iter().collect();
        for slice in self.slices_mut() {
            slice.skip_node_operations.clone_from(&operations);
        }
        self
    }

    fn with_content(content: PoolContent) -> Self {
        Self { content: Arc::new(content), placement: Placement::default(), generation: 0 }
    }

    /// The devices, in their order.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.slices().iter().flat_map(|slice| &slice.devices)
    }

    /// The slices that the driver has made, or the one that is still to be split.
    pub(crate) fn slices(&self) -> &[Slice] {
        match &*self.content {
            PoolContent::Whole(slice) => std::slice::from_ref(slice),
            PoolContent::Slices(slices) => slices,
        }
    }

    /// Takes devices and counter sets out. A slice that has nothing left goes too, unless it is the last one.
    pub(crate) fn retain(&mut self, mut take_out: impl FnMut(&mut Slice)) {
        self.slices_mut().iter_mut().for_each(&mut take_out);
        if let PoolContent::Slices(slices) = Arc::make_mut(&mut self.content) {
            let last = slices.last().cloned();
            slices.retain(|slice| !slice.devices.is_empty() || !slice.counter_sets.is_empty());
            if slices.is_empty() {
                slices.extend(last);
            }
        }
    }

    /// The same to be changed. This makes a copy, if there are others.
    pub(crate) fn slices_mut(&mut self) -> &mut [Slice] {
        match Arc::make_mut(&mut self.content) {
            PoolContent::Whole(slice) => std::slice::from_mut(slice),
            PoolContent::Slices(slices) => slices,
        }
    }
}

/// One slice of a pool that the driver splits itself: devices or counter sets, not both.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Slice {
    pub(crate) devices: Vec<Device>,
    pub(crate) counter_sets: Vec<CounterSet>,
    pub(crate) partition_type_attribute: Option<QualifiedName>,
    pub(crate) skip_node_operations: Vec<NodeOperation>,
}

impl Slice {
    /// The devices, in their order.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// A slice of devices.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Self {
        Self { devices: devices.into_iter().collect(), ..Self::default() }
    }

    /// A slice of counter sets.
    pub fn counters(sets: impl IntoIterator<Item = CounterSet>) -> Self {
        Self { counter_sets: sets.into_iter().collect(), ..Self::default() }
    }

    /// Names the attribute that tells the kind of partition of each device (Kubernetes 1.37).
    pub fn partition_type_attribute(mut self, name: QualifiedName) -> Self {
        self.partition_type_attribute = Some(name);
        self
    }

    /// Names the kubelet's calls that the devices can do without (Kubernetes 1.37).
    pub fn skip_node_operations(mut self, operations: impl IntoIterator<Item = NodeOperation>) -> Self {
        self.skip_node_operations = operations.into_iter().collect();
        self
    }
}

/// A call of the kubelet that a device can do without (`skipNodeOperations`, Kubernetes 1.37).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum NodeOperation {
    /// `NodePrepareResources`. The API wants unprepare to be skipped with it.
    Prepare,
    /// `NodeUnprepareResources`.
    Unprepare,
    /// Every call (`*`).
    All,
}

impl NodeOperation {
    /// The text of the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "NodePrepareResources",
            Self::Unprepare => "NodeUnprepareResources",
            Self::All => "*",
        }
    }
}
