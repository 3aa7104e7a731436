//! Sockets of drivers that are missing, dead, or cannot be dialled.

use std::collections::BTreeSet;

use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{Answer, RegistrationSocket, Snapshot};

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.registry.verdict(|sockets| {
        let is_known = snapshot.driver.is_some() || snapshot.drivers_here.seen().is_some();
        if !is_known && sockets.iter().all(|socket| driver_of(socket).is_none()) {
            return Verdict::NotAsked(
                "no driver is here, and none is known that ought to be: name it with --driver, or let this reach the API \
                 server and give it --node-name"
                    .into(),
            );
        }
        let mut findings: Vec<Finding> =
            sockets.iter().filter(|socket| is_of_interest(snapshot, socket)).filter_map(faulty).collect();
        findings.extend(absent(snapshot, sockets));
        Verdict::Looked(findings)
    })
}

/// The driver of a socket: as it says, or by the socket's name.
pub(super) fn driver_of(socket: &RegistrationSocket) -> Option<&str> {
    match &socket.answer {
        Answer::Good(info) if info.kind == "DRAPlugin" => Some(&info.name),
        Answer::Good(_) => None,
        _ => {
            let name = socket.path.file_name()?.to_str()?;
            let (_, rest) = name.rsplit_once('@')?;
            rest.strip_suffix("-reg.sock")
        }
    }
}

/// The drivers that answer on this node, as far as they are of interest.
pub(crate) fn drivers_that_answer(snapshot: &Snapshot) -> BTreeSet<&str> {
    let sockets = snapshot.registry.seen().into_iter().flatten();
    let answering = sockets.filter(|socket| matches!(socket.answer, Answer::Good(_)));
    let drivers = answering.filter_map(driver_of);
    drivers.filter(|driver| snapshot.driver.as_ref().is_none_or(|wanted| driver == wanted)).collect()
}

fn is_of_interest(snapshot: &Snapshot, socket: &RegistrationSocket) -> bool {
    let Some(wanted) = &snapshot.driver else { return driver_of(socket).is_some() };
    // Drivers on the Go helper have their name first, without an `@`.
    let name = socket.path.file_name().unwrap_or_default().to_string_lossy();
    driver_of(socket).map_or_else(|| name.starts_with(wanted.as_str()), |driver| driver == wanted)
}

fn faulty(socket: &RegistrationSocket) -> Option<Finding> {
    let subject = socket.path.display().to_string();
    let (kind, problem, advice) = match &socket.answer {
        // No socket is looked for at such a path: `registration` tells of it.
        Answer::Good(info) if !info.endpoint.is_absolute() => return None,
        Answer::Good(info) => {
            let endpoint = info.endpoint.display();
            let problem = match &socket.service {
                Answer::Good(()) => return None,
                Answer::Refused => format!("nobody listens on {endpoint}, the socket of its service"),
                Answer::Missing => format!("{endpoint}, the socket of its service, does not exist"),
                other => format!("{endpoint}, the socket of its service, does not work: {}", told(other)),
            };
            (
                FindingKind::ServiceUnreachable,
                problem,
                "restart the driver; its pod and the host must see that folder by the same path".to_owned(),
            )
        }
        Answer::Refused => (
            FindingKind::DeadRegistrationSocket,
            "nobody listens: a driver has died and left it, and the kubelet goes on dialling it".to_owned(),
            "start the driver, which removes it, or remove the file".to_owned(),
        ),
        Answer::CannotBeDialled => (
            FindingKind::UndialableSocket,
            "the server refuses calls with the socket's path as authority, which is how the kubelet calls it"
                .to_owned(),
            "give the socket a name with an `@` and only letters, digits, `.`, `-`, `_` and `~` behind it"
                .to_owned(),
        ),
        other => (
            FindingKind::NoAnswer,
            format!("it does not answer as a plugin: {}", told(other)),
            "look at the driver's log; the kubelet waits one second for the answer".to_owned(),
        ),
    };
    Some(Finding::new(kind, subject, problem, advice))
}

fn told<T>(answer: &Answer<T>) -> String {
    match answer {
        Answer::Good(_) => "it answers".into(),
        Answer::Refused => "nobody listens".into(),
        Answer::Missing => "there is no such file".into(),
        Answer::CannotBeDialled => "the call is reset".into(),
        Answer::Silent => "no answer in time".into(),
        Answer::Failed(why) => why.clone(),
    }
}

