//! `device.attributes` and `device.capacity`: a map by domain in which each domain is found.

use std::collections::BTreeMap;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Map, Opaque};

/// Names and values by domain. A domain that is not there reads as an empty map, but `in` does not see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Domains {
    by_domain: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Domains {
    pub(crate) fn insert(&mut self, domain: &str, name: &str, value: Value) {
        self.by_domain.entry(domain.to_owned()).or_default().insert(name.to_owned(), value);
    }

    pub(crate) fn contains(&self, domain: &str) -> bool {
        self.by_domain.contains_key(domain)
    }

    /// The names and values of a domain.
    pub(crate) fn get(&self, domain: &str) -> Value {
        self.by_domain.get(domain).map_or_else(|| map(&BTreeMap::new()), map)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.by_domain.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_domain.len()
    }

    /// An ordinary map with the same content.
    pub(crate) fn to_map(&self) -> Value {
        map(&self.by_domain.iter().map(|(domain, values)| (domain.clone(), map(values))).collect())
    }
}

impl Opaque for Domains {
    fn runtime_type_name(&self) -> &'static str {
        "map"
    }
}

/// A value that this crate cannot compute with: what it is, for people. Only an expression that reads it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotSupported(pub(crate) String);

impl Opaque for NotSupported {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

fn map(values: &BTreeMap<String, Value>) -> Value {
    let entries = values.iter().map(|(name, value)| (name.as_str().into(), value.clone()));
    Value::Map(Map { map: std::sync::Arc::new(entries.collect()) })
}
