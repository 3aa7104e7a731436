//! From the device model to the API types and back.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1 as api,
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::Time},
};

use crate::{
    AttributeValue, Capacity, CounterConsumption, CounterSet, Device, DeviceName, DevicePlacement,
    InvalidName, InvalidQuantity, NodeName, QualifiedName, Quantity, RequestPolicy, Taint, TaintEffect,
    ValidRequests,
    compat::{self, Unsupported},
    device::{SortedMap, whole_seconds},
};

/// Why a device of the API could not be read into the model.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("device {device:?} cannot be read: {field}: {reason}")]
#[non_exhaustive]
pub struct UnreadableDevice {
    /// The device's name as it stands in the API.
    pub device: String,
    /// The field at fault.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

pub(crate) fn device(model: &Device) -> Result<api::Device, Unsupported> {
    let mut device = api::Device { name: model.name.to_string(), ..Default::default() };
    device.attributes = some_map(&model.attributes, attribute)?;
    device.capacity = some_map(&model.capacity, |value| Ok(capacity(value)))?;
    device.taints = some_list(&model.taints, |value| Ok(taint(value)))?;
    device.consumes_counters = some_list(&model.consumes_counters, consumption)?;
    match &model.placement {
        Some(DevicePlacement::Node(node)) => device.node_name = Some(node.to_string()),
        Some(DevicePlacement::Selector(selector)) => device.node_selector = Some((**selector).clone()),
        Some(DevicePlacement::AllNodes) => device.all_nodes = Some(true),
        None => {}
    }
    device.binding_conditions = some_list(&model.binding_conditions, |text| Ok(text.clone()))?;
    device.binding_failure_conditions =
        some_list(&model.binding_failure_conditions, |text| Ok(text.clone()))?;
    device.binds_to_node = model.binds_to_node.then_some(true);
    device.allow_multiple_allocations = model.allow_multiple_allocations.then_some(true);
    compat::set_node_allocatable(&mut device, model)?;
    Ok(device)
}

pub(crate) fn counter_set(model: &CounterSet) -> api::CounterSet {
    api::CounterSet { name: model.name.to_string(), counters: counters(&model.counters) }
}

fn attribute(value: &AttributeValue) -> Result<api::DeviceAttribute, Unsupported> {
    let mut attribute = api::DeviceAttribute::default();
    match value {
        AttributeValue::Bool(value) => attribute.bool = Some(*value),
        AttributeValue::Int(value) => attribute.int = Some(*value),
        AttributeValue::String(value) => attribute.string = Some(value.clone()),
        AttributeValue::Version(value) => attribute.version = Some(value.clone()),
        list => compat::set_list(&mut attribute, list)?,
    }
    Ok(attribute)
}

fn capacity(value: &Capacity) -> api::DeviceCapacity {
    api::DeviceCapacity {
        value: value.value.to_api(),
        request_policy: value.request_policy.as_deref().map(request_policy),
    }
}

fn request_policy(policy: &RequestPolicy) -> api::CapacityRequestPolicy {
    let mut converted = api::CapacityRequestPolicy {
        default: policy.default.as_ref().map(Quantity::to_api),
        ..Default::default()
    };
    match &policy.valid {
        Some(ValidRequests::Values(values)) => {
            converted.valid_values = Some(values.iter().map(Quantity::to_api).collect());
        }
        Some(ValidRequests::Range { min, max, step }) => {
            converted.valid_range = Some(api::CapacityRequestPolicyRange {
                min: min.to_api(),
                max: max.as_ref().map(Quantity::to_api),
                step: step.as_ref().map(Quantity::to_api),
            });
        }
        None => {}
    }
    converted
}

fn taint(taint: &Taint) -> api::DeviceTaint {
    api::DeviceTaint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.as_str().to_owned(),
        time_added: taint.time_added.clone(),
    }
}

fn consumption(model: &CounterConsumption) -> Result<api::DeviceCounterConsumption, Unsupported> {
    let mut consumption = api::DeviceCounterConsumption {
        counter_set: model.counter_set.to_string(),
        counters: counters(&model.counters),
        ..Default::default()
    };
    let groups = model.compatibility_groups.iter().map(ToString::to_string).collect();
    compat::set_compatibility_groups(&mut consumption, groups)?;
    Ok(consumption)
}

fn counters(model: &SortedMap<DeviceName, Quantity>) -> BTreeMap<String, api::Counter> {
    model.iter().map(|(name, value)| (name.to_string(), api::Counter { value: value.to_api() })).collect()
}

