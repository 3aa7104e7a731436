//! Rules on one device.

use std::collections::BTreeSet;

use super::{Counters, capacity, counters_fault, node_allocatable};
use crate::{
    AttributeValue, CounterConsumption, Device, DriverName, Fault, QualifiedName, compat, convert, is_semver,
    limits,
    names::{label_key, label_value},
};

/// A field of the device, and what is wrong with it.
pub(super) type FieldFault = (String, Fault);

/// Everything that the API server would refuse in the device, but for versions and the pool's placement.
pub(super) fn faults(device: &Device, counters: &Counters) -> Vec<FieldFault> {
    let mut faults = Vec::new();
    attributes(device, &mut faults);
    taints(device, &mut faults);
    consumptions(device, counters, &mut faults);
    binding_conditions(device, &mut faults);
    capacity::faults(device, &mut faults);
    node_allocatable::faults(device, &mut faults);
    if let Err(compat::Unsupported { field, since }) = convert::device(device) {
        faults.push((field.to_owned(), Fault::NotInThisVersion { needs: since }));
    }
    faults
}

/// What is wrong with a version or a list of versions.
pub(super) fn version_fault(value: &AttributeValue) -> Option<Fault> {
    let versions = match value {
        AttributeValue::Version(version) => std::slice::from_ref(version),
        AttributeValue::Versions(versions) => versions,
        _ => return None,
    };
    versions.iter().find_map(|version| {
        too_long(version).or_else(|| {
            let rule = "is not a semantic version (MAJOR.MINOR.PATCH, see AttributeValue::version_from)";
            (!is_semver(version)).then(|| Fault::Invalid { value: version.clone(), rule })
        })
    })
}

/// The attributes and capacities that have the driver's own domain and are there without it too. In an expression both are
/// `device.attributes["<driver>"].<id>`.
pub(super) fn names_with_own_domain<'a>(
    driver: &'a DriverName,
    device: &'a Device,
) -> impl Iterator<Item = &'a QualifiedName> {
    let own = |name: &&QualifiedName| name.domain() == Some(driver.as_str());
    let attributes = device.attributes.keys().filter(own);
    let attributes = attributes.filter(|name| device.attributes.get(name.id()).is_some());
    let capacities = device.capacity.keys().filter(own);
    let capacities = capacities.filter(|name| device.capacity.get(name.id()).is_some());
    attributes.chain(capacities)
}

/// A device that consumes counters must have the slice's partition type attribute, as text. In the driver's own domain
/// it may stand without the domain.
pub(super) fn partition_type_fault(
    device: &Device,
    name: Option<&QualifiedName>,
    driver: &DriverName,
) -> Option<FieldFault> {
    let name = name.filter(|_| !device.consumes_counters.is_empty())?;
    let bare = || {
        let own = name.domain() == Some(driver.as_str());
        device.attributes.iter().find(|(key, _)| own && key.as_str() == name.id()).map(|(_, value)| value)
    };
    let value = device.attributes.get(name).or_else(bare);
    let is_text = matches!(value, Some(AttributeValue::String(_)));
    let rule = "must be a text attribute, because it is the pool's partition type";
    (!is_text).then(|| (format!("attributes[{name}]"), Fault::Rule(rule)))
}

fn attributes(device: &Device, faults: &mut Vec<FieldFault>) {
    let entries = device.attributes.len() + device.capacity.len();
    let values = device.attributes.values().map(AttributeValue::value_count).sum();
    limit("attributes and capacity", entries, limits::MAX_ATTRIBUTES_AND_CAPACITIES, faults);
    limit("attributes (values)", values, limits::MAX_ATTRIBUTE_VALUES, faults);
    for (name, value) in device.attributes.iter() {
        let texts = match value {
            AttributeValue::String(text) => std::slice::from_ref(text),
            AttributeValue::Strings(texts) => texts,
            _ => &[],
        };
        let empty = value.value_count() == 0;
        let empty = empty.then_some(Fault::Rule("a list must not be empty"));
        let fault = texts.iter().find_map(|text| too_long(text)).or(empty);
        faults.extend(fault.map(|fault| (format!("attributes[{name}]"), fault)));
    }
}

