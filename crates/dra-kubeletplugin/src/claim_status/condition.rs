//! What the API server takes as a condition (`ValidateCondition` of apimachinery, Kubernetes 1.34 to 1.37).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::InvalidStatus;

const LONGEST_TYPE_PREFIX: usize = 253;
const LONGEST_TYPE: usize = 63;
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32 * 1024;

/// The condition as the API server takes it: a message that is too long is cut.
pub(super) fn checked(mut condition: Condition) -> Result<Condition, InvalidStatus> {
    let invalid = |field, problem: String| Err(InvalidStatus { field, problem });
    if !is_type(&condition.type_) {
        let problem = format!(
            "{:?} is no name of at most {LONGEST_TYPE} letters, digits, '-', '_' and '.', with or without a domain and '/' \
             before it",
            shown(&condition.type_)
        );
        return invalid("conditions[].type", problem);
    }
    if !["True", "False", "Unknown"].contains(&condition.status.as_str()) {
        let problem = format!("{:?} is none of True, False and Unknown", shown(&condition.status));
        return invalid("conditions[].status", problem);
    }
    if condition.observed_generation.is_some_and(|generation| generation < 0) {
        return invalid("conditions[].observedGeneration", "it must not be negative".to_owned());
    }
    if !is_reason(&condition.reason) {
        let problem = format!(
            "{:?} is no reason: a letter first, then letters, digits, '_', ',' and ':', at most {LONGEST_REASON}, and no ',' \
             or ':' at the end",
            shown(&condition.reason)
        );
        return invalid("conditions[].reason", problem);
    }
    if condition.message.len() > LONGEST_MESSAGE {
        let message = &mut condition.message;
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
    }
    Ok(condition)
}

/// Enough to find it again.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A qualified name, as of a label.
fn is_type(name: &str) -> bool {
    let (domain, name) = name.split_once('/').map_or((None, name), |(domain, name)| (Some(domain), name));
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let bytes = name.as_bytes();
    let fits = bytes.len() <= LONGEST_TYPE && bytes.iter().copied().all(inner);
    fits && edge(bytes.first()) && edge(bytes.last()) && domain.is_none_or(is_domain)
}

fn is_domain(domain: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
    };
    domain.len() <= LONGEST_TYPE_PREFIX && domain.split('.').all(label)
}

/// `[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?`
fn is_reason(reason: &str) -> bool {
    let bytes = reason.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"_,:".contains(b);
    bytes.len() <= LONGEST_REASON
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::unwrap_in_result, reason = "reads better in the tests")]
    fn with(field: &str, value: &Value) -> Result<Condition, InvalidStatus> {
        let mut condition = json!({
            "type": "Ready", "status": "True", "reason": "AllWell", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        condition[field] = value.clone();
        checked(serde_json::from_value(condition).unwrap())
    }

    #[test]
    fn fields_of_a_condition_are_judged_as_the_api_server_does() {
        let good = [
            ("type", json!("gpu.example.com/Ready")),
            ("type", json!("x".repeat(63))),
            ("status", json!("Unknown")),
            ("reason", json!("A")),
            ("reason", json!("A:b,c_")),
            ("reason", json!("r".repeat(1024))),
            ("observedGeneration", json!(0)),
        ];
        for (field, value) in good {
            assert!(with(field, &value).is_ok(), "{field} {value}");
        }
        let bad = [
            ("type", json!("")),
            ("type", json!("x".repeat(64))),
            ("type", json!("-x")),
            ("type", json!("GPU/Ready")),
            ("type", json!("a/b/c")),
            ("status", json!("true")),
            ("reason", json!("")),
            ("reason", json!("not a reason")),
            ("reason", json!("1st")),
            ("reason", json!("A:")),
            ("reason", json!("r".repeat(1025))),
            ("observedGeneration", json!(-1)),
        ];
        for (field, value) in bad {
            let error = with(field, &value).unwrap_err();
            assert_eq!(error.field, format!("conditions[].{field}"));
            assert!(error.to_string().len() < 400, "{error}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_cut() {
        let message = |text: String| with("message", &json!(text)).unwrap().message;
        assert_eq!(message("m".repeat(40_000)).len(), 32 * 1024);
        assert_eq!(message("ü".repeat(16_385)).len(), 32 * 1024);
        assert_eq!(message(format!("x{}", "ü".repeat(20_000))).len(), 32 * 1024 - 1);
    }
}
