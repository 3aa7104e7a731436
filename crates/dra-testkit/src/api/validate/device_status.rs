//! Limits of what drivers say of allocated devices in a claim's status.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, items, text};

const MAX_CONDITIONS: usize = 8;
const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;
const MAX_DATA: usize = 10 * 1024;
const MAX_IPS: usize = 16;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;

/// The entries of `status.devices`; each must belong to one of the claim's results.
pub(super) fn check(found: &mut Findings, results: &[Value], statuses: &[Value]) {
    let key =
        |value: &Value| ["driver", "pool", "device", "shareID"].map(|field| text(&value[field]).to_owned());
    for (index, status) in statuses.iter().enumerate() {
        let at = format!("status.devices[{index}]");
        if !results.iter().any(|result| key(result) == key(status)) {
            found.add(Cause::invalid(&at, "the claim has no such allocated device"));
        }
        content(found, &at, status);
    }
    let keys: Vec<String> = statuses.iter().map(|status| key(status).join("/")).collect();
    found.unique("status.devices", keys.iter().map(String::as_str));
}

fn content(found: &mut Findings, at: &str, status: &Value) {
    found.at_most(&format!("{at}.conditions"), items(&status["conditions"]).len(), MAX_CONDITIONS);
    conditions(found, &format!("{at}.conditions"), items(&status["conditions"]));
    let data = &status["data"];
    if !data.is_null() && !data.is_object() {
        found.add(Cause::invalid(format!("{at}.data"), "must be a JSON object"));
    }
    found.at_most(&format!("{at}.data"), length_in_go(data), MAX_DATA);
    let (at, network) = (format!("{at}.networkData"), &status["networkData"]);
    let length = |field: &str| text(&network[field]).len();
    found.at_most(&format!("{at}.interfaceName"), length("interfaceName"), MAX_INTERFACE_NAME);
    found.at_most(&format!("{at}.hardwareAddress"), length("hardwareAddress"), MAX_HARDWARE_ADDRESS);
    let ips = items(&network["ips"]);
    found.at_most(&format!("{at}.ips"), ips.len(), MAX_IPS);
    found.unique(&format!("{at}.ips"), ips.iter().map(text));
    for (index, ip) in ips.iter().enumerate().filter(|(_, ip)| !is_interface_address(text(ip))) {
        found.add(Cause::invalid(
            format!("{at}.ips[{index}]"),
            format!("{ip} is no address with a prefix length"),
        ));
    }
}

/// `ValidateConditions` of apimachinery.
fn conditions(found: &mut Findings, at: &str, conditions: &[Value]) {
    found.unique(at, conditions.iter().map(|condition| text(&condition["type"])));
    for (index, condition) in conditions.iter().enumerate() {
        let mut invalid = |field: &str, problem: &str| {
            found.add(Cause::invalid(format!("{at}[{index}].{field}"), problem));
        };
        if !is_qualified(text(&condition["type"])) {
            invalid("type", "must be a qualified name");
        }
        if !["True", "False", "Unknown"].contains(&text(&condition["status"])) {
            invalid("status", "must be True, False or Unknown");
        }
        if condition["observedGeneration"].as_i64().is_some_and(|generation| generation < 0) {
            invalid("observedGeneration", "must not be negative");
        }
        if text(&condition["lastTransitionTime"]).is_empty() {
            invalid("lastTransitionTime", "is required");
        }
        let reason = text(&condition["reason"]);
        if !is_reason(reason) {
            invalid("reason", "must start with a letter and consist of letters, digits, '_', ',' and ':'");
        }
        if reason.len() > MAX_REASON {
            invalid("reason", "is too long");
        }
        if text(&condition["message"]).len() > MAX_MESSAGE {
            invalid("message", "is too long");
        }
    }
}