fn some_map<T, U>(
    map: &SortedMap<QualifiedName, T>,
    convert: impl Fn(&T) -> Result<U, Unsupported>,
) -> Result<Option<BTreeMap<String, U>>, Unsupported> {
    let converted: BTreeMap<_, _> =
        map.iter().map(|(name, value)| Ok((name.to_string(), convert(value)?))).collect::<Result<_, _>>()?;
    Ok((!converted.is_empty()).then_some(converted))
}

fn some_list<T, U>(
    list: &[T],
    convert: impl Fn(&T) -> Result<U, Unsupported>,
) -> Result<Option<Vec<U>>, Unsupported> {
    let converted: Vec<_> = list.iter().map(convert).collect::<Result<_, _>>()?;
    Ok((!converted.is_empty()).then_some(converted))
}

/// The API type of the device, as it would be published.
///
/// # Errors
/// Names the field and the k8s-openapi feature when the linked version lacks a field that the device uses.
impl TryFrom<&Device> for api::Device {
    type Error = UnreadableDevice;

    fn try_from(model: &Device) -> Result<Self, UnreadableDevice> {
        device(model).map_err(|unsupported| UnreadableDevice {
            device: model.name.to_string(),
            field: unsupported.field.to_owned(),
            reason: format!("needs k8s-openapi feature {} or later", unsupported.since),
        })
    }
}

/// Reads a device as another driver may have published it.
impl TryFrom<&api::Device> for Device {
    type Error = UnreadableDevice;

    fn try_from(device: &api::Device) -> Result<Self, UnreadableDevice> {
        read(device).map_err(|(field, reason)| UnreadableDevice {
            device: device.name.clone(),
            field,
            reason,
        })
    }
}

type Unreadable = (String, String);

fn at<E: std::fmt::Display>(field: impl Into<String>) -> impl FnOnce(E) -> Unreadable {
    let field = field.into();
    move |error| (field, error.to_string())
}

fn read(device: &api::Device) -> Result<Device, Unreadable> {
    let mut model = Device::named(&device.name).map_err(at("name"))?;
    for (name, value) in device.attributes.iter().flatten() {
        let field = format!("attributes[{name}]");
        let key = QualifiedName::new(name.clone()).map_err(at(&field))?;
        model =
            model.attribute(key, read_attribute(value).ok_or_else(|| (field, "has no value".to_owned()))?);
    }
    for (name, value) in device.capacity.iter().flatten() {
        let field = format!("capacity[{name}]");
        let key = QualifiedName::new(name.clone()).map_err(at(&field))?;
        model = model.capacity(key, read_capacity(value).map_err(at(field))?);
    }
    for taint in device.taints.iter().flatten() {
        model.taints.push(read_taint(taint)?);
    }
    for value in device.consumes_counters.iter().flatten() {
        let field = format!("consumesCounters[{}]", value.counter_set);
        model.consumes_counters.push(read_consumption(value).map_err(at(field))?);
    }
    model.placement = read_placement(device)?;
    model.binding_conditions = device.binding_conditions.clone().unwrap_or_default();
    model.binding_failure_conditions = device.binding_failure_conditions.clone().unwrap_or_default();
    model.binds_to_node = device.binds_to_node == Some(true);
    model.allow_multiple_allocations = device.allow_multiple_allocations == Some(true);
    model.node_allocatable = compat::node_allocatable(device).map_err(at("nodeAllocatableResources"))?;
    Ok(model)
}

fn read_attribute(value: &api::DeviceAttribute) -> Option<AttributeValue> {
    let bool = value.bool.map(AttributeValue::Bool);
    let int = || value.int.map(AttributeValue::Int);
    let string = || value.string.clone().map(AttributeValue::String);
    let version = || value.version.clone().map(AttributeValue::Version);
    bool.or_else(int).or_else(string).or_else(version).or_else(|| compat::list(value))
}

fn read_capacity(value: &api::DeviceCapacity) -> Result<Capacity, InvalidQuantity> {
    let request_policy = value.request_policy.as_ref().map(read_policy).transpose()?.map(Box::new);
    Ok(Capacity { value: Quantity::try_from(&value.value)?, request_policy })
}

fn read_policy(policy: &api::CapacityRequestPolicy) -> Result<RequestPolicy, InvalidQuantity> {
    let optional = |quantity: &Option<ApiQuantity>| quantity.as_ref().map(Quantity::try_from).transpose();
    let valid = match (&policy.valid_values, &policy.valid_range) {
        (Some(values), _) => {
            Some(ValidRequests::Values(values.iter().map(Quantity::try_from).collect::<Result<_, _>>()?))
        }
        (None, Some(range)) => Some(ValidRequests::Range {
            min: Quantity::try_from(&range.min)?,
            max: optional(&range.max)?,
            step: optional(&range.step)?,
        }),
        (None, None) => None,
    };
    Ok(RequestPolicy { default: optional(&policy.default)?, valid })
}

