//! Shared counters: how partitions of one device exclude each other.

use super::SortedMap;
use crate::{DeviceName, InvalidName, Quantity};

/// A named set of counters that devices of the same pool draw on (`spec.sharedCounters[]`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct CounterSet {
    pub(crate) name: DeviceName,
    pub(crate) counters: SortedMap<DeviceName, Quantity>,
}

impl CounterSet {
    /// A set without counters. Its name is a DNS label, unique in the pool.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        Ok(Self { name: DeviceName::new(name)?, counters: SortedMap::new() })
    }

    /// Adds a counter and its total.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn counter(mut self, name: &str, total: impl Into<Quantity>) -> Result<Self, InvalidName> {
        self.counters.insert(DeviceName::new(name)?, total.into());
        Ok(self)
    }

    /// The set's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

/// What one device takes of a counter set when it is allocated (`consumesCounters[]`).
///
/// ```
/// use dra_resourceslice::{CounterConsumption, CounterSet, Device};
///
/// let gpu = CounterSet::new("gpu-0")?.counter("memory-slices", 8)?;
/// let half = Device::named("gpu-0-half-0")?
///     .consumes(CounterConsumption::new("gpu-0")?.counter("memory-slices", 4)?);
/// # Ok::<(), dra_resourceslice::InvalidName>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct CounterConsumption {
    pub(crate) counter_set: DeviceName,
    pub(crate) counters: SortedMap<DeviceName, Quantity>,
    pub(crate) compatibility_groups: Vec<DeviceName>,
}

impl CounterConsumption {
    /// Draws on the counter set of this name.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn new(counter_set: &str) -> Result<Self, InvalidName> {
        Ok(Self {
            counter_set: DeviceName::new(counter_set)?,
            counters: SortedMap::new(),
            compatibility_groups: Vec::new(),
        })
    }

    /// Takes this amount of a counter.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn counter(mut self, name: &str, amount: impl Into<Quantity>) -> Result<Self, InvalidName> {
        self.counters.insert(DeviceName::new(name)?, amount.into());
        Ok(self)
    }

    /// Adds a compatibility group: devices that draw on one set are allocated together only if they all have a
    /// group in common. Needs k8s-openapi's `v1_37`.
    ///
    /// # Errors
    /// [`InvalidName`] when the name is not a DNS label.
    pub fn compatibility_group(mut self, name: &str) -> Result<Self, InvalidName> {
        self.compatibility_groups.push(DeviceName::new(name)?);
        Ok(self)
    }
}
