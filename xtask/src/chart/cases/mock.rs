//! Those of the mock driver's chart.

use super::{Case, of_any};

/// The longest name of a driver, everything on, everything off, and what must not be.
pub(in crate::chart) fn extremes() -> Vec<Case> {
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
    const ON: [&str; 12] = [
        "networkPolicy.enabled=true",
        "networkPolicy.metricsPeers[0].namespaceSelector.matchLabels.a=b",
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
    let long_driver = format!("driverName={}.{}", "d".repeat(31), "e".repeat(31));
    let too_long = format!("driverName={}", "d".repeat(64));
    let with_secret = "webhook.certificate.source=secret";
    let own = vec![
        Case::rendered(&[], &["DaemonSet", "DeviceClass", "ResourceQuota", "Secret", "Service", "!Issuer"]),
        Case::rendered(&[&long_driver], &["DeviceClass"]),
        Case::rendered(&["deviceProfile=net"], &["DeviceClass"]),
        Case::rendered(&["deviceProfile=cpu"], &["DeviceClass"]),
        Case::rendered(
            &OFF,
            &[
                "DaemonSet",
                "!DeviceClass",
                "!ResourceQuota",
                "!NetworkPolicy",
                "!Role",
                "!Secret",
                "!Service",
                "!ValidatingAdmissionPolicy",
                "!ValidatingWebhookConfiguration",
            ],
        ),
        Case::rendered(&ON, &["DaemonSet", "Deployment", "NetworkPolicy", "PodDisruptionBudget"]),
        Case::rendered(&["networkPolicy.enabled=true"], &["NetworkPolicy"]),
        Case::rendered(&["webhook.replicas=1"], &["Deployment", "!PodDisruptionBudget"]),
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
        Case::refused(&["deviceProfile=tpu"], &["deviceProfile", "gpu"]),
        Case::refused(&["driverName=GPU!"], &["driverName"]),
        Case::refused(&[&too_long], &["driverName"]),
        Case::refused(&["numDevices=-1"], &["numDevices"]),
        Case::refused(&["gpu.partitions=many"], &["partitions"]),
        Case::refused(&["taintUnhealthy=Always"], &["taintUnhealthy"]),
    ];
    own.into_iter().chain(of_any()).collect()
}
