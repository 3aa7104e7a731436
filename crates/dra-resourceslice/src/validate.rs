//! The API server's rules, checked before anything is sent.
//!
//! The API server refuses a whole slice for one odd value, and a missing slice makes the whole pool unusable.
//! So what it would refuse is found here and left out, and the rest is published.

mod capacity;
mod device;
mod node_allocatable;
mod node_selector;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Consequence, CounterSet, Device, DeviceName, DriverName, DriverResources, Fault, NodeOperation,
    Placement, Pool, PoolName, Problem, Scope, Slice, Subject, limits, pool::PoolContent, split,
};

/// All problems of a wish: what [`Publisher::publish`](crate::Publisher::publish) would leave out, and why.
///
/// ```
/// use dra_resourceslice::{Device, DriverName, DriverResources, NodeName, PoolName, Scope, validate};
///
/// let scope = Scope::node(DriverName::new("gpu.example.com")?, NodeName::new("node-1")?);
/// let device = Device::named("gpu-0")?.try_attribute("model", "X".repeat(65))?;
/// let problems = validate(&scope, &DriverResources::single_pool(PoolName::new("node-1")?, [device]));
/// assert_eq!(problems[0].field, "attributes[model]");
/// # Ok::<(), dra_resourceslice::InvalidName>(())
/// ```
#[must_use]
pub fn validate(scope: &Scope, resources: &DriverResources) -> Vec<Problem> {
    resources.pools.iter().flat_map(|(name, pool)| checked(scope, name, pool).1).collect()
}

/// The pool without what the API server would refuse, or nothing if the pool as a whole is at fault.
pub(crate) fn checked(scope: &Scope, name: &PoolName, pool: &Pool) -> (Option<Pool>, Vec<Problem>) {
    let mut check = Check { pool: name, problems: Vec::new() };
    check.pool_rules(scope, pool);
    let (pool, counters) = check.counter_sets(pool);
    let pool = check.devices(scope.driver(), pool, &counters);
    check.slices(&pool);
    let refused = check.problems.iter().any(|problem| problem.consequence == Consequence::PoolRefused);
    ((!refused).then_some(pool), check.problems)
}

/// Counters by the name of their set.
type Counters = BTreeMap<DeviceName, BTreeSet<DeviceName>>;

/// What is published of a device.
enum Verdict {
    Good,
    /// It, without some of its attributes.
    Reduced(Box<Device>),
    LeftOut,
}

struct Check<'a> {
    pool: &'a PoolName,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn report(&mut self, subject: Subject, field: impl Into<String>, fault: Fault, consequence: Consequence) {
        self.problems.push(Problem {
            pool: self.pool.clone(),
            subject,
            field: field.into(),
            fault,
            consequence,
        });
    }

    fn refuse_pool(&mut self, field: &str, rule: &'static str) {
        self.report(Subject::Pool, field, Fault::Rule(rule), Consequence::PoolRefused);
    }

    fn pool_rules(&mut self, scope: &Scope, pool: &Pool) {
        match (&pool.placement, scope.node_name()) {
            (Placement::Local, None) => self.refuse_pool(
                "placement",
                "a pool of a network scope needs all nodes, a node selector or a placement per device",
            ),
            (Placement::AllNodes | Placement::Selector(_) | Placement::PerDevice, Some(_)) => {
                self.refuse_pool("placement", "a pool of a node's scope is local to the node");
            }
            (Placement::Selector(selector), None) => {
                if let Some(fault) = node_selector::fault(selector) {
                    self.report(Subject::Pool, "nodeSelector", fault, Consequence::PoolRefused);
                }
            }
            _ => {}
        }
        if scope.pool_name().is_some_and(|only| only != self.pool) {
            self.refuse_pool("name", "the scope is that of another pool");
        }
        if pool.generation < 0 {
            self.refuse_pool("generation", "must not be negative");
        }
    }

    /// Takes out the counter sets at fault and returns what the others have.
    fn counter_sets(&mut self, pool: &Pool) -> (Pool, Counters) {
        let mut counters = Counters::new();
        let mut verdicts = Vec::new();
        for set in pool.slices().iter().flat_map(|slice| &slice.counter_sets) {
            let fault = counter_set_fault(set, &counters);
            verdicts.push(fault.is_none());
            match fault {
                Some((field, fault)) => {
                    let subject = Subject::CounterSet(set.name.to_string());
                    self.report(subject, field, fault, Consequence::CounterSetLeftOut);
                }
                None => {
                    counters.insert(set.name.clone(), set.counters.keys().cloned().collect());
                }
            }
        }
        let mut pool = pool.clone();
        // A pool without faults is shared, not copied.
        if verdicts.contains(&false) {
            let mut verdicts = verdicts.into_iter();
            for slice in pool.slices_mut() {
                slice.counter_sets.retain(|_| verdicts.next() == Some(true));
            }
        }
        (pool, counters)
    }

    /// Takes out the devices and attributes at fault.
    fn devices(&mut self, driver: &DriverName, mut pool: Pool, counters: &Counters) -> Pool {
        let per_device = matches!(pool.placement, Placement::PerDevice);
        let mut names = BTreeSet::new();
        let mut verdicts = Vec::new();
        for slice in pool.slices() {
            for device in &slice.devices {
                let left = self.attributes(driver, device);
                let device = left.as_ref().unwrap_or(device);
                let mut faults = device::faults(device, counters);
                faults.extend(placement_fault(device, per_device));
                let partition_type = slice.partition_type_attribute.as_ref();
                faults.extend(device::partition_type_fault(device, partition_type, driver));
                if !names.insert(device.name.clone()) {
                    faults.push(("name".to_owned(), Fault::Duplicate { value: device.name.to_string() }));
                }
                let good = faults.is_empty();
                for (field, fault) in faults {
                    let subject = Subject::Device(device.name.to_string());
                    self.report(subject, field, fault, Consequence::DeviceLeftOut);
                }
                verdicts.push(match (good, left) {
                    (false, _) => Verdict::LeftOut,
                    (true, None) => Verdict::Good,
                    (true, Some(left)) => Verdict::Reduced(Box::new(left)),
                });
            }
        }
        // A pool without faults is shared, not copied.
        if !verdicts.iter().all(|verdict| matches!(verdict, Verdict::Good)) {
            let mut verdicts = verdicts.into_iter();
            for slice in pool.slices_mut() {
                slice.devices.retain_mut(|device| match verdicts.next() {
                    Some(Verdict::Good) => true,
                    Some(Verdict::Reduced(left)) => {
                        *device = *left;
                        true
                    }
                    Some(Verdict::LeftOut) | None => false,
                });
            }
        }
        pool
    }

    /// Takes out versions that are not semantic ones, and attributes and capacities that are there with and without the
    /// driver's domain. Drivers tend to have the same odd version on every device, and leaving out the devices would leave
    /// the node with none. Nothing is returned if there are none of them.
    fn attributes(&mut self, driver: &DriverName, device: &Device) -> Option<Device> {
        let faults = device
            .attributes
            .iter()
            .filter_map(|(key, value)| device::version_fault(value).map(|fault| (key, fault)));
        let twice = device::names_with_own_domain(driver, device).map(|key| {
            (
                key,
                Fault::Rule(
                    "is there without the driver's domain too, and selectors cannot tell the two apart",
                ),
            )
        });
        let faults: BTreeMap<_, _> = faults.chain(twice).collect();
        let mut left = None;
        for (key, fault) in faults {
            let left = left.get_or_insert_with(|| device.clone());
            let field = if left.attributes.contains_key(key) { "attributes" } else { "capacity" };
            left.attributes.remove(key);
            left.capacity.remove(key);
            let subject = Subject::Device(device.name.to_string());
            self.report(subject, format!("{field}[{key}]"), fault, Consequence::AttributeLeftOut);
        }
        left
    }

    /// Rules on the slices as a whole, of which only those bind that the driver made itself.
    fn slices(&mut self, pool: &Pool) {
        let whole = matches!(*pool.content, PoolContent::Whole(_));
        for (index, slice) in pool.slices().iter().enumerate() {
            let subject = if whole { Subject::Pool } else { Subject::Slice(index) };
            for (field, fault) in slice_faults(slice, whole) {
                self.report(subject.clone(), field, fault, Consequence::PoolRefused);
            }
        }
    }
}

