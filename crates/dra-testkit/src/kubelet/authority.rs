//! The `:authority` with which the kubelet calls a registration socket.
//!
//! The kubelet (1.34 to 1.37) dials that socket by its bare path, and grpc-go then sends the percent-encoded path
//! as authority. HTTP servers that check the authority, such as h2, refuse `%` unless an `@` follows it.

use http::uri::Authority;

/// What grpc-go leaves as it is, besides letters and digits.
const KEPT: &[u8] = b"-_.~!$&'()*+,;=:[]@";

/// The authority that grpc-go sends for a socket at this path.
pub(super) fn encode(path: &str) -> String {
    let encoded = path.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || KEPT.contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

/// The authority for this path as a server's HTTP library reads it, or `None` if it refuses it.
///
/// `None` also for what grpc-go takes for a URL with a query, a fragment or an escape: it then dials another path.
pub(super) fn accepted(path: &str) -> Option<Authority> {
    if path.contains(['?', '#', '%']) {
        return None;
    }
    Authority::try_from(encode(path)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_odd_letters_are_encoded_and_the_at_sign_is_not() {
        for (path, authority) in [
            ("/var/lib/a.sock", "%2Fvar%2Flib%2Fa.sock"),
            ("/a b/uid@gpu-reg.sock", "%2Fa%20b%2Fuid@gpu-reg.sock"),
            ("/ä:1/~x_y", "%2F%C3%A4:1%2F~x_y"),
        ] {
            assert_eq!(encode(path), authority);
        }
    }

    #[test]
    fn only_an_at_sign_after_the_last_escape_is_accepted() {
        for (path, fits) in [
            ("/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock", false),
            ("/var/lib/kubelet/plugins_registry/dra@gpu.example.com-reg.sock", true),
            ("/var/lib/kube@let/plugins_registry/gpu.example.com-reg.sock", false),
            ("/var/lib/kube@let/plugins_registry/dra@gpu.example.com-reg.sock", true),
            ("/var/lib/my kubelet/dra@gpu.example.com-reg.sock", true),
            ("/var/lib/kubelet/dra@gpu example.sock", false),
            ("/var/lib/kubelet/dra@gpu?x.sock", false),
        ] {
            assert_eq!(accepted(path).is_some(), fits, "{path}");
        }
    }
}
