//! The id of a CDI file: the UID of the claim that it belongs to.

use std::fmt;
use std::str::FromStr;

use crate::name::InvalidName;

/// Names one CDI file of a [`Directory`](crate::Directory): the UID of a claim.
///
/// It becomes part of a path, so it is a UUID-like token and nothing else: 1 to 64 ASCII letters, digits and `-`, with
/// a letter or digit at both ends.
///
/// ```
/// use dra_cdi::FileId;
/// assert!(FileId::new("6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f").is_ok());
/// assert!(FileId::new("../../etc/passwd").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(String);

impl FileId {
    /// The longest id, in bytes.
    pub(crate) const MAX_LEN: usize = 64;

    /// Checks `uid`.
    ///
    /// # Errors
    /// [`InvalidName`] when `uid` is not a UUID-like token.
    pub fn new(uid: impl Into<String>) -> Result<Self, InvalidName> {
        let uid = uid.into();
        let reason = if uid.is_empty() || uid.len() > Self::MAX_LEN {
            "it must have 1 to 64 characters"
        } else if !uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            "only ASCII letters, digits and '-' are allowed"
        } else if uid.starts_with('-') || uid.ends_with('-') {
            "it must begin and end with a letter or digit"
        } else {
            return Ok(Self(uid));
        };
        Err(InvalidName::new("claim UID", uid, reason))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FileId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

/// Names a CDI file that another program has written, such as `k8s.gpu.example.com-claim_<claim UID>.json`.
///
/// A plain file name, of at most 255 bytes, that a runtime would read: it ends in `.json` or `.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForeignFile(String);

impl ForeignFile {
    /// Checks `name`.
    ///
    /// # Errors
    /// [`InvalidName`] when `name` is a path, or not the name of a CDI file.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        let reason = if name.len() > 255 {
            "it must have at most 255 bytes"
        } else if name.contains(['/', '\0']) {
            "it must be a name, not a path"
        } else if ![".json", ".yaml"]
            .iter()
            .any(|end| name.strip_suffix(end).is_some_and(|stem| !stem.is_empty()))
        {
            "it must end in '.json' or '.yaml', as runtimes read no others"
        } else {
            return Ok(Self(name));
        };
        Err(InvalidName::new("CDI file name", name, reason))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ForeignFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ForeignFile {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_must_be_a_uuid_like_token_before_it_becomes_part_of_a_path() {
        for uid in ["6b7e3f0e-0c4c-4b6f-9c39-1a2b3c4d5e6f", "a", "A1", &"u".repeat(64)] {
            assert_eq!(FileId::new(uid).unwrap().as_str(), uid);
        }
        for uid in
            ["", ".", "..", "../x", "a/b", ".a", "-a", "a-", "a b", "a+b", "a\u{0}", "é", &"u".repeat(65)]
        {
            let error = FileId::new(uid).unwrap_err();
            assert_eq!((error.what, error.value.as_str()), ("claim UID", uid));
        }
    }

    #[test]
    fn a_foreign_file_is_a_plain_name_that_runtimes_read() {
        for name in ["k8s.gpu.example.com-claim_1.json", "a.yaml", "a b.json", "..json"] {
            assert_eq!(ForeignFile::new(name).unwrap().as_str(), name);
        }
        let long = format!("{}.json", "n".repeat(251));
        for name in ["", ".", "..", ".json", "a", "a.txt", "../a.json", "/a.json", "a\0.json", &long] {
            assert!(ForeignFile::new(name).is_err(), "{name}");
        }
    }
}
