//! An API server without the API that drivers use.

use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.versions.check(|versions| {
        if versions.iter().any(|version| version == "v1") {
            return Vec::new();
        }
        let served = match versions.as_slice() {
            [] => "nothing of it".to_owned(),
            some => format!("only {}", some.join(", ")),
        };
        vec![Finding::new(
            FindingKind::ApiNotServed,
            "API group resource.k8s.io",
            format!("the API server does not serve v1, which drivers use, but {served}"),
            "use Kubernetes 1.34 or later, and take `resource.k8s.io/v1=false` and `api/all=false` out of the API \
             server's --runtime-config",
        )]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::Looked;

    #[test]
    fn a_group_that_is_off_or_old_is_told() {
        let verdict = |versions: &[&str]| {
            let versions = Looked::At(versions.iter().map(ToString::to_string).collect());
            check(&Snapshot { versions, ..Snapshot::default() })
        };
        assert_eq!(verdict(&["v1", "v1beta2"]), Verdict::HEALTHY);
        assert!(only(&verdict(&[])).problem.contains("nothing of it"));
        assert!(only(&verdict(&["v1beta1"])).problem.contains("only v1beta1"));
    }
}
