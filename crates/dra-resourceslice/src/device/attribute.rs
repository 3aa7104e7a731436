//! Attribute values.

use crate::limits::MAX_ATTRIBUTE_LENGTH;

/// The value of a device attribute.
///
/// `bool`, integers and text convert with `into()`; text becomes a [`AttributeValue::String`], never a version.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AttributeValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Text of at most 64 bytes.
    String(String),
    /// A semantic version (SemVer 2.0.0: three numbers, no `v` in front) of at most 64 bytes.
    Version(String),
    /// A list of truth values. Lists need a cluster with `DRAListTypeAttributes` and k8s-openapi's `v1_36`.
    Bools(Vec<bool>),
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A list of texts.
    Strings(Vec<String>),
    /// A list of semantic versions.
    Versions(Vec<String>),
}

impl AttributeValue {
    /// A version. Whether it is a semantic one is checked when the device is published: one that is not is
    /// left out and reported, and the device stays. See [`AttributeValue::version_from`] for others.
    #[must_use]
    pub fn version(version: impl Into<String>) -> Self {
        Self::Version(version.into())
    }

    /// The nearest semantic version of a dotted number as vendors write it, or `None` if there is none.
    ///
    /// A `v` in front and zeros in front of a number go, missing numbers become 0, and what follows the third
    /// number becomes build metadata, which comparisons ignore.
    ///
    /// ```
    /// use dra_resourceslice::AttributeValue;
    ///
    /// assert_eq!(AttributeValue::version_from("550.127.08"), Some(AttributeValue::version("550.127.8")));
    /// assert_eq!(
    ///     AttributeValue::version_from("6.19.14.31400000"),
    ///     Some(AttributeValue::version("6.19.14+31400000"))
    /// );
    /// assert_eq!(AttributeValue::version_from("unknown"), None);
    /// ```
    #[must_use]
    pub fn version_from(text: &str) -> Option<Self> {
        if is_semver(text) {
            return Some(Self::version(text));
        }
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        if is_semver(text) {
            return Some(Self::version(text));
        }
        let parts: Vec<&str> = text.split('.').collect();
        if parts.iter().any(|part| part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit())) {
            return None;
        }
        let number = |index: usize| match parts.get(index).map(|part| part.trim_start_matches('0')) {
            None | Some("") => "0",
            Some(digits) => digits,
        };
        let mut version = format!("{}.{}.{}", number(0), number(1), number(2));
        if let Some(rest) = parts.get(3..).filter(|rest| !rest.is_empty()) {
            version.push('+');
            version.push_str(&rest.join("."));
        }
        is_semver(&version).then_some(Self::Version(version))
    }

    /// A text that hardware tells: cut where it is longer than the 64 bytes of an attribute.
    ///
    /// ```
    /// use dra_resourceslice::AttributeValue;
    ///
    /// assert_eq!(AttributeValue::cut("Model 7"), "Model 7".into());
    /// assert_eq!(AttributeValue::cut(&"ä".repeat(50)), "ä".repeat(32).into());
    /// ```
    #[must_use]
    pub fn cut(text: &str) -> Self {
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(MAX_ATTRIBUTE_LENGTH)).rev().find(is_end).unwrap_or_default();
        Self::String(text[..end].to_owned())
    }

    /// Whether the value is one of the list forms.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Bools(_) | Self::Ints(_) | Self::Strings(_) | Self::Versions(_))
    }

    /// How many values it holds: 1, or the length of the list.
    #[must_use]
    pub fn value_count(&self) -> usize {
        match self {
            Self::Bools(list) => list.len(),
            Self::Ints(list) => list.len(),
            Self::Strings(list) | Self::Versions(list) => list.len(),
            _ => 1,
        }
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for AttributeValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for AttributeValue {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u32> for AttributeValue {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<String> for AttributeValue {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl From<&str> for AttributeValue {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<Vec<bool>> for AttributeValue {
    fn from(list: Vec<bool>) -> Self {
        Self::Bools(list)
    }
}

impl From<Vec<i64>> for AttributeValue {
    fn from(list: Vec<i64>) -> Self {
        Self::Ints(list)
    }
}

impl From<Vec<String>> for AttributeValue {
    fn from(list: Vec<String>) -> Self {
        Self::Strings(list)
    }
}

/// Whether the text is a semantic version as the API server checks it (SemVer 2.0.0). Its numbers have at most 18 digits, as
/// since Kubernetes 1.38; before, what is longer could not be compared by selectors.
#[must_use]
pub fn is_semver(text: &str) -> bool {
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (core, pre_release) = match text.split_once('-') {
        Some((core, pre_release)) => (core, Some(pre_release)),
        None => (text, None),
    };
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_semver_number)
        && pre_release.is_none_or(|list| list.split('.').all(is_pre_release_identifier))
        && build.is_none_or(|list| list.split('.').all(is_identifier))
}

/// Digits without a zero in front.
fn is_semver_number(text: &str) -> bool {
    (1..=18).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}

fn is_pre_release_identifier(text: &str) -> bool {
    let numeric = text.bytes().all(|b| b.is_ascii_digit());
    if numeric { is_semver_number(text) } else { is_identifier(text) }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantic_versions_are_told_from_others() {
        for good in [
            "0.0.0",
            "1.2.999999999999999999",
            "1.2.3",
            "10.20.30",
            "1.0.0-alpha.1",
            "1.0.0-0a",
            "1.0.0+001",
            "1.0.0-rc-1+build.5-x",
        ] {
            assert!(is_semver(good), "{good}");
        }
        for bad in [
            "",
            "1",
            "535",
            "1.2",
            "1.2.3.4",
            "6.19.14.31400000",
            "550.127.08",
            "v1.2.3",
            "1.2.x",
            "1.2.3-",
            "1.2.3+",
            "1.2.3-01",
            "1.2.3-a..b",
            "1.2.3+a+b",
            " 1.2.3",
            "1.2.1000000000000000000",
            "1..3",
        ] {
            assert!(!is_semver(bad), "{bad}");
        }
    }

    #[test]
    fn vendor_versions_become_semantic_ones() {
        let table = [
            ("1.2.3-rc.1", Some("1.2.3-rc.1")),
            ("v1.2.3", Some("1.2.3")),
            ("535", Some("535.0.0")),
            ("12.4", Some("12.4.0")),
            ("550.127.08", Some("550.127.8")),
            ("6.19.14.31400000", Some("6.19.14+31400000")),
            ("1.2.3.4.05", Some("1.2.3+4.05")),
            ("00.0.1", Some("0.0.1")),
            ("", None),
            ("1..2", None),
            ("1.2.3_4", None),
            ("unknown", None),
        ];
        for (text, expected) in table {
            assert_eq!(AttributeValue::version_from(text), expected.map(AttributeValue::version), "{text}");
        }
    }

    #[test]
    fn lists_count_their_values() {
        assert_eq!(AttributeValue::from("x").value_count(), 1);
        assert_eq!(AttributeValue::from(vec![1_i64, 2, 3]).value_count(), 3);
        assert!(AttributeValue::from(vec![true]).is_list() && !AttributeValue::from(true).is_list());
    }
}