/// `IsQualifiedName`: at most 63 characters, perhaps with a DNS subdomain and a slash before them.
fn is_qualified(name: &str) -> bool {
    let name = match name.split_once('/') {
        Some((domain, name))
            if !domain.is_empty() && domain.len() <= 253 && domain.chars().all(in_domain) =>
        {
            name
        }
        Some(_) => return false,
        None => name,
    };
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(inner)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn in_domain(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)
}

/// `[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?`
fn is_reason(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c))
}

/// How many bytes Go's JSON has for a value: `<`, `>`, `&` and two more letters are escaped, which is seen by the limit.
fn length_in_go(value: &Value) -> usize {
    let json = value.to_string();
    let escaped = json.matches(['<', '>', '&', '\u{2028}', '\u{2029}']);
    json.len() + escaped.map(|letter| "\\u003c".len() - letter.len()).sum::<usize>()
}

/// An address as Go would write it, and the length of its network's prefix.
fn is_interface_address(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let Ok(parsed) = address.parse::<std::net::IpAddr>() else { return false };
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    parsed.to_string() == address && (0..=most).any(|length: u8| length.to_string() == prefix)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_limit_is_kept_and_broken_as_at_the_real_server() {
        let data = |letter: &str, count: usize| json!({"data": {"a": letter.repeat(count)}});
        let ips = |ip: &str, count: usize| json!({"networkData": {"ips": vec![ip; count]}});
        let conditions = |count: usize, fields: &Value| {
            let one = |number: usize| {
                let mut condition = json!({
                    "type": format!("C{number}"), "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                });
                condition.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                condition
            };
            json!({"conditions": (0..count).map(one).collect::<Vec<_>>()})
        };
        let name = |length: usize| json!({"networkData": {"interfaceName": "n".repeat(length)}});
        let rows = [
            (data("x", 10_232), None),
            (data("x", 10_233), Some("status.devices[0].data")),
            (data("<", 1705), None),
            (data("<", 1706), Some("status.devices[0].data")),
            (json!({"data": [1]}), Some("status.devices[0].data")),
            (conditions(8, &json!({})), None),
            (conditions(9, &json!({})), Some("status.devices[0].conditions")),
            (conditions(1, &json!({"reason": ""})), Some("status.devices[0].conditions[0].reason")),
            (
                conditions(1, &json!({"reason": "r".repeat(1025)})),
                Some("status.devices[0].conditions[0].reason"),
            ),
            (
                conditions(1, &json!({"message": "m".repeat(32_769)})),
                Some("status.devices[0].conditions[0].message"),
            ),
            (conditions(1, &json!({"message": "m".repeat(32_768)})), None),
            (conditions(1, &json!({"type": "a b"})), Some("status.devices[0].conditions[0].type")),
            (conditions(1, &json!({"status": "true"})), Some("status.devices[0].conditions[0].status")),
            (conditions(2, &json!({"type": "Same"})), Some("status.devices[0].conditions")),
            (
                json!({"networkData": {"ips": (0..16).map(|n| format!("192.0.2.{n}/24")).collect::<Vec<_>>()}}),
                None,
            ),
            (
                json!({"networkData": {"ips": (0..17).map(|n| format!("192.0.2.{n}/24")).collect::<Vec<_>>()}}),
                Some("status.devices[0].networkData.ips"),
            ),
            (ips("192.0.2.1/24", 2), Some("status.devices[0].networkData.ips")),
            (ips("192.0.2.1/33", 1), Some("status.devices[0].networkData.ips[0]")),
            (ips("2001:db8:0::1/64", 1), Some("status.devices[0].networkData.ips[0]")),
            (name(256), None),
            (name(257), Some("status.devices[0].networkData.interfaceName")),
        ];
        for (status, field) in rows {
            let mut found = Findings::default();
            // Neither has a name, so they belong together.
            check(&mut found, &[json!({})], std::slice::from_ref(&status));
            let fields: Vec<_> = found.causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{status}");
        }
    }
}
