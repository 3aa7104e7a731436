//! From which nodes devices can be used.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Whether the node is selected: by one term whole.
#[must_use]
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_selects(term, node))
}

/// The selector of this one node, as the scheduler writes it for node-local devices.
pub(crate) fn only(node: &str) -> NodeSelector {
    let name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![name]), match_expressions: None };
    NodeSelector { node_selector_terms: vec![term] }
}

fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let name = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_deref()).flatten();
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    !(fields.is_empty() && labels.is_empty())
        && fields.iter().all(|requirement| holds(requirement, name(&requirement.key)))
        && labels.iter().all(|requirement| holds(requirement, label(&requirement.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = || {
        let values = requirement.values.as_deref().unwrap_or_default();
        value.is_some_and(|value| values.iter().any(|wanted| wanted == value))
    };
    // Both have to be whole numbers, and there is one to compare with.
    let compared = || match requirement.values.as_deref() {
        Some([than]) => Some((value?.parse::<i64>().ok()?, than.parse::<i64>().ok()?)),
        _ => None,
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, than)| value > than),
        "Lt" => compared().is_some_and(|(value, than)| value < than),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        let node = json!({"metadata": {"name": "node-1", "labels": {"zone": "a", "size": "3"}}});
        serde_json::from_value(node).expect("a node")
    }

    fn by_labels(requirements: &Value) -> bool {
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": requirements}]});
        selects(&serde_json::from_value(selector).expect("a selector"), &node())
    }

    #[test]
    fn a_node_is_selected_by_name_or_labels() {
        assert!(selects(&only("node-1"), &node()));
        assert!(!selects(&only("node-2"), &node()));
        for (operator, values, expected) in [
            ("In", json!(["a", "b"]), true),
            ("In", json!(["b"]), false),
            ("NotIn", json!(["b"]), true),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
            ("Gt", json!(["1"]), false),
        ] {
            let requirement = json!([{"key": "zone", "operator": operator, "values": values}]);
            assert_eq!(by_labels(&requirement), expected, "{operator}");
        }
        for (operator, than, expected) in
            [("Gt", "2", true), ("Gt", "3", false), ("Lt", "4", true), ("Lt", "3", false), ("Gt", "a", false)]
        {
            let requirement = json!([{"key": "size", "operator": operator, "values": [than]}]);
            assert_eq!(by_labels(&requirement), expected, "3 {operator} {than}");
        }
        assert!(!by_labels(&json!([])), "a term without requirements selects nothing");
    }
}
