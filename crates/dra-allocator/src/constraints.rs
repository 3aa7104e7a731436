//! Constraints between the devices of a claim: `matchAttribute` and `distinctAttribute`.

use std::collections::BTreeSet;

use crate::model::{self, Device};

/// The attributes that constraints of the claim compare and the device lacks.
pub(crate) fn lacking(
    constraints: &[model::Constraint],
    driver: &str,
    device: &Device,
    request: &str,
    alternative: &str,
) -> impl Iterator<Item = String> {
    let concerns = |constraint: &&model::Constraint| {
        let named = |name: &String| name == request || name == alternative;
        constraint.requests.is_empty() || constraint.requests.iter().any(named)
    };
    let attribute = |constraint: &model::Constraint| {
        constraint.match_attribute.clone().or_else(|| constraint.distinct_attribute.clone())
    };
    let attributes = constraints.iter().filter(concerns).filter_map(attribute);
    let lacking: Vec<String> = attributes.filter(|name| values(driver, device, name).is_none()).collect();
    lacking.into_iter()
}

/// The values of an attribute with their kind, such as `int 1`. A scalar is a list with one element.
type Values = BTreeSet<String>;

/// A constraint and what it has seen so far.
#[derive(Debug, Clone)]
pub(crate) struct Constraint {
    requests: Vec<String>,
    attribute: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// What all devices so far have in common.
    Match(Option<Values>),
    /// What each device so far has.
    Distinct(Vec<Values>),
}

impl Constraint {
    /// None if the constraint is of a kind that is not known.
    pub(crate) fn new(constraint: &model::Constraint) -> Option<Self> {
        let (attribute, kind) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (attribute, Kind::Match(None)),
            (None, Some(attribute)) => (attribute, Kind::Distinct(Vec::new())),
            (None, None) => return None,
        };
        Some(Self { requests: constraint.requests.clone(), attribute: attribute.clone(), kind })
    }

    /// The constraint with this device too, or none if it does not go with those before. `request` is the request's name,
    /// `alternative` that of the chosen alternative: `request/alternative`.
    pub(crate) fn with(
        &self,
        driver: &str,
        device: &Device,
        request: &str,
        alternative: &str,
    ) -> Option<Self> {
        let concerned = |name: &String| name == request || name == alternative;
        if !self.requests.is_empty() && !self.requests.iter().any(concerned) {
            return Some(self.clone());
        }
        let values = values(driver, device, &self.attribute)?;
        let kind = match &self.kind {
            Kind::Match(None) => Kind::Match(Some(values)),
            Kind::Match(Some(common)) => {
                let common: Values = common.intersection(&values).cloned().collect();
                if common.is_empty() {
                    return None;
                }
                Kind::Match(Some(common))
            }
            Kind::Distinct(seen) => {
                if seen.iter().any(|others| !others.is_disjoint(&values)) {
                    return None;
                }
                Kind::Distinct(seen.iter().cloned().chain([values]).collect())
            }
        };
        Some(Self { kind, ..self.clone() })
    }
}

/// The device's values of an attribute with this full name. The driver's own may be published without a domain.
fn values(driver: &str, device: &Device, name: &str) -> Option<Values> {
    let short = name.split_once('/').filter(|(domain, _)| *domain == driver).map(|(_, id)| id);
    let attribute = device.attributes.get(name).or_else(|| device.attributes.get(short?))?;
    // Lists go before scalars, as in the scheduler.
    for kind in ["int", "bool", "string", "version"] {
        let list = attribute.get(&format!("{kind}s")).and_then(|list| list.as_array());
        if let Some(list) = list.filter(|list| !list.is_empty()) {
            return Some(list.iter().map(|value| format!("{kind} {value}")).collect());
        }
    }
    let (kind, value) = attribute.iter().find(|(_, value)| !value.is_null() && !value.is_array())?;
    Some(BTreeSet::from([format!("{kind} {value}")]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// How many of the devices with these attributes go together, in this order.
    fn fitting(constraint: &Value, attributes: &[Value]) -> usize {
        let constraint = serde_json::from_value(constraint.clone()).expect("a constraint");
        let mut constraint = Constraint::new(&constraint).expect("a known one");
        for (count, attributes) in attributes.iter().enumerate() {
            let device = json!({"name": "x", "attributes": attributes});
            let device = serde_json::from_value(device).expect("a device");
            match constraint.with("d.example.com", &device, "gpu", "gpu/large") {
                Some(next) => constraint = next,
                None => return count,
            }
        }
        attributes.len()
    }

    #[test]
    fn devices_match_in_an_attribute_or_differ_in_it() {
        let int = |value: i64| json!({"numa": {"int": value}});
        let ints = |values: &[i64]| json!({"d.example.com/numa": {"ints": values}});
        let matching = json!({"matchAttribute": "d.example.com/numa"});
        let distinct = json!({"distinctAttribute": "d.example.com/numa"});
        for (devices, by_match, by_distinct) in [
            (vec![int(0), int(0), int(1)], 2, 1),
            (vec![int(0), int(1)], 1, 2),
            (vec![int(0), ints(&[0, 1]), ints(&[1])], 2, 1),
            (vec![ints(&[0, 1]), ints(&[1, 2]), int(1)], 3, 1),
            (vec![int(0), json!({"numa": {"string": "0"}})], 1, 2),
            (vec![json!({}), int(0)], 0, 0),
            (vec![json!({"other.example.com/numa": {"int": 0}})], 0, 0),
        ] {
            assert_eq!(fitting(&matching, &devices), by_match, "{devices:?}");
            assert_eq!(fitting(&distinct, &devices), by_distinct, "{devices:?}");
        }
    }

    #[test]
    fn a_constraint_concerns_the_requests_that_it_names() {
        for (requests, expected) in
            [(json!([]), 1), (json!(["gpu"]), 1), (json!(["gpu/large"]), 1), (json!(["gpu/small", "nic"]), 2)]
        {
            let constraint = json!({"matchAttribute": "d.example.com/numa", "requests": requests});
            let devices = [json!({"numa": {"int": 0}}), json!({"numa": {"int": 1}})];
            assert_eq!(fitting(&constraint, &devices), expected, "{requests}");
        }
    }
}