fn read_taint(taint: &api::DeviceTaint) -> Result<Taint, Unreadable> {
    let effect = TaintEffect::from_api(&taint.effect)
        .ok_or_else(|| (format!("taints[{}].effect", taint.key), format!("{:?} is unknown", taint.effect)))?;
    let time_added = taint.time_added.as_ref().map(|time| Time(whole_seconds(time.0)));
    Ok(Taint { value: taint.value.clone(), time_added, ..Taint::new(taint.key.clone(), effect) })
}

#[derive(Debug, thiserror::Error)]
enum UnreadableCounter {
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Quantity(#[from] InvalidQuantity),
}

fn read_consumption(value: &api::DeviceCounterConsumption) -> Result<CounterConsumption, UnreadableCounter> {
    let mut model = CounterConsumption::new(&value.counter_set)?;
    for (name, counter) in &value.counters {
        model = model.counter(name, Quantity::try_from(&counter.value)?)?;
    }
    for group in compat::compatibility_groups(value) {
        model = model.compatibility_group(group)?;
    }
    Ok(model)
}

fn read_placement(device: &api::Device) -> Result<Option<DevicePlacement>, Unreadable> {
    if let Some(node) = &device.node_name {
        let node = NodeName::new(node.clone()).map_err(at("nodeName"))?;
        return Ok(Some(DevicePlacement::Node(node)));
    }
    if let Some(selector) = &device.node_selector {
        return Ok(Some(DevicePlacement::Selector(Box::new(selector.clone()))));
    }
    Ok(device.all_nodes.filter(|all| *all).map(|_| DevicePlacement::AllNodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeAllocatable;

    #[test]
    fn a_device_with_every_field_survives_the_way_to_the_api_and_back() {
        let q = |n: i64| Quantity::from(n);
        let device = Device::named("gpu-0")
            .unwrap()
            .try_attribute("b", true)
            .unwrap()
            .try_attribute("i", 7)
            .unwrap()
            .try_attribute("s", "text")
            .unwrap()
            .try_attribute("v", AttributeValue::version("1.2.3"))
            .unwrap()
            .try_attribute("example.com/list", vec![1_i64, 2])
            .unwrap()
            .try_capacity("plain", 5)
            .unwrap()
            .try_capacity(
                "ranged",
                Capacity::new(q(9)).with_policy(RequestPolicy::range(q(1), q(1), Some(q(9)), None)),
            )
            .unwrap()
            .try_capacity(
                "listed",
                Capacity::new(q(9)).with_policy(RequestPolicy::values(q(1), [q(1), q(2)])),
            )
            .unwrap()
            .taint(Taint::no_schedule("a").value("x"))
            .taint(Taint::no_execute("a").added_at(std::time::SystemTime::UNIX_EPOCH))
            .consumes(
                CounterConsumption::new("set")
                    .unwrap()
                    .counter("c", 1)
                    .unwrap()
                    .compatibility_group("g")
                    .unwrap(),
            )
            .placed(DevicePlacement::Node(NodeName::new("n").unwrap()))
            .binding_conditions(["ready"], ["broken"])
            .binds_to_node(true)
            .allow_multiple_allocations(true)
            .node_allocatable("cpu", NodeAllocatable::per_device(2).with_overhead(Some(q(1)), None))
            .node_allocatable(
                "memory",
                NodeAllocatable::per_capacity(QualifiedName::new("plain").unwrap(), 3),
            );
        let converted = api::Device::try_from(&device).unwrap();
        assert_eq!(Device::try_from(&converted), Ok(device));
    }

    #[test]
    fn a_bare_device_has_no_empty_collections() {
        let converted = api::Device::try_from(&Device::named("gpu-0").unwrap()).unwrap();
        assert_eq!(serde_json::to_value(&converted).unwrap(), serde_json::json!({ "name": "gpu-0" }));
    }

    #[test]
    fn an_unreadable_device_names_the_field() {
        let taint = api::DeviceTaint { key: "k".into(), effect: "Odd".into(), ..Default::default() };
        let device = api::Device { name: "d".into(), taints: Some(vec![taint]), ..Default::default() };
        let error = Device::try_from(&device).unwrap_err();
        assert_eq!(error.to_string(), "device \"d\" cannot be read: taints[k].effect: \"Odd\" is unknown");
    }
}
