//! With which values the chart is rendered, and what has to come of it.

use serde_yaml_ng::Mapping;

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
            release: "mock".to_owned(),
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

/// What a driver cannot be without; everything else may be left out.
const REQUIRED: [&str; 4] = ["deviceProfile", "image", "kubeletRoot", "cdiRoot"];

/// Each value of the top level left out: `null` takes the chart's own away, too.
pub(super) fn without_each(values: &Mapping) -> Vec<Case> {
    let keys = values.keys().filter_map(|key| key.as_str());
    keys.map(|key| {
        let set = format!("{key}=null");
        if REQUIRED.contains(&key) {
            Case::refused(&[&set], &[key, "missing"])
        } else {
            Case::rendered(&[&set], &["DaemonSet"])
        }
    })
    .collect()
}

/// The longest names, everything on, everything off, and what must not be.
pub(super) fn extremes() -> Vec<Case> {
    const OFF: [&str; 8] = [
        "webhook.enabled=false",
        "admissionPolicies.enabled=false",
        "deviceClass.create=false",
        "metricsService.enabled=false",
        "metricsPort=null",
        "nodeEvents=false",
        "priorityClassName=",
        "resources=null",
    ];
    const ON: [&str; 10] = [
        "gpu.partitions=64",
        "gpu.allowMultipleAllocations=true",
        "gpu.bindingConditions=true",
        "healthAnnotations=true",
        "taintUnhealthy=NoExecute",
        "log.format=json",
        "webhook.replicas=100",
        "tolerations[0].operator=Exists",
        "env[0].name=X",
        "podAnnotations.a=b",
    ];
    let long_release = "r".repeat(53);
    let long_driver = format!("driverName={}.{}", "d".repeat(31), "e".repeat(31));
    let too_long = format!("driverName={}", "d".repeat(64));
    let with_secret = "webhook.certificate.source=secret";
    vec![
        Case::rendered(&[], &["DaemonSet", "DeviceClass", "ResourceQuota", "Secret", "Service", "!Issuer"]),
        Case::rendered(&[], &["DaemonSet"]).release_named(long_release),
        Case::rendered(&[], &["DaemonSet", "!ResourceQuota"]).in_namespace("kube-system"),
        Case::rendered(&[&long_driver], &["DeviceClass"]),
        Case::rendered(&["deviceProfile=net"], &["DeviceClass"]),
        Case::rendered(&["deviceProfile=cpu"], &["DeviceClass"]),
        Case::rendered(
            &OFF,
            &[
                "DaemonSet",
                "!DeviceClass",
                "!ResourceQuota",
                "!Role",
                "!Secret",
                "!Service",
                "!ValidatingAdmissionPolicy",
                "!ValidatingWebhookConfiguration",
            ],
        ),
        Case::rendered(&ON, &["DaemonSet", "Deployment"]),
        Case::rendered(&["kubeletRoot=/data/k", "cdiRoot=/etc/cdi"], &["DaemonSet"]),
        Case::rendered(&["listenAddress=[::]"], &["DaemonSet"]),
        Case::rendered(&["webhook.certificate.source=certManager"], &["Certificate", "Issuer", "!Secret"]),
        Case::rendered(
            &["webhook.certificate.source=certManager", "webhook.certificate.issuerRef.name=ours"],
            &["Certificate", "!Issuer", "!Secret"],
        ),
        Case::rendered(
            &[with_secret, "webhook.certificate.secretName=s", "webhook.certificate.caBundle=Y2E="],
            &["ValidatingWebhookConfiguration", "!Secret", "!Certificate"],
        ),
        Case::refused(&[with_secret], &["webhook.certificate.secretName"]),
        Case::refused(&[with_secret, "webhook.certificate.secretName=s"], &["webhook.certificate.caBundle"]),
        Case::refused(&[], &["namespace `default`"]).in_namespace("default"),
        Case::rendered(&["allowDefaultNamespace=true"], &["DaemonSet"]).in_namespace("default"),
        Case::refused(&["kubletRoot=/data/k"], &["kubletRoot", "not allowed"]),
        Case::refused(&["kubeletRoot=/data/100%"], &["kubeletRoot"]),
        Case::refused(&["kubeletRoot=data"], &["kubeletRoot"]),
        Case::refused(&["deviceProfile=tpu"], &["deviceProfile", "gpu"]),
        Case::refused(&["driverName=GPU!"], &["driverName"]),
        Case::refused(&[&too_long], &["driverName"]),
        Case::refused(&["numDevices=-1"], &["numDevices"]),
        Case::refused(&["gpu.partitions=many"], &["partitions"]),
        Case::refused(&["taintUnhealthy=Always"], &["taintUnhealthy"]),
        Case::refused(&["metricsPort=70000"], &["metricsPort"]),
    ]
}