fn counter_set_fault(set: &CounterSet, seen: &Counters) -> Option<(&'static str, Fault)> {
    if seen.contains_key(&set.name) {
        return Some(("name", Fault::Duplicate { value: set.name.to_string() }));
    }
    counters_fault(set.counters.len()).map(|fault| ("counters", fault))
}

/// A set, or a consumption of one, has 1 to 32 counters.
fn counters_fault(count: usize) -> Option<Fault> {
    match count {
        0 => Some(Fault::Rule("must have at least one counter")),
        count if count > limits::MAX_COUNTERS => Some(Fault::TooMany { count, limit: limits::MAX_COUNTERS }),
        _ => None,
    }
}

fn placement_fault(device: &Device, per_device: bool) -> Option<(String, Fault)> {
    use crate::DevicePlacement::Selector;
    let fault = match (&device.placement, per_device) {
        (None, true) => Fault::Rule("must be set, because the pool's placement is per device"),
        (Some(_), false) => Fault::Rule("must not be set, because the pool's placement is not per device"),
        (Some(Selector(selector)), true) => node_selector::fault(selector)?,
        _ => return None,
    };
    Some(("placement".to_owned(), fault))
}

fn slice_faults(slice: &Slice, whole: bool) -> Vec<(&'static str, Fault)> {
    let mut faults = Vec::new();
    if !whole {
        let limit = split::max_devices(slice.devices.iter().any(split::is_advanced));
        if slice.devices.len() > limit {
            faults.push(("devices", Fault::TooMany { count: slice.devices.len(), limit }));
        }
        if slice.counter_sets.len() > limits::MAX_COUNTER_SETS {
            let count = slice.counter_sets.len();
            faults.push(("sharedCounters", Fault::TooMany { count, limit: limits::MAX_COUNTER_SETS }));
        }
        if !slice.devices.is_empty() && !slice.counter_sets.is_empty() {
            faults.push(("sharedCounters", Fault::Rule("must not be in one slice with devices")));
        }
    }
    if slice.partition_type_attribute.as_ref().is_some_and(|name| name.domain().is_none()) {
        let rule = "must have a domain in front, such as \"example.com/\"";
        faults.push(("partitionTypeAttribute", Fault::Rule(rule)));
    }
    faults.extend(skip_fault(&slice.skip_node_operations).map(|fault| ("skipNodeOperations", fault)));
    faults
}

fn skip_fault(operations: &[NodeOperation]) -> Option<Fault> {
    let unique: BTreeSet<_> = operations.iter().collect();
    if unique.len() < operations.len() {
        return Some(Fault::Rule("must not name an operation twice"));
    }
    let has = |operation| operations.contains(&operation);
    let prepare_alone =
        has(NodeOperation::Prepare) && !has(NodeOperation::Unprepare) && !has(NodeOperation::All);
    prepare_alone.then_some(Fault::Rule("skipping prepare needs unprepare to be skipped too"))
}
