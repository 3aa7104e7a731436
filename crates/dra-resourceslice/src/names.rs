//! Checked names. A name is parsed once, where it enters the program; every later use needs no check.

use std::{borrow::Borrow, fmt, str::FromStr};

/// Why a string is not a valid name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid {kind} {value:?}: {reason}")]
#[non_exhaustive]
pub struct InvalidName {
    /// Which kind of name was being parsed, such as "driver name".
    pub kind: &'static str,
    /// The input that was refused.
    pub value: String,
    /// The rule that the input breaks.
    pub reason: &'static str,
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:expr, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Deserialize, serde::Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The greatest length in bytes.
            pub const MAX_LEN: usize = $max;

            /// Checks a string and takes it over.
            ///
            /// # Errors
            /// [`InvalidName`] says which rule the string breaks.
            pub fn new(value: impl Into<String>) -> Result<Self, InvalidName> {
                let value = value.into();
                match $check(&value) {
                    Ok(()) => Ok(Self(value.into_boxed_str())),
                    Err(reason) => Err(InvalidName { kind: $kind, value, reason }),
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(value: String) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;

            fn try_from(value: &str) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(value: &str) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into_string()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name_type!(
    /// The name of a DRA driver: a DNS subdomain of at most 63 bytes, in lower case.
    ///
    /// The API server would take upper case with a warning; the kubelet and CDI compare names byte by byte,
    /// so this type does not.
    ///
    /// ```
    /// use dra_resourceslice::DriverName;
    ///
    /// assert_eq!(DriverName::new("gpu.example.com")?.as_str(), "gpu.example.com");
    /// assert!(DriverName::new("GPU.example.com").is_err());
    /// # Ok::<(), dra_resourceslice::InvalidName>(())
    /// ```
    DriverName,
    "driver name",
    63,
    driver_name
);

name_type!(
    /// The name of a pool (`spec.pool.name`): one or more DNS subdomains joined by `/`, at most 253 bytes in all.
    ///
    /// All slices of one driver share the pool names of a cluster, so a pool that belongs to one node should
    /// have the node's name in it. `PoolName::from(&node_name)` is the usual choice.
    PoolName,
    "pool name",
    253,
    pool_name
);

name_type!(
    /// The name of a device within its pool: a DNS label of at most 63 bytes.
    DeviceName,
    "device name",
    63,
    dns_label
);

name_type!(
    /// The name of a node: a DNS subdomain of at most 253 bytes.
    NodeName,
    "node name",
    253,
    node_name
);

name_type!(
    /// The name of an attribute or a capacity: a C identifier of at most 32 bytes, which may have a domain
    /// (a DNS subdomain of at most 63 bytes) and a `/` in front.
    ///
    /// A name without a domain belongs to the driver's own domain: the scheduler reads `model` of driver
    /// `gpu.example.com` as `gpu.example.com/model`.
    ///
    /// ```
    /// use dra_resourceslice::QualifiedName;
    ///
    /// assert_eq!(QualifiedName::new("resource.kubernetes.io/pcieRoot")?.domain(), Some("resource.kubernetes.io"));
    /// assert_eq!(QualifiedName::new("model")?.domain(), None);
    /// assert!(QualifiedName::new("driver-version").is_err());
    /// # Ok::<(), dra_resourceslice::InvalidName>(())
    /// ```
    QualifiedName,
    "attribute or capacity name",
    63 + 1 + 32,
    qualified_name
);

impl QualifiedName {
    /// The part in front of the `/`, if there is one.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        self.0.split_once('/').map(|(domain, _)| domain)
    }

    /// The part behind the `/`, or the whole name.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, id)| id)
    }
}

/// A node's name is a legal pool name, and the usual one for the devices of that node.
impl From<&NodeName> for PoolName {
    fn from(node: &NodeName) -> Self {
        Self(node.0.clone())
    }
}

/// Checks a DNS label: 1 to 63 lower-case letters, digits and `-`, with a letter or digit at both ends.
pub(crate) fn dns_label(value: &str) -> Result<(), &'static str> {
    let bytes = value.as_bytes();
    let ([first, .., last] | [first @ last]) = bytes else {
        return Err("must not be empty");
    };
    if bytes.len() > 63 {
        return Err("must have at most 63 bytes");
    }
    if !bytes.iter().all(|&b| alphanumeric(b) || b == b'-') {
        return Err("may only have lower-case letters, digits and '-'");
    }
    if !alphanumeric(*first) || !alphanumeric(*last) {
        return Err("must start and end with a lower-case letter or a digit");
    }
    Ok(())
}

/// Checks a DNS subdomain: labels joined by dots. A part may be longer than 63 bytes, as in the API server.
pub(crate) fn dns_subdomain(value: &str, max_len: usize, too_long: &'static str) -> Result<(), &'static str> {
    if value.is_empty() {
        return Err("must not be empty");
    }
    if value.len() > max_len {
        return Err(too_long);
    }
    value.split('.').try_for_each(subdomain_part)
}

fn subdomain_part(part: &str) -> Result<(), &'static str> {
    let bytes = part.as_bytes();
    let ([first, .., last] | [first @ last]) = bytes else {
        return Err("must not have an empty part before, between or after the dots");
    };
    if !bytes.iter().all(|&b| alphanumeric(b) || b == b'-') {
        return Err("may only have lower-case letters, digits, '-' and '.'");
    }
    if !alphanumeric(*first) || !alphanumeric(*last) {
        return Err("each part between the dots must start and end with a lower-case letter or a digit");
    }
    Ok(())
}

fn driver_name(value: &str) -> Result<(), &'static str> {
    dns_subdomain(value, DriverName::MAX_LEN, "must have at most 63 bytes")
}

