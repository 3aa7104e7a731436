//! Those of the NVIDIA driver's chart.

use super::{Case, of_any};

/// Everything on, everything off, and what must not be.
pub(in crate::chart) fn extremes() -> Vec<Case> {
    const OFF: [&str; 8] = [
        "admissionPolicies.enabled=false",
        "deviceClasses.create=false",
        "metricsService.enabled=false",
        "metricsPort=null",
        "nodeEvents=false",
        "priorityClassName=",
        "affinity=null",
        "tolerations=null",
    ];
    const ON: [&str; 11] = [
        "nvidiaDriverRoot=/home/kubernetes/bin/nvidia",
        "nvidiaCDIHookPath=/usr/bin/nvidia-cdi-hook",
        "dynamicMig=true",
        "passthrough=true",
        "checkProcesses=false",
        "health=false",
        "additionalXidsToIgnore={94,95}",
        "forgiveXidsAfter=3600",
        "log.format=json",
        "env[0].name=X",
        "podAnnotations.a=b",
    ];
    let own = vec![
        Case::rendered(
            &[],
            &["DaemonSet", "DeviceClass", "ResourceQuota", "Service", "ValidatingAdmissionPolicy"],
        ),
        Case::rendered(
            &OFF,
            &[
                "DaemonSet",
                "!DeviceClass",
                "!ResourceQuota",
                "!Role",
                "!Service",
                "!ValidatingAdmissionPolicy",
            ],
        ),
        Case::rendered(&ON, &["DaemonSet"]),
        Case::rendered(&["deviceClasses.extendedResourceName=nvidia.com/gpu"], &["DeviceClass"]),
        Case::refused(&["nvidiaDriverRoot=run/nvidia"], &["nvidiaDriverRoot"]),
        Case::refused(&["nvidiaDriverRoot=/run/nvidia/"], &["nvidiaDriverRoot"]),
        Case::refused(&["dynamicMig=maybe"], &["dynamicMig"]),
        Case::refused(&["pollInterval=0"], &["pollInterval"]),
        Case::refused(&["additionalXidsToIgnore={all}"], &["additionalXidsToIgnore"]),
        Case::refused(&["deviceClasses.extendedResourceName=gpu"], &["extendedResourceName"]),
    ];
    own.into_iter().chain(of_any()).collect()
}