fn too_long(text: &str) -> Option<Fault> {
    let limit = limits::MAX_ATTRIBUTE_LENGTH;
    (text.len() > limit).then(|| Fault::TooLong { value: text.to_owned(), limit })
}

fn taints(device: &Device, faults: &mut Vec<FieldFault>) {
    limit("taints", device.taints.len(), limits::MAX_TAINTS, faults);
    for taint in &device.taints {
        invalid("taints[].key", &taint.key, label_key, faults);
        invalid("taints[].value", taint.value.as_deref().unwrap_or_default(), label_value, faults);
    }
}

fn consumptions(device: &Device, counters: &Counters, faults: &mut Vec<FieldFault>) {
    limit("consumesCounters", device.consumes_counters.len(), limits::MAX_CONSUMED_COUNTER_SETS, faults);
    let mut sets = BTreeSet::new();
    for consumption in &device.consumes_counters {
        let field = format!("consumesCounters[{}]", consumption.counter_set);
        if !sets.insert(&consumption.counter_set) {
            faults.push((field.clone(), Fault::Duplicate { value: consumption.counter_set.to_string() }));
        }
        faults.extend(counters_fault(consumption.counters.len()).map(|fault| (field.clone(), fault)));
        references(&field, consumption, counters, faults);
        let groups = &consumption.compatibility_groups;
        let field = format!("{field}.compatibilityGroups");
        limit(&field, groups.len(), limits::MAX_COMPATIBILITY_GROUPS, faults);
        duplicates(&field, groups.iter().map(AsRef::as_ref), faults);
    }
}

fn references(
    field: &str,
    consumption: &CounterConsumption,
    counters: &Counters,
    faults: &mut Vec<FieldFault>,
) {
    let unknown = |value: &str| Fault::Unknown { value: value.to_owned() };
    let Some(known) = counters.get(&consumption.counter_set) else {
        faults.push((format!("{field}.counterSet"), unknown(consumption.counter_set.as_str())));
        return;
    };
    let missing = consumption.counters.keys().filter(|name| !known.contains(*name));
    faults.extend(missing.map(|name| (format!("{field}.counters"), unknown(name.as_str()))));
}

fn binding_conditions(device: &Device, faults: &mut Vec<FieldFault>) {
    let (conditions, failures) = (&device.binding_conditions, &device.binding_failure_conditions);
    if conditions.is_empty() != failures.is_empty() {
        let rule = "bindingConditions and bindingFailureConditions must both be set, or none";
        faults.push(("bindingConditions".to_owned(), Fault::Rule(rule)));
    }
    for (field, list) in [("bindingConditions", conditions), ("bindingFailureConditions", failures)] {
        limit(field, list.len(), limits::MAX_BINDING_CONDITIONS, faults);
        for condition in list {
            invalid(field, condition, label_key, faults);
        }
    }
    duplicates("bindingConditions", conditions.iter().chain(failures).map(String::as_str), faults);
}

fn limit(field: &str, count: usize, limit: usize, faults: &mut Vec<FieldFault>) {
    if count > limit {
        faults.push((field.to_owned(), Fault::TooMany { count, limit }));
    }
}

fn invalid(
    field: &str,
    value: &str,
    check: fn(&str) -> Result<(), &'static str>,
    faults: &mut Vec<FieldFault>,
) {
    if let Err(rule) = check(value) {
        faults.push((field.to_owned(), Fault::Invalid { value: value.to_owned(), rule }));
    }
}

fn duplicates<'a>(field: &str, values: impl Iterator<Item = &'a str>, faults: &mut Vec<FieldFault>) {
    let mut seen = BTreeSet::new();
    for value in values {
        if !seen.insert(value) {
            faults.push((field.to_owned(), Fault::Duplicate { value: value.to_owned() }));
        }
    }
}