pub(crate) fn node_name(value: &str) -> Result<(), &'static str> {
    dns_subdomain(value, NodeName::MAX_LEN, "must have at most 253 bytes")
}

fn pool_name(value: &str) -> Result<(), &'static str> {
    const TOO_LONG: &str = "must have at most 253 bytes";
    if value.len() > PoolName::MAX_LEN {
        return Err(TOO_LONG);
    }
    value.split('/').try_for_each(|part| dns_subdomain(part, PoolName::MAX_LEN, TOO_LONG))
}

fn qualified_name(value: &str) -> Result<(), &'static str> {
    let id = match value.split_once('/') {
        Some((domain, id)) => {
            dns_subdomain(domain, 63, "the domain in front of the '/' must have at most 63 bytes")?;
            id
        }
        None => value,
    };
    c_identifier(id)
}

fn c_identifier(value: &str) -> Result<(), &'static str> {
    let Some(first) = value.bytes().next() else {
        return Err("must not be empty");
    };
    if value.len() > 32 {
        return Err("must have at most 32 bytes (without the domain)");
    }
    if first.is_ascii_digit() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err("must be a C identifier: letters, digits and '_', not starting with a digit");
    }
    Ok(())
}

/// Checks a label key, as for taint keys and condition types: an optional DNS subdomain and `/`, then at most
/// 63 letters, digits, `-`, `_` and `.`.
pub(crate) fn label_key(value: &str) -> Result<(), &'static str> {
    let name = match value.split_once('/') {
        Some((prefix, name)) => {
            dns_subdomain(prefix, 253, "the prefix in front of the '/' must have at most 253 bytes")?;
            name
        }
        None => value,
    };
    if name.is_empty() {
        return Err("must not be empty");
    }
    label_text(name)
}

/// Checks a label value: empty, or at most 63 letters, digits, `-`, `_` and `.`, alphanumeric at both ends.
pub(crate) fn label_value(value: &str) -> Result<(), &'static str> {
    if value.is_empty() { Ok(()) } else { label_text(value) }
}

fn label_text(value: &str) -> Result<(), &'static str> {
    let bytes = value.as_bytes();
    if bytes.len() > 63 {
        return Err("must have at most 63 bytes (without the prefix)");
    }
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edges = [bytes.first(), bytes.last()];
    if !bytes.iter().copied().all(inner) {
        return Err("may only have letters, digits, '-', '_' and '.'");
    }
    if edges.into_iter().flatten().any(|b| !b.is_ascii_alphanumeric()) {
        return Err("must start and end with a letter or a digit");
    }
    Ok(())
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_names_are_lower_case_subdomains_of_at_most_63_bytes() {
        let longest = format!("{}.{}", "a".repeat(31), "b".repeat(31));
        assert_eq!(longest.len(), 63);
        for good in ["gpu.example.com", "a", "0", "a-b.c", longest.as_str()] {
            assert_eq!(DriverName::new(good).map(String::from), Ok(good.to_owned()));
        }
        let too_long = format!("{longest}c");
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a.-b",
            "A.b",
            "a_b",
            "a/b",
            "a b",
            "ä",
            too_long.as_str(),
        ] {
            let error = DriverName::new(bad).expect_err(bad);
            assert_eq!((error.kind, error.value.as_str()), ("driver name", bad));
        }
    }

    #[test]
    fn device_names_are_labels_of_at_most_63_bytes() {
        let longest = "a".repeat(63);
        for good in ["gpu-0", "0", longest.as_str()] {
            assert!(DeviceName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "gpu.0", "GPU", "gpu_0", "-0", "0-", "a".repeat(64).as_str()] {
            assert!(DeviceName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn pool_names_are_subdomains_joined_by_slashes() {
        let longest = "a".repeat(253);
        for good in ["node-1", "fabric.example.com/rack-1/a.b", longest.as_str()] {
            assert!(PoolName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a//b", "A", "a".repeat(254).as_str()] {
            assert!(PoolName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn qualified_names_are_identifiers_with_an_optional_domain() {
        let longest = format!("{}/{}", "d".repeat(63), "i".repeat(32));
        for good in ["model", "_x", "driverVersion", "example.com/uuid", longest.as_str()] {
            assert!(QualifiedName::new(good).is_ok(), "{good}");
        }
        let long_id = "i".repeat(33);
        let long_domain = format!("{}/x", "d".repeat(64));
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "0x",
            "a-b",
            "A.b/c",
            "a.b/c-d",
            long_id.as_str(),
            long_domain.as_str(),
        ] {
            assert!(QualifiedName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_keys_and_values_follow_the_label_rules() {
        for good in ["a", "example.com/unhealthy", "A_b.c-d"] {
            assert_eq!(label_key(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "a-", "a b", "x".repeat(64).as_str()] {
            assert!(label_key(bad).is_err(), "{bad}");
        }
        assert_eq!(label_value(""), Ok(()));
        assert!(label_value("-").is_err());
        assert!(label_value("x".repeat(64).as_str()).is_err());
    }

    #[test]
    fn names_round_trip_through_json_and_refuse_bad_ones() {
        let name: DeviceName = serde_json::from_str("\"gpu-0\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"gpu-0\"");
        let error = serde_json::from_str::<DeviceName>("\"GPU 0\"").unwrap_err().to_string();
        assert!(error.contains("invalid device name \"GPU 0\""), "{error}");
    }

    #[test]
    fn the_error_names_kind_value_and_rule() {
        let error = NodeName::new("Node_1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid node name \"Node_1\": may only have lower-case letters, digits, '-' and '.'"
        );
    }
}
