//! Plugins that the kubelet refuses, or has not registered.

use std::collections::BTreeMap;
use std::path::Path;

use super::sockets::driver_of;
use crate::finding::{Finding, Verdict};
use crate::kind::FindingKind;
use crate::snapshot::{Answer, PluginInfo, Snapshot, UnixSocket};

/// What kubelets from 1.34 on take.
const VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

pub(super) fn check(snapshot: &Snapshot) -> Verdict {
    snapshot.registry.verdict(|sockets| {
        let plugins: Vec<(&Path, &PluginInfo)> = sockets
            .iter()
            .filter(|socket| snapshot.driver.is_none() || driver_of(socket) == snapshot.driver.as_deref())
            .filter_map(|socket| match &socket.answer {
                Answer::Good(info) if info.kind == "DRAPlugin" => Some((socket.path.as_path(), info)),
                _ => None,
            })
            .collect();
        let mut findings: Vec<Finding> =
            plugins.iter().filter_map(|(path, info)| unacceptable(path, info)).collect();
        findings.extend(same_endpoint(&plugins));
        if !findings.is_empty() || plugins.is_empty() {
            return Verdict::Looked(findings);
        }
        snapshot.unix_sockets.verdict(|unix| not_registered(snapshot, &plugins, unix))
    })
}

/// What the kubelet would refuse as soon as it hears it.
fn unacceptable(path: &Path, info: &PluginInfo) -> Option<Finding> {
    let problem = if !info.endpoint.is_absolute() {
        format!("it names {:?} as its socket, which is no absolute path", info.endpoint.display().to_string())
    } else if !info.versions.iter().any(|version| VERSIONS.contains(&version.as_str())) {
        format!("it offers {:?}, of which the kubelet knows none: {}", info.versions, VERSIONS.join(", "))
    } else {
        return None;
    };
    let advice = "bring the driver up to date; the kubelet refuses it as it is";
    Some(Finding::new(FindingKind::UnacceptablePlugin, path.display().to_string(), problem, advice))
}

/// The kubelet refuses a plugin at an endpoint that it knows already.
fn same_endpoint(plugins: &[(&Path, &PluginInfo)]) -> Vec<Finding> {
    let mut by_endpoint: BTreeMap<(&str, &Path), Vec<&Path>> = BTreeMap::new();
    for (path, info) in plugins {
        by_endpoint.entry((&info.name, &info.endpoint)).or_default().push(path);
    }
    let shared = by_endpoint.into_iter().filter(|(_, paths)| paths.len() > 1);
    shared
        .map(|((driver, endpoint), paths)| {
            Finding::new(
                FindingKind::SameEndpoint,
                format!("driver {driver}"),
                format!(
                    "the kubelet refuses all but one of {} registration sockets: they name the same endpoint, {}",
                    paths.len(),
                    endpoint.display()
                ),
                "remove the registration sockets that the driver has not made, and restart it",
            )
            .details(paths.iter().map(|path| path.display().to_string()).collect())
        })
        .collect()
}

/// A kubelet that has registered a plugin keeps a connection to it.
fn not_registered(snapshot: &Snapshot, plugins: &[(&Path, &PluginInfo)], unix: &[UnixSocket]) -> Verdict {
    let mut findings = Vec::new();
    for (path, info) in plugins {
        let seen = |listening: bool| {
            unix.iter().any(|socket| socket.path == info.endpoint && socket.is_listening == listening)
        };
        if seen(false) {
            continue;
        }
        if !seen(true) {
            return Verdict::CouldNot(format!(
                "the driver that listens on {} is not seen in /proc: run this as root among the host's processes",
                info.endpoint.display()
            ));
        }
        let said = last_word(snapshot, &info.name);
        let problem = said.map_or_else(
            || "the kubelet has not registered it: it has no connection to its socket".to_owned(),
            |note| format!("the kubelet has no connection to its socket; the driver said: {note}"),
        );
        findings.push(
            Finding::new(
                FindingKind::NotRegistered,
                format!("driver {}", info.name),
                problem,
                "look for the driver's name in the kubelet's log; see that the kubelet runs",
            )
            .details(vec![path.display().to_string(), info.endpoint.display().to_string()]),
        );
    }
    Verdict::Looked(findings)
}

