//! Names of the kubelet's side; those of the API server's side come from `dra-resourceslice`.

use std::{borrow::Borrow, fmt, str::FromStr};

pub use dra_resourceslice::{DeviceName, DriverName, InvalidName, NodeName, PoolName, QualifiedName};
use serde::{Deserialize, Serialize};

/// The UID of a `ResourceClaim`: it names one allocation for good, unlike namespace and name.
///
/// The API server makes UUIDs. As the UID becomes part of file and CDI names, only ASCII letters, digits and `-` are
/// taken, at most [`ClaimUid::MAX_LEN`] of them, the first not a `-`.
///
/// ```
/// use dra_kubeletplugin::ClaimUid;
///
/// let uid: ClaimUid = "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a".parse()?;
/// assert_eq!(uid.as_str().len(), 36);
/// assert!("../x".parse::<ClaimUid>().is_err());
/// # Ok::<(), dra_kubeletplugin::InvalidUid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimUid(String);

/// A string that is no claim UID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "illegal claim UID {value:?}: must be 1 to {} letters, digits or '-', not starting with '-'",
    ClaimUid::MAX_LEN
)]
#[non_exhaustive]
pub struct InvalidUid {
    /// What was given.
    pub value: String,
}

impl ClaimUid {
    /// The most characters that a UID may have; a UUID has 36.
    pub const MAX_LEN: usize = 64;

    /// The UID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClaimUid {
    type Error = InvalidUid;

    fn try_from(value: String) -> Result<Self, InvalidUid> {
        let legal = !value.is_empty()
            && value.len() <= Self::MAX_LEN
            && !value.starts_with('-')
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if legal { Ok(Self(value)) } else { Err(InvalidUid { value }) }
    }
}

impl FromStr for ClaimUid {
    type Err = InvalidUid;

    fn from_str(value: &str) -> Result<Self, InvalidUid> {
        Self::try_from(value.to_owned())
    }
}

impl From<ClaimUid> for String {
    fn from(uid: ClaimUid) -> Self {
        uid.0
    }
}

impl AsRef<str> for ClaimUid {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ClaimUid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_that_could_leave_a_folder_are_refused() {
        for bad in ["", "../x", "a/b", ".hidden", "-x", "a b", "ü", &"a".repeat(65)] {
            assert!(bad.parse::<ClaimUid>().is_err(), "{bad:?}");
        }
        for good in ["4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a", "claim-1", &"a".repeat(64)] {
            assert_eq!(good.parse::<ClaimUid>().map(String::from).as_deref(), Ok(good));
        }
    }
}
