//! The checks: each is a function of what was seen, in a file of its own.

mod access;
mod api_group;
mod cdi;
mod claims;
mod kubelet_root;
mod missing;
mod pending;
mod preemption;
mod prepare;
mod registration;
mod slices;
mod sockets;
mod stripped;
mod subject;

pub(crate) use slices::are_whole;
pub(crate) use sockets::drivers_that_answer;
pub(crate) use subject::{claims_of, reserved_for};

use crate::finding::Verdict;
use crate::report::{Examined, Report};
use crate::snapshot::Snapshot;

/// A check, with the name that reports show.
struct Check {
    name: &'static str,
    look: fn(&Snapshot) -> Verdict,
}

/// From the node to the pod: who reads from the top finds causes before effects.
const CHECKS: [Check; 13] = [
    Check { name: "kubelet-root", look: kubelet_root::check },
    Check { name: "sockets", look: sockets::check },
    Check { name: "registration", look: registration::check },
    Check { name: "cdi", look: cdi::check },
    Check { name: "api-group", look: api_group::check },
    Check { name: "permissions", look: access::check },
    Check { name: "slices", look: slices::check },
    Check { name: "missing-objects", look: missing::check },
    Check { name: "stripped-fields", look: stripped::check },
    Check { name: "claim-in-use", look: claims::check },
    Check { name: "pending-claims", look: pending::check },
    Check { name: "preemption", look: preemption::check },
    Check { name: "prepare", look: prepare::check },
];

/// Runs all checks.
///
/// ```
/// let nothing = dra_doctor::Snapshot::default();
/// let report = dra_doctor::examine(&nothing);
/// assert_eq!(report.exit_code(), 0, "nothing was asked for, so nothing is wrong");
/// ```
#[must_use]
pub fn examine(snapshot: &Snapshot) -> Report {
    let examined =
        CHECKS.iter().map(|check| Examined { check: check.name.to_owned(), verdict: (check.look)(snapshot) });
    Report { checks: examined.collect(), left_out: snapshot.left_out.clone() }
}

#[cfg(test)]
mod testing;
