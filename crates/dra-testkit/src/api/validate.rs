//! The main limits of the real API server; what breaks one is refused with 422.
//!
//! Source: `pkg/apis/resource/validation` of Kubernetes 1.37. Left out are CEL expressions.

mod claim;
mod device;
mod device_status;
mod names;
mod node_allocatable;
mod node_selector;
mod policy;
mod slice;

use serde_json::Value;

use super::gates::Gates;
use super::kinds::{Kind, RESOURCE_GROUP};
use super::status::Cause;

/// What is wrong with `new`, which replaces `old` if there is one.
pub(crate) fn validate(gates: &Gates, kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut found = Findings::default();
    // Policies that have not changed are not looked at again.
    let has_new_devices = old.is_none_or(|old| old["spec"]["devices"] != new["spec"]["devices"]);
    if kind.kind == "ResourceSlice" && has_new_devices && !gates.has_fractions() {
        slice::check_rounded(&mut found, new);
    }
    metadata(&mut found, &new["metadata"]);
    match (kind.group, kind.kind) {
        (RESOURCE_GROUP, "ResourceSlice") => slice::check(&mut found, old, new),
        (RESOURCE_GROUP, "ResourceClaim") => claim::check(&mut found, old, new),
        (RESOURCE_GROUP, "ResourceClaimTemplate") => claim::check_template(&mut found, old, new),
        (RESOURCE_GROUP, "DeviceClass") => claim::check_class(&mut found, new),
        _ => {}
    }
    found.causes
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings {
    causes: Vec<Cause>,
}

impl Findings {
    fn add(&mut self, cause: Cause) {
        self.causes.push(cause);
    }

    /// A field that must be a string of the form `rule`.
    fn name(&mut self, at: &str, value: &Value, rule: impl Fn(&str) -> Result<(), String>) {
        match value.as_str() {
            None | Some("") => self.add(Cause::required(at, "must be set")),
            Some(text) => self.text(at, text, rule),
        }
    }

    fn text(&mut self, at: &str, text: &str, rule: impl Fn(&str) -> Result<(), String>) {
        if let Err(reason) = rule(text) {
            self.add(Cause::invalid(at, format!("{text:?} {reason}")));
        }
    }

    fn at_most(&mut self, at: &str, actual: usize, limit: usize) {
        if actual > limit {
            self.add(Cause::too_many(at, actual, limit));
        }
    }

    fn unique<'a>(&mut self, at: &str, values: impl IntoIterator<Item = &'a str>) {
        let mut seen = std::collections::BTreeSet::new();
        for value in values {
            if !seen.insert(value) {
                self.add(Cause::duplicate(at, value));
            }
        }
    }

    fn immutable(&mut self, at: &str, old: Option<&Value>, new: &Value) {
        if let Some(old) = old
            && old != new
        {
            self.add(Cause::invalid(at, format!("cannot be changed from {old} to {new}")));
        }
    }
}

fn metadata(found: &mut Findings, metadata: &Value) {
    found.name("metadata.name", &metadata["name"], names::dns_subdomain);
    let prefix = text(&metadata["generateName"]);
    if !prefix.is_empty() {
        // It may end with one `-`, and with nothing else that a name may not end with.
        found.text("metadata.generateName", prefix.strip_suffix('-').unwrap_or(prefix), names::dns_subdomain);
    }
    for (key, value) in entries(&metadata["labels"]) {
        found.text("metadata.labels", key, names::label_key);
        found.text(
            &format!("metadata.labels[{key}]"),
            value.as_str().unwrap_or_default(),
            names::label_value,
        );
    }
}

/// The items of a list, none if it is absent.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The entries of a map, none if it is absent.
fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The string in a field, empty if it is absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
