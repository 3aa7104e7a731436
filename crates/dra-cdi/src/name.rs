//! CDI names: vendor, class, kind, device name and fully qualified device name.
//!
//! The rules are those that the CDI library inside the container runtimes enforces, narrowed where a runtime is known to
//! misbehave (see [`Vendor`]) and where the CDI specification sets a length that the library does not check.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::file_id::FileId;

/// A name that CDI does not allow, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {reason}")]
#[non_exhaustive]
pub struct InvalidName {
    /// What kind of name was being read, such as `CDI vendor`.
    pub what: &'static str,
    /// The text that was refused.
    pub value: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

impl InvalidName {
    pub(crate) fn new(what: &'static str, value: impl Into<String>, reason: &'static str) -> Self {
        Self { what, value: value.into(), reason }
    }
}

/// Gives a checked string type its conversions; `$check` is its whole rule.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(value: String) -> Result<Self, InvalidName> {
                $check(&value)?;
                Ok(Self(value))
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type! {
    /// The vendor of a CDI kind, such as `k8s.gpu.example.com`.
    ///
    /// Two to 253 characters: an ASCII letter first, a letter or digit last, and letters, digits, `-`, `_` and `.` between.
    /// A single character would be legal CDI, but it makes the library up to 1.1.0 (containerd up to 2.3) panic and so
    /// takes the runtime down.
    Vendor, check_vendor
}

name_type! {
    /// The class of a CDI kind, such as `claim`. Two to 63 characters, otherwise the rule of [`Vendor`].
    Class, check_class
}

name_type! {
    /// The name of a device within its kind.
    ///
    /// One to 253 characters: an ASCII letter or digit at both ends, and letters, digits, `-`, `_`, `.` and `:` between.
    DeviceName, check_device_name
}

impl DeviceName {
    /// The name of one allocated device of a claim: `<claim UID>-<device>`, followed by `-<share ID>` when the device is
    /// shared and by `-<8 hex digits>` of the pool's name when `pool` is given.
    ///
    /// Pass `pool` only when one claim has this device name from two pools; a pool's name may hold `/` and be too long to
    /// stand in a CDI name, so a hash of it does. Equal names within one claim are refused by [`Spec::new`](crate::Spec::new).
    ///
    /// # Errors
    /// [`InvalidName`] when `device` is not a DNS label of at most 63 characters (the rule of `ResourceSlice` devices), or
    /// `share` is not a UUID-like token.
    ///
    /// ```
    /// use dra_cdi::{DeviceName, FileId};
    /// let claim: FileId = "6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f".parse()?;
    /// let name = DeviceName::for_claim(&claim, "gpu-0", None, None)?;
    /// assert_eq!(name.as_str(), "6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f-gpu-0");
    /// # Ok::<(), dra_cdi::InvalidName>(())
    /// ```
    pub fn for_claim(
        claim: &FileId,
        device: &str,
        share: Option<&str>,
        pool: Option<&str>,
    ) -> Result<Self, InvalidName> {
        if device.len() > 63 || !is_dns_label(device) {
            return Err(InvalidName::new("device name", device, DNS_LABEL));
        }
        let mut name = format!("{claim}-{device}");
        if let Some(share) = share {
            let share: FileId = share.parse().map_err(|e| InvalidName { what: "share ID", ..e })?;
            name = format!("{name}-{share}");
        }
        if let Some(pool) = pool {
            name = format!("{name}-{:08x}", fnv1a(pool));
        }
        Self::try_from(name)
    }
}

/// What kind of devices a CDI file describes: `<vendor>/<class>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind {
    vendor: Vendor,
    class: Class,
}

impl Kind {
    /// Puts a kind together.
    #[must_use]
    pub fn new(vendor: Vendor, class: Class) -> Self {
        Self { vendor, class }
    }

