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
}
