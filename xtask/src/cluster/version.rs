//! Versions of Kubernetes and of Go.

use std::{fmt, str::FromStr};

/// A released version of Kubernetes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    minor: u16,
    patch: u16,
}

impl Version {
    /// What a cluster is by default.
    pub(crate) const NEWEST: Self = Self { minor: 37, patch: 2 };
    /// The oldest one that drivers are tested with: the first whose kubelet speaks DRA v1.
    pub(crate) const OLDEST: Self = Self { minor: 34, patch: 4 };
    /// All that are tested, newest first.
    pub(crate) const TESTED: [Self; 4] =
        [Self::NEWEST, Self { minor: 36, patch: 3 }, Self { minor: 35, patch: 4 }, Self::OLDEST];

    pub(crate) fn minor(self) -> u16 {
        self.minor
    }

    /// The version of the staging modules (`k8s.io/api` and so on), without the `v`: 1.37.2 goes with 0.37.2.
    pub(crate) fn staging(self) -> String {
        format!("0.{}.{}", self.minor, self.patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('.').map(str::parse).collect();
        match parts[..] {
            [Ok(1_u16), Ok(minor), Ok(patch)] => Ok(Self { minor, patch }),
            _ => Err(format!("not a Kubernetes version like {}", Self::NEWEST)),
        }
    }
}

/// A version of Go, as `go env GOVERSION` and a go.mod's `go` line tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GoVersion(u16, u16, u16);

impl GoVersion {
    /// Reads `1.26`, `1.26.6` or `1.27rc1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        });
        Some(Self(numbers.next()??, numbers.next()??, numbers.next().unwrap_or(Some(0))?))
    }

    /// Whether this Go builds a module that asks for `wanted`. From 1.21 on it fetches a newer toolchain by itself,
    /// unless `GOTOOLCHAIN` says otherwise.
    pub(crate) fn builds(self, wanted: Self, toolchain: &str) -> bool {
        self >= wanted
            || (self >= Self(1, 21, 0) && (toolchain.contains("auto") || toolchain.contains("path")))
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_back_as_it_is_written() {
        for version in Version::TESTED {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
    }

    #[test]
    fn other_texts_are_no_versions() {
        for text in ["", "1.37", "v1.37.2", "2.0.0", "1.37.2.1", "1.37.x"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn go_versions_are_read_as_go_writes_them() {
        assert_eq!(GoVersion::parse("1.26.8"), Some(GoVersion(1, 26, 8)));
        assert_eq!(GoVersion::parse("1.26"), Some(GoVersion(1, 26, 0)));
        assert_eq!(GoVersion::parse("1.27rc1"), Some(GoVersion(1, 27, 0)));
        assert_eq!(GoVersion::parse("devel"), None);
    }

    #[test]
    fn an_older_go_builds_only_if_it_may_fetch_a_toolchain() {
        let (old, wanted) = (GoVersion(1, 24, 0), GoVersion(1, 26, 6));
        assert!(wanted.builds(wanted, "local"));
        assert!(old.builds(wanted, "auto"));
        assert!(!old.builds(wanted, "local"));
        assert!(!GoVersion(1, 19, 8).builds(wanted, ""));
    }
}
