//! Where metadata files are in a container. Pure.

use std::path::{Path, PathBuf};

/// The folder in a container below which the metadata of its devices lies.
pub const ROOT: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// What the names of metadata files end in, after the driver's.
pub(super) const SUFFIX: &str = "-metadata.json";

/// A claim as a pod's spec speaks of it (`spec.resourceClaims[]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodClaim<'a> {
    /// A claim of this name (`resourceClaimName`).
    Named(&'a str),
    /// A claim that is made from a template: its name within the pod (`name`).
    FromTemplate(&'a str),
}

impl PodClaim<'_> {
    /// The folder of a request, below `root`.
    pub(super) fn folder(self, root: &Path, request: &str) -> PathBuf {
        let (kind, name) = match self {
            Self::Named(name) => ("resourceclaims", name),
            Self::FromTemplate(name) => ("resourceclaimtemplates", name),
        };
        root.join(kind).join(name).join(request)
    }
}

/// Where a driver's metadata of a request appears in a container.
pub(crate) fn container_path(claim: PodClaim<'_>, request: &str, driver: &str) -> PathBuf {
    claim.folder(Path::new(ROOT), request).join(format!("{driver}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_from_templates_are_found_by_their_name_in_the_pod() {
        let path = |claim| container_path(claim, "gpu", "gpu.example.com").display().to_string();
        assert_eq!(
            [path(PodClaim::Named("one")), path(PodClaim::FromTemplate("two"))],
            [
                "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/one/gpu/gpu.example.com-metadata.json",
                "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/two/gpu/gpu.example.com-metadata.json",
            ]
        );
    }
}
