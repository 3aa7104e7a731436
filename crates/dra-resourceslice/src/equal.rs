//! Semantic equality of slices: what the API server rewrites or fills in makes no difference.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{CounterSet, Device, DeviceTaint, ResourceSliceSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use sha2::{Digest as _, Sha256};

use crate::{compat, quantity};

/// The spec in a form in which equal contents are equal values: everything but the pool's generation and slice count.
///
/// Nil equals empty, quantities are compared by value, times by the second, and the order of devices matters.
pub(crate) fn canonical(mut spec: ResourceSliceSpec) -> ResourceSliceSpec {
    spec.pool.generation = 0;
    spec.pool.resource_slice_count = 0;
    clear_false(&mut spec.all_nodes);
    clear_false(&mut spec.per_device_node_selection);
    spec.node_name.take_if(|name| name.is_empty());
    spec.devices.iter_mut().flatten().for_each(canonical_device);
    spec.shared_counters.iter_mut().flatten().for_each(canonical_counter_set);
    spec.devices.take_if(|list| list.is_empty());
    spec.shared_counters.take_if(|list| list.is_empty());
    compat::clear_empty(&mut spec);
    spec
}

/// Stands for a content: two are equal if the contents are. A pool of 10,000 devices would take tens of megabytes for each
/// copy that is only made to be compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Of everything but the pool's generation and slice count.
    pub(crate) fn of(spec: ResourceSliceSpec) -> Self {
        let canonical = canonical(spec);
        // Writing text keys into memory cannot fail.
        let bytes = serde_json::to_vec(&canonical).unwrap_or_else(|_| format!("{canonical:?}").into_bytes());
        Self(Sha256::digest(bytes).into())
    }
}

fn canonical_device(device: &mut Device) {
    clear_false(&mut device.all_nodes);
    clear_false(&mut device.allow_multiple_allocations);
    clear_false(&mut device.binds_to_node);
    device.node_name.take_if(|name| name.is_empty());
    device.attributes.take_if(|map| map.is_empty());
    device.binding_conditions.take_if(|list| list.is_empty());
    device.binding_failure_conditions.take_if(|list| list.is_empty());
    device.taints.take_if(|list| list.is_empty());
    device.capacity.take_if(|map| map.is_empty());
    device.consumes_counters.take_if(|list| list.is_empty());
    for taint in device.taints.iter_mut().flatten() {
        taint.value.take_if(|value| value.is_empty());
    }
    for capacity in device.capacity.iter_mut().flat_map(|map| map.values_mut()) {
        canonical_quantity(&mut capacity.value);
        if let Some(policy) = &mut capacity.request_policy {
            policy.default.iter_mut().for_each(canonical_quantity);
            policy.valid_values.iter_mut().flatten().for_each(canonical_quantity);
            policy.valid_values.take_if(|list| list.is_empty());
            if let Some(range) = &mut policy.valid_range {
                canonical_quantity(&mut range.min);
                range.max.iter_mut().for_each(canonical_quantity);
                range.step.iter_mut().for_each(canonical_quantity);
            }
        }
    }
    for consumption in device.consumes_counters.iter_mut().flatten() {
        consumption.counters.values_mut().for_each(|counter| canonical_quantity(&mut counter.value));
    }
    compat::for_each_quantity(device, canonical_quantity);
}

fn canonical_counter_set(set: &mut CounterSet) {
    set.counters.values_mut().for_each(|counter| canonical_quantity(&mut counter.value));
}

fn canonical_quantity(value: &mut Quantity) {
    *value = quantity::canonical(value);
}

fn clear_false(flag: &mut Option<bool>) {
    flag.take_if(|flag| !*flag);
}

/// When taints were added, as far as the API server has said so: by device, those that have a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaintTimes {
    taints: BTreeMap<String, Vec<DeviceTaint>>,
}

impl TaintTimes {
    /// The times in a slice.
    pub(crate) fn of(spec: &ResourceSliceSpec) -> Self {
        let mut times = Self::default();
        for device in spec.devices.iter().flatten() {
            times.add(&device.name, device.taints.iter().flatten());
        }
        times
    }

    /// Adds the times of other slices; later ones win.
    pub(crate) fn extend<'a>(&mut self, others: impl IntoIterator<Item = &'a Self>) {
        for (device, taints) in others.into_iter().flat_map(|other| &other.taints) {
            self.add(device, taints);
        }
    }

    fn add<'a>(&mut self, device: &str, taints: impl IntoIterator<Item = &'a DeviceTaint>) {
        for taint in taints.into_iter().filter(|taint| taint.time_added.is_some()) {
            let known = self.taints.entry(device.to_owned()).or_default();
            known.retain(|known| !is_same_taint(known, taint));
            known.push(taint.clone());
        }
    }

    /// Gives the taints of a device the times known: where none is wished for, and where the wish is less than
    /// two seconds off, because other publishers round differently.
    pub(crate) fn adopt(&self, device: &mut Device) {
        let Some(known) = self.taints.get(&device.name) else { return };
        for taint in device.taints.iter_mut().flatten() {
            let known = known.iter().find(|known| is_same_taint(known, taint));
            let Some(known) = known.and_then(|known| known.time_added.as_ref()) else { continue };
            let wished = taint.time_added.as_ref().map(|time| time.0.as_second());
            if wished.is_none_or(|wished| wished.abs_diff(known.0.as_second()) <= 1) {
                taint.time_added = Some(known.clone());
            }
        }
    }
}

/// Whether two taints of one device are the same but for the time.
fn is_same_taint(a: &DeviceTaint, b: &DeviceTaint) -> bool {
    a.key == b.key
        && a.effect == b.effect
        && a.value.as_deref().unwrap_or_default() == b.value.as_deref().unwrap_or_default()
}
