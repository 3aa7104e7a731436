//! Semantic equality of slices: what the API server rewrites or fills in makes no difference.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{CounterSet, Device, DeviceTaint, ResourceSliceSpec},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};

use sha2::{Digest as _, Sha256};

use crate::{compat, quantity};

/// Whether two specs have the same content: everything but the pool's generation and slice count.
///
/// Nil equals empty, quantities are compared by value, times by the second, and the order of devices matters.
pub(crate) fn same_content(a: &ResourceSliceSpec, b: &ResourceSliceSpec) -> bool {
    canonical(a) == canonical(b)
}

/// The spec in a form in which equal contents are equal values.
pub(crate) fn canonical(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
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
    pub(crate) fn of(spec: &ResourceSliceSpec) -> Self {
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

/// When the taints of a pool were added, as far as the API server has said so.
#[derive(Debug, Default)]
pub(crate) struct TaintTimes<'a> {
    times: BTreeMap<TaintKey<'a>, &'a Time>,
}

type TaintKey<'a> = (&'a str, &'a str, &'a str, &'a str);

impl<'a> TaintTimes<'a> {
    /// Collects the times of the specs given; later ones win.
    pub(crate) fn of(specs: impl IntoIterator<Item = &'a ResourceSliceSpec>) -> Self {
        let devices = specs.into_iter().flat_map(|spec| spec.devices.iter().flatten());
        let taints =
            devices.flat_map(|device| device.taints.iter().flatten().map(move |taint| (device, taint)));
        let times = taints.filter_map(|(device, taint)| {
            taint.time_added.as_ref().map(|time| (taint_key(&device.name, taint), time))
        });
        Self { times: times.collect() }
    }

    /// Whether no times are known.
    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Gives the taints of a device the times known: where none is wished for, and where the wish is less than
    /// two seconds off, because other publishers round differently.
    pub(crate) fn adopt(&self, device: &mut Device) {
        for taint in device.taints.iter_mut().flatten() {
            let Some(&known) = self.times.get(&taint_key(&device.name, taint)) else { continue };
            let wished = taint.time_added.as_ref().map(|time| time.0.as_second());
            if wished.is_none_or(|wished| wished.abs_diff(known.0.as_second()) <= 1) {
                taint.time_added = Some(known.clone());
            }
        }
    }
}

fn taint_key<'a>(device: &'a str, taint: &'a DeviceTaint) -> TaintKey<'a> {
    (device, &taint.key, taint.value.as_deref().unwrap_or_default(), &taint.effect)
}

/// The spec with the taint times of another one adopted.
pub(crate) fn with_times_of(spec: &ResourceSliceSpec, stored: &ResourceSliceSpec) -> ResourceSliceSpec {
    let times = TaintTimes::of([stored]);
    let mut spec = spec.clone();
    spec.devices.iter_mut().flatten().for_each(|device| times.adopt(device));
    spec
}
