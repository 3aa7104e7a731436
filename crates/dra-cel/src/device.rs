//! A published device as an expression sees it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::resource::v1;
use kube_cel::cel::Value;
use serde_json::Value as Json;

use crate::domains::{Domains, NotSupported};
use crate::error::SelectorError;
use crate::{library, text};

/// A device as expressions see it: the variable `device`.
///
/// Names without a domain get the driver's name as domain. `device.attributes["some.domain"]` is an empty map for a
/// domain that the device does not have.
#[derive(Debug, Clone)]
pub struct Device {
    pub(crate) variable: Value,
    /// What `driver`, `attributes/domain/name` and `capacity/domain/name` are, for people.
    pub(crate) texts: BTreeMap<String, String>,
}

impl Device {
    /// A device of a ResourceSlice of this driver.
    ///
    /// # Errors
    /// If a version or a quantity does not parse, or an attribute has no value. The API server takes no such device.
    pub fn published(driver: &str, device: &v1::Device) -> Result<Self, SelectorError> {
        let device = serde_json::to_value(device).map_err(|error| bad("", error.to_string()))?;
        Self::from_json(driver, &device)
    }

    /// Like [`Device::published`], from a device as it stands in the JSON of a ResourceSlice. So fields work that the
    /// chosen version of `k8s-openapi` does not have.
    ///
    /// # Errors
    /// As [`Device::published`].
    pub fn from_json(driver: &str, device: &Json) -> Result<Self, SelectorError> {
        let mut texts = BTreeMap::from([("driver".to_owned(), text::quoted(driver))]);
        let mut attributes = Domains::default();
        for (name, attribute) in device["attributes"].as_object().into_iter().flatten() {
            let value = attribute_value(attribute).map_err(|reason| bad(name, reason))?;
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            attributes.insert(domain, id, value);
            texts.insert(format!("attributes/{domain}/{id}"), for_people(attribute));
        }
        let mut capacity = Domains::default();
        for (name, amount) in device["capacity"].as_object().into_iter().flatten() {
            let text = amount["value"].as_str().unwrap_or_default();
            let value = match library::quantity(text) {
                Ok(value) => value,
                Err(SelectorError::Unsupported(what)) => Value::Opaque(Arc::new(NotSupported(what))),
                Err(error) => return Err(bad(name, error.to_string())),
            };
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            capacity.insert(domain, id, value);
            texts.insert(format!("capacity/{domain}/{id}"), text.to_owned());
        }
        let fields = HashMap::from([
            ("driver", Value::from(driver)),
            ("allowMultipleAllocations", Value::Bool(device["allowMultipleAllocations"] == true)),
            ("attributes", Value::Opaque(Arc::new(attributes))),
            ("capacity", Value::Opaque(Arc::new(capacity))),
        ]);
        Ok(Self { variable: Value::Map(fields.into()), texts })
    }
}

fn bad(name: &str, reason: String) -> SelectorError {
    SelectorError::BadDevice { name: name.to_owned(), reason }
}

/// An attribute's value as an expression would have it.
fn for_people(attribute: &Json) -> String {
    let value = attribute.as_object().into_iter().flatten().find(|(_, value)| !value.is_null());
    match value {
        Some((_, Json::String(text))) => text::quoted(text),
        Some((_, value)) => value.to_string().replace('"', "'"),
        None => "nothing".into(),
    }
}

/// The one value of an attribute. Lists go before scalars, as in Kubernetes.
fn attribute_value(attribute: &Json) -> Result<Value, String> {
    let scalar = |field: &str, value: &Json| match (field, value) {
        ("int" | "ints", Json::Number(number)) => number.as_i64().map(Value::Int),
        ("bool" | "bools", Json::Bool(value)) => Some(Value::Bool(*value)),
        ("string" | "strings", Json::String(text)) => Some(Value::from(text.as_str())),
        ("version" | "versions", Json::String(text)) => library::version(text).ok(),
        _ => None,
    };
    let told = |field: &str| attribute.get(field).filter(|value| !value.is_null());
    for field in ["ints", "bools", "strings", "versions"] {
        if let Some(list) = told(field) {
            let values = list.as_array().into_iter().flatten().map(|value| scalar(field, value));
            let values: Option<Vec<Value>> = values.collect();
            return values.map(Value::from).ok_or_else(|| format!("not a list of {field}: {list}"));
        }
    }
    for field in ["int", "bool", "string", "version"] {
        if let Some(value) = told(field) {
            return scalar(field, value).ok_or_else(|| format!("not a value of kind {field}: {value}"));
        }
    }
    Err("unsupported attribute value".into())
}
