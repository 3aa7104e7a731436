//! Limits of a node selector.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, items, names, text};

/// Checks the terms; how many there may be is the caller's affair.
pub(super) fn check(found: &mut Findings, at: &str, selector: &Value) {
    let terms = items(&selector["nodeSelectorTerms"]);
    if terms.is_empty() {
        found.add(Cause::required(format!("{at}.nodeSelectorTerms"), "must not be empty"));
    }
    for (index, term) in terms.iter().enumerate() {
        let at = format!("{at}.nodeSelectorTerms[{index}]");
        for requirement in items(&term["matchExpressions"]) {
            label(found, &format!("{at}.matchExpressions"), requirement);
        }
        for requirement in items(&term["matchFields"]) {
            field(found, &format!("{at}.matchFields"), requirement);
        }
    }
}

fn label(found: &mut Findings, at: &str, requirement: &Value) {
    let values = items(&requirement["values"]);
    let fits = match text(&requirement["operator"]) {
        "In" | "NotIn" => !values.is_empty(),
        "Exists" | "DoesNotExist" => values.is_empty(),
        "Gt" | "Lt" => values.len() == 1,
        _ => false,
    };
    if !fits {
        found.add(Cause::invalid(at, format!("operator and values do not fit: {requirement}")));
    }
    found.text(at, text(&requirement["key"]), names::label_key);
    for value in values {
        found.text(at, text(value), names::label_value);
    }
}

fn field(found: &mut Findings, at: &str, requirement: &Value) {
    let values = items(&requirement["values"]);
    if !matches!(text(&requirement["operator"]), "In" | "NotIn") || values.len() != 1 {
        found.add(Cause::invalid(at, format!("must be In or NotIn with one value: {requirement}")));
    }
    if requirement["key"] != "metadata.name" {
        found.add(Cause::invalid(at, "only metadata.name can be selected by"));
    }
    for value in values {
        found.text(at, text(value), names::dns_subdomain);
    }
}
