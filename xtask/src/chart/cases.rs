//! With which values a chart is rendered, and what has to come of it.

mod mock;
mod nvidia;

use serde_yaml_ng::Mapping;

pub(super) use self::{mock::extremes as of_mock, nvidia::extremes as of_nvidia};

/// One call of `helm template`.
pub(super) struct Case {
    release: String,
    namespace: &'static str,
    set: Vec<String>,
    outcome: Outcome,
}

/// What has to come of a case.
pub(super) enum Outcome {
    /// Objects, of these kinds among others; with `!` before it, none of that kind.
    Rendered(&'static [&'static str]),
    /// An error with these words.
    Refused(Vec<String>),
}

impl Case {
    fn rendered(set: &[&str], kinds: &'static [&'static str]) -> Self {
        Self {
            release: "r".to_owned(),
            namespace: "dra",
            set: set.iter().map(|&value| value.to_owned()).collect(),
            outcome: Outcome::Rendered(kinds),
        }
    }

    fn refused(set: &[&str], words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { outcome: Outcome::Refused(words), ..Self::rendered(set, &[]) }
    }

    fn release_named(self, release: String) -> Self {
        Self { release, ..self }
    }

    fn in_namespace(self, namespace: &'static str) -> Self {
        Self { namespace, ..self }
    }

    pub(super) fn release(&self) -> &str {
        &self.release
    }

    pub(super) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["template", &self.release, "CHART", "--namespace", self.namespace];
        for value in &self.set {
            arguments.extend(["--set", value]);
        }
        arguments
    }
}

/// Each value of the top level left out: `null` takes the chart's own away, too. A driver cannot be without those that are
/// required.
pub(super) fn without_each(values: &Mapping, required: &[&str]) -> Vec<Case> {
    let keys = values.keys().filter_map(|key| key.as_str());
    keys.map(|key| {
        let set = format!("{key}=null");
        if required.contains(&key) {
            Case::refused(&[&set], &[key, "missing"])
        } else {
            Case::rendered(&[&set], &["DaemonSet"])
        }
    })
    .collect()
}

/// What holds for every chart.
fn of_any() -> Vec<Case> {
    vec![
        Case::rendered(&[], &["DaemonSet"]).release_named("r".repeat(53)),
        Case::rendered(&[], &["DaemonSet", "!ResourceQuota"]).in_namespace("kube-system"),
        Case::rendered(&["kubeletRoot=/data/k", "cdiRoot=/etc/cdi"], &["DaemonSet"]),
        Case::rendered(&["listenAddress=[::]"], &["DaemonSet"]),
        Case::rendered(
            &["volumes[0].name=x", "volumes[0].hostPath.path=/x", "volumeMounts[0].name=x"],
            &["DaemonSet"],
        ),
        Case::refused(&[], &["namespace `default`"]).in_namespace("default"),
        Case::rendered(&["allowDefaultNamespace=true"], &["DaemonSet"]).in_namespace("default"),
        Case::refused(&["kubletRoot=/data/k"], &["kubletRoot", "not allowed"]),
        Case::refused(&["kubeletRoot=/data/100%"], &["kubeletRoot"]),
        Case::refused(&["kubeletRoot=data"], &["kubeletRoot"]),
        Case::refused(&["metricsPort=70000"], &["metricsPort"]),
    ]
}