/// Drivers that ought to be here: the one that was named, or those that have devices on this node.
fn absent(snapshot: &Snapshot, sockets: &[RegistrationSocket]) -> Vec<Finding> {
    let wanted: BTreeSet<&str> = match &snapshot.driver {
        Some(driver) => BTreeSet::from([driver.as_str()]),
        None => snapshot.drivers_here.seen().into_iter().flatten().map(String::as_str).collect(),
    };
    let is_there = |driver: &str| {
        sockets.iter().any(|socket| {
            let name = socket.path.file_name().unwrap_or_default().to_string_lossy();
            driver_of(socket) == Some(driver) || (driver_of(socket).is_none() && name.starts_with(driver))
        })
    };
    let absent = wanted.into_iter().filter(|driver| !is_there(driver));
    absent
        .map(|driver| {
            let folder = snapshot.kubelet_root.join("plugins_registry");
            Finding::new(
                FindingKind::NoRegistrationSocket,
                format!("driver {driver}"),
                format!("it has no registration socket in {}", folder.display()),
                "start the driver on this node; if it runs, its kubelet root or the mount of that folder is wrong",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::{Looked, PluginInfo};

    fn info(kind: &str) -> PluginInfo {
        PluginInfo {
            kind: kind.into(),
            name: "gpu.example.com".into(),
            endpoint: "/dra.sock".into(),
            versions: vec!["v1.DRAPlugin".into()],
        }
    }

    fn seen(name: &str, answer: Answer<PluginInfo>, service: Answer<()>) -> Snapshot {
        let path = format!("/var/lib/kubelet/plugins_registry/{name}").into();
        Snapshot {
            kubelet_root: "/var/lib/kubelet".into(),
            registry: Looked::At(vec![RegistrationSocket { path, answer, service }]),
            drivers_here: Looked::At(BTreeSet::new()),
            ..Snapshot::default()
        }
    }

    #[test]
    fn each_fault_of_a_socket_has_its_own_words() {
        let ours = "dra-0@gpu.example.com-reg.sock";
        let good = || Answer::Good(info("DRAPlugin"));
        assert_eq!(check(&seen(ours, good(), Answer::Good(()))), Verdict::HEALTHY);
        for (answer, service, words) in [
            (Answer::Refused, Answer::Missing, "nobody listens"),
            (Answer::CannotBeDialled, Answer::Missing, "as authority"),
            (Answer::Silent, Answer::Missing, "no answer in time"),
            (Answer::Failed("odd".into()), Answer::Missing, "odd"),
            (good(), Answer::Missing, "/dra.sock, the socket of its service, does not exist"),
            (good(), Answer::Refused, "nobody listens on /dra.sock"),
        ] {
            let verdict = check(&seen(ours, answer, service));
            assert!(only(&verdict).problem.contains(words), "{verdict:?}");
        }
    }

    #[test]
    fn other_plugins_are_not_our_business() {
        for (name, answer) in
            [("csi.example.com-reg.sock", Answer::Refused), ("x@y-reg.sock", Answer::Good(info("CSIPlugin")))]
        {
            assert_eq!(check(&seen(name, answer, Answer::Missing)), Verdict::HEALTHY, "{name}");
        }
        let mut go = seen("gpu.example.com-reg.sock", Answer::Refused, Answer::Missing);
        go.driver = Some("gpu.example.com".into());
        assert!(only(&check(&go)).problem.contains("nobody listens"), "a Go driver that was asked for");
    }

    #[test]
    fn a_driver_without_a_socket_is_told() {
        let mut snapshot = Snapshot {
            kubelet_root: "/var/lib/kubelet".into(),
            registry: Looked::At(Vec::new()),
            ..Snapshot::default()
        };
        assert!(matches!(check(&snapshot), Verdict::NotAsked(_)), "it is not known who ought to be here");
        snapshot.drivers_here = Looked::At(BTreeSet::new());
        assert_eq!(check(&snapshot), Verdict::HEALTHY);
        snapshot.drivers_here = Looked::At(BTreeSet::from(["gpu.example.com".to_owned()]));
        assert!(only(&check(&snapshot)).problem.contains("no registration socket"), "it has slices here");
        snapshot.driver = Some("net.example.com".into());
        assert_eq!(only(&check(&snapshot)).subject, "driver net.example.com");
    }
}