/// The last Event of a driver about its registration on this node, if it told of trouble.
fn last_word<'a>(snapshot: &'a Snapshot, driver: &str) -> Option<&'a str> {
    let events = snapshot.node_events.seen()?.iter();
    let ours = events.filter(|event| {
        event.reason.starts_with("DRADriver")
            && snapshot.node.as_ref().is_none_or(|node| *node == event.about.name)
            && event.note.split([' ', ':']).any(|word| word == driver)
    });
    let last = ours.max_by_key(|event| event.when)?;
    (last.reason != "DRADriverRegistered").then_some(last.note.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::only;
    use crate::snapshot::{Event, Looked, ObjectName, RegistrationSocket};

    fn socket(path: &str, endpoint: &str, versions: &[&str]) -> RegistrationSocket {
        let info = PluginInfo {
            kind: "DRAPlugin".into(),
            name: "gpu.example.com".into(),
            endpoint: endpoint.into(),
            versions: versions.iter().map(ToString::to_string).collect(),
        };
        RegistrationSocket { path: path.into(), answer: Answer::Good(info), service: Answer::Good(()) }
    }

    fn snapshot(sockets: Vec<RegistrationSocket>, unix: &[bool]) -> Snapshot {
        let unix = unix
            .iter()
            .map(|is_listening| UnixSocket { path: "/d.sock".into(), is_listening: *is_listening });
        Snapshot {
            registry: Looked::At(sockets),
            unix_sockets: Looked::At(unix.collect()),
            node_events: Looked::At(Vec::new()),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_plugin_with_a_connection_is_registered() {
        let good = || vec![socket("/r.sock", "/d.sock", &["v1.DRAPlugin"])];
        assert_eq!(check(&snapshot(good(), &[true, false])), Verdict::HEALTHY);
        let verdict = check(&snapshot(good(), &[true]));
        assert!(only(&verdict).problem.contains("has not registered it"), "{verdict:?}");
        assert!(matches!(check(&snapshot(good(), &[])), Verdict::CouldNot(_)), "its processes are not seen");
        assert_eq!(check(&snapshot(Vec::new(), &[])), Verdict::HEALTHY, "no driver, nothing to register");
    }

    #[test]
    fn what_the_driver_said_last_is_repeated() {
        let mut snapshot = snapshot(vec![socket("/r.sock", "/d.sock", &["v1.DRAPlugin"])], &[true]);
        let event = |reason: &str, note: &str, when| Event {
            about: ObjectName::new("", "node-1"),
            reason: reason.into(),
            note: note.into(),
            when,
        };
        let refused = event("DRADriverRefused", "the kubelet refused DRA driver gpu.example.com: why", 2);
        snapshot.node_events = Looked::At(vec![
            refused.clone(),
            event("DRADriverRefused", "the kubelet refused DRA driver net.example.com: other", 9),
            event("DRADriverRegistered", "the kubelet has registered DRA driver gpu.example.com", 1),
        ]);
        assert!(only(&check(&snapshot)).problem.ends_with(": why"));
        snapshot.node_events = Looked::At(vec![
            refused,
            event("DRADriverRegistered", "the kubelet has registered DRA driver gpu.example.com", 3),
        ]);
        assert!(!only(&check(&snapshot)).problem.contains("why"), "that was settled");
    }

    #[test]
    fn what_the_kubelet_refuses_is_told() {
        for (sockets, words) in [
            (vec![socket("/r.sock", "d.sock", &["v1.DRAPlugin"])], "no absolute path"),
            (vec![socket("/r.sock", "/d.sock", &["v2.DRAPlugin"])], "knows none"),
            (
                vec![
                    socket("/r.sock", "/d.sock", &["v1.DRAPlugin"]),
                    socket("/second.sock", "/d.sock", &["v1.DRAPlugin"]),
                ],
                "the same endpoint",
            ),
        ] {
            let verdict = check(&snapshot(sockets, &[true, false]));
            assert!(only(&verdict).problem.contains(words), "{verdict:?}");
        }
    }
}
