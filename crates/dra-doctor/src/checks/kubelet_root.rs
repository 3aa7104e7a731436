//! A driver and a kubelet that do not mean the same folder.

use std::path::Path;

use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{Kubelet, Snapshot};

/// The folder of the registration sockets, below the root.
const REGISTRY: &str = "plugins_registry";

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.kubelets.check(|kubelets| {
        let mut findings = Vec::new();
        let is_other = |kubelet: &&Kubelet| {
            kubelet.root != snapshot.kubelet_root && kubelet.real_root != snapshot.real_kubelet_root
        };
        for kubelet in kubelets.iter().filter(is_other) {
            findings.push(Finding::new(
                FindingKind::OtherKubeletRoot,
                format!("kubelet (process {})", kubelet.pid),
                format!(
                    "its root is {}, the driver's is {}: it does not see the driver's sockets",
                    kubelet.root.display(),
                    snapshot.kubelet_root.display()
                ),
                format!(
                    "start the driver with kubelet root {} and mount that folder into its pod",
                    kubelet.root.display()
                ),
            ));
        }
        let sockets = snapshot.unix_sockets.seen().into_iter().flatten();
        for socket in sockets.filter(|socket| socket.is_listening) {
            let Some(root) = registry_root(&socket.path) else { continue };
            let is_wanted = snapshot.driver.as_ref().is_none_or(|driver| is_of(&socket.path, driver));
            let is_root_of = |kubelet: &Kubelet| kubelet.root == root || kubelet.real_root == root;
            if is_wanted && !kubelets.is_empty() && !kubelets.iter().any(is_root_of) {
                findings.push(Finding::new(
                    FindingKind::DriverBelowOtherRoot,
                    socket.path.display().to_string(),
                    format!("a driver listens below {}, which is no kubelet's root", root.display()),
                    format!(
                        "start that driver with the kubelet's root, {}",
                        kubelets
                            .iter()
                            .map(|kubelet| kubelet.root.display().to_string())
                            .collect::<Vec<_>>()
                            .join(" or ")
                    ),
                ));
            }
        }
        findings
    })
}

/// The kubelet root of a registration socket of a driver on this SDK: its name has an `@`, so that it is no other plugin's.
fn registry_root(socket: &Path) -> Option<&Path> {
    let name = socket.file_name()?.to_str()?;
    let folder = socket.parent()?;
    let is_ours = name.contains('@') && name.ends_with("-reg.sock");
    (is_ours && folder.file_name()? == REGISTRY).then(|| folder.parent()).flatten()
}

fn is_of(socket: &Path, driver: &str) -> bool {
    socket.to_string_lossy().ends_with(&format!("@{driver}-reg.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::{Looked, UnixSocket};

    fn snapshot(root: &str, sockets: &[&str]) -> Snapshot {
        let socket = |path: &&str| UnixSocket { path: path.into(), is_listening: true };
        Snapshot {
            kubelet_root: "/var/lib/kubelet".into(),
            real_kubelet_root: "/var/lib/kubelet".into(),
            kubelets: Looked::At(vec![Kubelet { pid: 7, root: root.into(), real_root: root.into() }]),
            unix_sockets: Looked::At(sockets.iter().map(socket).collect()),
            ..Snapshot::default()
        }
    }

    #[test]
    fn another_root_of_the_kubelet_is_told() {
        assert_eq!(check(&snapshot("/var/lib/kubelet", &[])), Verdict::HEALTHY);
        let verdict = check(&snapshot("/data/kubelet", &[]));
        let finding = only(&verdict);
        assert!(
            finding.problem.contains("/data/kubelet") && finding.advice.contains("/data/kubelet"),
            "{finding:?}"
        );
    }

    #[test]
    fn a_root_by_another_name_is_the_same() {
        let mut snapshot =
            snapshot("/data/kubelet", &["/data/kubelet/plugins_registry/x@gpu.example.com-reg.sock"]);
        snapshot.real_kubelet_root = "/data/kubelet".into();
        assert_eq!(check(&snapshot), Verdict::HEALTHY, "/var/lib/kubelet is a link to it");
    }

    #[test]
    fn a_driver_that_listens_below_another_root_is_told() {
        let ours = "/var/lib/kubelet/plugins_registry/.dra-1@gpu.example.com-reg.sock";
        let other = "/opt/kubelet/plugins_registry/.dra-1@gpu.example.com-reg.sock";
        let unrelated = "/opt/kubelet/plugins_registry/csi.example.com-reg.sock";
        let verdict = check(&snapshot("/var/lib/kubelet", &[ours, other, unrelated]));
        assert!(only(&verdict).problem.contains("/opt/kubelet"), "{verdict:?}");
        let mut snapshot = snapshot("/var/lib/kubelet", &[other]);
        snapshot.driver = Some("net.example.com".into());
        assert_eq!(check(&snapshot), Verdict::HEALTHY, "another driver is of interest");
    }

    #[test]
    fn what_could_not_be_seen_is_said() {
        let snapshot = Snapshot { kubelets: Looked::CouldNot("no kubelet".into()), ..Snapshot::default() };
        assert_eq!(check(&snapshot), Verdict::CouldNot("no kubelet".into()));
    }
}
