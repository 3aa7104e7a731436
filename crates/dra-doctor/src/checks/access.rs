//! Permissions that a driver's account lacks.

use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::Snapshot;

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.access.check(|access| {
        let denied = access.iter().filter(|access| !access.is_allowed);
        denied
            .map(|access| {
                let group = if access.group.is_empty() { "the core group" } else { &access.group };
                Finding::new(
                    FindingKind::NotPermitted,
                    access.account.clone(),
                    format!(
                        "it may not {} {} of {group}, which the driver needs {}",
                        access.verb, access.resource, access.needed_for
                    ),
                    format!(
                        "add verb {} on {} to the ClusterRole that is bound to the driver's account, or bind the role",
                        access.verb, access.resource
                    ),
                )
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::{Access, Looked};

    #[test]
    fn each_verb_that_is_denied_is_told() {
        let access = |verb: &str, is_allowed| Access {
            account: "system:serviceaccount:ns:driver".into(),
            verb: verb.into(),
            group: "resource.k8s.io".into(),
            resource: "resourceslices".into(),
            needed_for: "to publish devices".into(),
            is_allowed,
        };
        let access = Looked::At(vec![access("get", true), access("patch", false)]);
        let verdict = check(&Snapshot { access, ..Snapshot::default() });
        assert!(
            only(&verdict).problem.contains("may not patch resourceslices of resource.k8s.io"),
            "{verdict:?}"
        );
    }
}
