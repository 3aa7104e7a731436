//! Rules on node selectors, which are those of a pod's node affinity.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement};

use crate::{
    Fault,
    names::{label_key, label_value, node_name},
};

/// What is wrong with a selector.
pub(super) fn fault(selector: &NodeSelector) -> Option<Fault> {
    let [term] = selector.node_selector_terms.as_slice() else {
        return Some(Fault::Rule("must have exactly one term"));
    };
    let labels = term.match_expressions.iter().flatten().find_map(label_fault);
    labels.or_else(|| term.match_fields.iter().flatten().find_map(field_fault))
}

fn label_fault(requirement: &NodeSelectorRequirement) -> Option<Fault> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let rule = match requirement.operator.as_str() {
        "In" | "NotIn" => values.is_empty().then_some("In and NotIn need values"),
        "Exists" | "DoesNotExist" => (!values.is_empty()).then_some("Exists and DoesNotExist take no values"),
        "Gt" | "Lt" => (values.len() != 1).then_some("Gt and Lt need exactly one value"),
        operator => {
            let rule = "is none of In, NotIn, Exists, DoesNotExist, Gt, Lt";
            return Some(Fault::Invalid { value: operator.to_owned(), rule });
        }
    };
    let key = || invalid(&requirement.key, label_key);
    let value = || values.iter().find_map(|value| invalid(value, label_value));
    rule.map(Fault::Rule).or_else(key).or_else(value)
}

fn field_fault(requirement: &NodeSelectorRequirement) -> Option<Fault> {
    if requirement.key != "metadata.name" {
        let rule = "is no field to select nodes by; only metadata.name is";
        return Some(Fault::Invalid { value: requirement.key.clone(), rule });
    }
    if !matches!(requirement.operator.as_str(), "In" | "NotIn") {
        return Some(Fault::Rule("fields are selected by In or NotIn"));
    }
    match requirement.values.as_deref().unwrap_or_default() {
        [name] => invalid(name, node_name),
        _ => Some(Fault::Rule("metadata.name needs exactly one value")),
    }
}

fn invalid(value: &str, check: fn(&str) -> Result<(), &'static str>) -> Option<Fault> {
    check(value).err().map(|rule| Fault::Invalid { value: value.to_owned(), rule })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeSelectorTerm;

    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        let values = values.iter().map(ToString::to_string).collect();
        NodeSelectorRequirement { key: key.into(), operator: operator.into(), values: Some(values) }
    }

    fn selector(term: NodeSelectorTerm) -> NodeSelector {
        NodeSelector { node_selector_terms: vec![term] }
    }

    fn labels(key: &str, operator: &str, values: &[&str]) -> bool {
        let list = Some(vec![requirement(key, operator, values)]);
        fault(&selector(NodeSelectorTerm { match_expressions: list, match_fields: None })).is_none()
    }

    fn fields(key: &str, operator: &str, values: &[&str]) -> bool {
        let list = Some(vec![requirement(key, operator, values)]);
        fault(&selector(NodeSelectorTerm { match_expressions: None, match_fields: list })).is_none()
    }

    #[test]
    fn sound_requirements_pass() {
        assert!(fault(&selector(NodeSelectorTerm::default())).is_none());
        assert!(labels("example.com/a", "In", &["x", ""]) && labels("a", "NotIn", &["x"]));
        assert!(labels("a", "Exists", &[]) && labels("a", "DoesNotExist", &[]));
        assert!(labels("a", "Gt", &["1"]) && labels("a", "Lt", &["1"]));
        assert!(fields("metadata.name", "In", &["n"]) && fields("metadata.name", "NotIn", &["n"]));
    }

    #[test]
    fn each_rule_refuses() {
        assert!(fault(&NodeSelector::default()).is_some());
        for (key, operator, values) in [
            ("a", "In", &[][..]),
            ("a", "Exists", &["x"]),
            ("a", "Gt", &["1", "2"]),
            ("a", "Equals", &["x"]),
            ("a b", "In", &["x"]),
            ("a", "In", &["x y"]),
        ] {
            assert!(!labels(key, operator, values), "{key} {operator} {values:?}");
        }
        for (key, operator, values) in [
            ("spec.unschedulable", "In", &["true"][..]),
            ("metadata.name", "Exists", &[]),
            ("metadata.name", "In", &["n", "m"]),
            ("metadata.name", "In", &["a_b"]),
        ] {
            assert!(!fields(key, operator, values), "{key} {operator} {values:?}");
        }
    }
}