    /// The kind for the claims of a DRA driver: `k8s.<driver>/claim`.
    ///
    /// The prefix is the convention of Kubernetes drivers. It also makes every driver name a legal vendor: a driver name may
    /// begin with a digit and may be a single letter.
    ///
    /// # Errors
    /// [`InvalidName`] when `driver_name` is not a DNS subdomain of at most 63 characters, which is what Kubernetes asks of it.
    ///
    /// ```
    /// use dra_cdi::Kind;
    /// assert_eq!(Kind::for_driver("gpu.example.com")?.to_string(), "k8s.gpu.example.com/claim");
    /// # Ok::<(), dra_cdi::InvalidName>(())
    /// ```
    pub fn for_driver(driver_name: &str) -> Result<Self, InvalidName> {
        if driver_name.len() > 63 || !is_dns_subdomain(driver_name) {
            return Err(InvalidName::new("driver name", driver_name, DRIVER_NAME));
        }
        Ok(Self { vendor: Vendor::try_from(format!("k8s.{driver_name}"))?, class: "claim".parse()? })
    }

    /// The vendor, the part before the `/`.
    #[must_use]
    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// The class, the part behind the `/`.
    #[must_use]
    pub fn class(&self) -> &Class {
        &self.class
    }

    /// The qualified name of a device of this kind.
    #[must_use]
    pub fn device(&self, name: DeviceName) -> QualifiedName {
        QualifiedName { kind: self.clone(), device: name }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

impl FromStr for Kind {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let Some((vendor, class)) = text.split_once('/') else {
            return Err(InvalidName::new("CDI kind", text, "it must read <vendor>/<class>"));
        };
        Ok(Self { vendor: vendor.parse()?, class: class.parse()? })
    }
}

impl TryFrom<String> for Kind {
    type Error = InvalidName;

    fn try_from(value: String) -> Result<Self, InvalidName> {
        value.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

/// A fully qualified CDI device name, `<vendor>/<class>=<device>`: what a driver answers the kubelet with.
///
/// ```
/// use dra_cdi::QualifiedName;
/// let id: QualifiedName = "k8s.gpu.example.com/claim=gpu-0".parse()?;
/// assert_eq!(id.kind().vendor().as_str(), "k8s.gpu.example.com");
/// assert_eq!(id.device().as_str(), "gpu-0");
/// # Ok::<(), dra_cdi::InvalidName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    kind: Kind,
    device: DeviceName,
}

impl QualifiedName {
    /// The kind, the part before the `=`.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The device, the part behind the `=`.
    #[must_use]
    pub fn device(&self) -> &DeviceName {
        &self.device
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

impl FromStr for QualifiedName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let Some((kind, device)) = text.split_once('=') else {
            return Err(InvalidName::new("CDI device", text, "it must read <vendor>/<class>=<device>"));
        };
        Ok(Self { kind: kind.parse()?, device: device.parse()? })
    }
}

const DNS_LABEL: &str = "it must be a DNS label: at most 63 lower-case letters, digits and '-', with a letter or digit at both ends";
const DRIVER_NAME: &str = "it must be a DNS subdomain of at most 63 characters, such as gpu.example.com";

fn check_vendor(text: &str) -> Result<(), InvalidName> {
    check_kind_part("CDI vendor", text, 253, "it must have 2 to 253 characters")
}

fn check_class(text: &str) -> Result<(), InvalidName> {
    check_kind_part("CDI class", text, 63, "it must have 2 to 63 characters")
}

fn check_kind_part(
    what: &'static str,
    text: &str,
    max: usize,
    length_rule: &'static str,
) -> Result<(), InvalidName> {
    let reason = if text.len() < 2 || text.len() > max {
        length_rule
    } else if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        "it must begin with an ASCII letter"
    } else if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        "it must end with an ASCII letter or digit"
    } else if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        "only ASCII letters, digits, '-', '_' and '.' are allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName::new(what, text, reason))
}

fn check_device_name(text: &str) -> Result<(), InvalidName> {
    let reason = if text.is_empty() || text.len() > 253 {
        "it must have 1 to 253 characters"
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !text.ends_with(|c: char| c.is_ascii_alphanumeric())
    {
        "it must begin and end with an ASCII letter or digit"
    } else if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) {
        "only ASCII letters, digits, '-', '_', '.' and ':' are allowed"
    } else {
        return Ok(());
    };
    Err(InvalidName::new("CDI device name", text, reason))
}

/// Whether `text` is made of DNS labels (RFC 1123, lower case) joined by dots.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(inner)
}

/// FNV-1a, 32 bits: tells a handful of pools apart. A clash would be refused as a duplicate device, never written.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
