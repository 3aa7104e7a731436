//! Limits of what drivers say of allocated devices in a claim's status.

use serde_json::Value;

use super::super::status::Cause;
use super::{Findings, items, text};

const MAX_CONDITIONS: usize = 8;
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
    for (index, ip) in ips.iter().enumerate().filter(|(_, ip)| !is_interface_address(text(ip))) {
        found.add(Cause::invalid(
            format!("{at}.ips[{index}]"),
            format!("{ip} is no address with a prefix length"),
        ));
    }
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
        let name = |length: usize| json!({"networkData": {"interfaceName": "n".repeat(length)}});
        let rows = [
            (data("x", 10_232), None),
            (data("x", 10_233), Some("status.devices[0].data")),
            (data("<", 1705), None),
            (data("<", 1706), Some("status.devices[0].data")),
            (json!({"data": [1]}), Some("status.devices[0].data")),
            (json!({"conditions": vec![json!({}); 8]}), None),
            (json!({"conditions": vec![json!({}); 9]}), Some("status.devices[0].conditions")),
            (ips("192.0.2.1/24", 16), None),
            (ips("192.0.2.1/24", 17), Some("status.devices[0].networkData.ips")),
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
