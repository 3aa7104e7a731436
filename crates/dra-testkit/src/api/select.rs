//! Field and label selectors.

use serde_json::Value;

use super::kinds::Kind;
use super::status::ApiStatus;

/// What a list, watch or delete-collection is limited to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    namespace: Option<String>,
    fields: Vec<Term>,
    labels: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Equals(String),
    Differs(String),
    Exists,
    Missing,
}

impl Selector {
    /// Parses both selectors of a request on `kind`.
    pub(crate) fn parse(
        kind: &Kind,
        namespace: Option<&str>,
        fields: &str,
        labels: &str,
    ) -> Result<Self, ApiStatus> {
        let fields = terms(fields)?;
        for term in &fields {
            let key = term.key.as_str();
            let known =
                matches!(key, "metadata.name" | "metadata.namespace") || kind.selectable.contains(&key);
            if !known || matches!(term.test, Test::Exists | Test::Missing) {
                return Err(ApiStatus::bad_request(format!(
                    "{} cannot be selected by field {key}",
                    kind.plural
                )));
            }
        }
        Ok(Self { namespace: namespace.map(str::to_owned), fields, labels: terms(labels)? })
    }

    /// Whether it selects by this field.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.fields.iter().any(|term| term.key == field)
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let in_namespace =
            self.namespace.as_ref().is_none_or(|wanted| object["metadata"]["namespace"] == wanted.as_str());
        in_namespace
            && self.fields.iter().all(|term| {
                let value = term.key.split('.').fold(object, |at, field| &at[field]);
                // A field that is not set selects like an empty one.
                term.test.holds(Some(value.as_str().unwrap_or_default()))
            })
            && self
                .labels
                .iter()
                .all(|term| term.test.holds(object["metadata"]["labels"][&term.key].as_str()))
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Equals(wanted) => value == Some(wanted),
            Self::Differs(unwanted) => value != Some(unwanted),
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
        }
    }
}

fn terms(text: &str) -> Result<Vec<Term>, ApiStatus> {
    if text.contains(['(', ')', '<', '>']) {
        let message = format!("the stand-in knows only =, ==, !=, `key` and `!key` in selectors: {text:?}");
        return Err(ApiStatus::bad_request(message));
    }
    Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(term).collect())
}

fn term(part: &str) -> Term {
    let (key, test) = if let Some((key, value)) = part.split_once("!=") {
        (key, Test::Differs(value.trim().to_owned()))
    } else if let Some((key, value)) = part.split_once('=') {
        (key, Test::Equals(value.trim_start_matches('=').trim().to_owned()))
    } else if let Some(key) = part.strip_prefix('!') {
        (key, Test::Missing)
    } else {
        (part, Test::Exists)
    };
    Term { key: key.trim().to_owned(), test }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::kinds::by_plural;

    fn selects(fields: &str, labels: &str) -> bool {
        let slice = json!({
            "metadata": {"name": "s", "labels": {"a": "1"}},
            "spec": {"driver": "gpu.example.com", "pool": {"name": "p"}},
        });
        let kind = by_plural("resource.k8s.io", "resourceslices").expect("served");
        Selector::parse(kind, None, fields, labels).expect("valid").matches(&slice)
    }

    #[test]
    fn every_term_must_hold() {
        for (fields, labels, expected) in [
            ("", "", true),
            ("spec.driver=gpu.example.com", "", true),
            ("spec.driver==gpu.example.com,metadata.name=s", "", true),
            ("spec.driver=gpu.example.com,metadata.name=other", "", false),
            ("spec.pool.name!=p", "", false),
            ("spec.nodeName=", "", true),
            ("spec.nodeName=node-1", "", false),
            ("", "a=1", true),
            ("", "a=2", false),
            ("", "a", true),
            ("", "!a", false),
            ("", "b!=1", true),
        ] {
            assert_eq!(selects(fields, labels), expected, "{fields} {labels}");
        }
    }

    #[test]
    fn unknown_fields_and_set_selectors_are_refused() {
        let kind = by_plural("resource.k8s.io", "resourceslices").expect("served");
        for (fields, labels) in [("spec.allNodes=true", ""), ("spec.driver", ""), ("", "a in (b, c)")] {
            let refused = Selector::parse(kind, None, fields, labels).expect_err("refused");
            assert_eq!(refused.code, 400, "{fields} {labels}");
        }
    }
}
