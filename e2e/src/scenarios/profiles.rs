//! What the mock driver can play beside plain GPUs: partitions, shares, devices that have to be made ready first, network
//! interfaces and CPUs; and health by annotations. Network interfaces and CPUs come by helm.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    gpu::{self, DRIVER},
    gpu_health,
};
use crate::{
    chart,
    context::Context,
    eventually::eventually,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(15);
const NET: &str = "net.example.com";
const CPU: &str = "cpu.example.com";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("gpu_is_given_away_in_partitions_or_as_a_whole", |cx| Box::pin(partitions(cx))),
        Scenario::new("gpu_is_shared_by_claims_that_each_know_their_part", |cx| Box::pin(shares(cx))),
        Scenario::new("pod_waits_until_the_binding_controller_says_its_gpu_is_ready", |cx| {
            Box::pin(binding_conditions(cx))
        }),
        Scenario::new("annotations_of_a_pod_say_how_gpus_are", |cx| Box::pin(annotations(cx))),
        Scenario::new("network_interface_is_shared_by_bandwidth", |cx| Box::pin(net(cx))),
        // Its gate is on in a smoke leg only.
        Scenario::new("cpus_of_a_claim_are_cpus_of_the_node", |cx| Box::pin(cpu(cx))).tier(Tier::Smoke),
    ]
}

async fn partitions(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRAPartitionableDevices").await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "2", "--gpu-partitions", "4"]).await?;
    cx.wait_devices(DRIVER, 10, SOON).await?;
    let full = format!("device.attributes['{DRIVER}'].?full.orValue(false)");
    let whole = json!({"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": full}}]});

    let two = env_of_pod(cx, "two", &json!({"deviceClassName": DRIVER, "count": 2})).await?;
    for part in [0, 1] {
        let variable = format!("GPU_DEVICE_0_PARTITION_{part}");
        ensure!(two.get(&variable) == Some(&format!("gpu-0-partition-{part}")), "{variable} in {two:?}");
    }
    let env = env_of_pod(cx, "whole", &whole).await?;
    ensure!(env.get("GPU_DEVICE_1_FULL").map(String::as_str) == Some("gpu-1-full"), "{env:?}");
    ensure!(env.contains_key("GPU_DEVICE_GPU_1_FULL_RESOURCE_CLAIM"), "{env:?}");

    make_pod(cx, "waiting", &whole, None).await?;
    wait_unschedulable(cx, "waiting").await?;
    cx.delete_pod("two", RUNS_WITHIN).await?;
    cx.wait_running("waiting", RUNS_WITHIN).await?;
    let env = env_of(cx, "waiting").await?;
    ensure!(env.contains_key("GPU_DEVICE_0_FULL"), "{env:?}");
    end(cx, &["whole", "waiting"]).await
}

async fn shares(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRAConsumableCapacity").await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "1", "--gpu-allow-multiple-allocations"]).await?;
    let slices = cx.wait_devices(DRIVER, 1, SOON).await?;
    let published = serde_json::to_value(&slices[0].spec.devices).context("writing devices")?;
    let policy = &published[0]["capacity"]["memory"]["requestPolicy"];
    ensure!(policy["default"] == "80Gi" && policy["validRange"]["step"] == "1Gi", "{published}");

    let part =
        json!({"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "16Gi", "compute": "20"}}});
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let mut env = env_of_pod(cx, name, &part).await?;
        for (variable, expected) in
            [("GPU_DEVICE_0", "gpu-0"), ("GPU_DEVICE_0_MEMORY", "16Gi"), ("GPU_DEVICE_0_COMPUTE", "20")]
        {
            ensure!(env.get(variable).map(String::as_str) == Some(expected), "{variable} in {env:?}");
        }
        ids.push(env.remove("GPU_DEVICE_0_SHARE_ID").with_context(|| format!("no share in {env:?}"))?);
    }
    ensure!(ids[0] != ids[1], "both have share {ids:?}");
    // 48 GiB are left.
    let too_much =
        json!({"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "49Gi", "compute": "1"}}});
    make_pod(cx, "waiting", &too_much, None).await?;
    wait_unschedulable(cx, "waiting").await?;
    end(cx, &["one", "two", "waiting"]).await
}

async fn binding_conditions(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRADeviceBindingConditions").await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "1", "--binding-conditions"]).await?;
    cx.wait_devices(DRIVER, 1, SOON).await?;
    make_pod(cx, "p", &json!({"deviceClassName": DRIVER}), None).await?;
    let allocated = || async {
        let status = cx.api::<ResourceClaim>().get("p").await?.status;
        Ok(status.and_then(|status| status.allocation))
    };
    let allocation = eventually("claim p allocated", SOON, allocated).await?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    ensure!(
        results.iter().all(|result| result.binding_conditions == Some(vec!["BindingConditions".to_owned()])),
        "{results:?}"
    );
    let spec = cx.api::<Pod>().get("p").await?.spec;
    ensure!(spec.is_some_and(|spec| spec.node_name.is_none()), "the pod is bound before its GPU is ready");

    let administrator = ["binding-controller", "--kubeconfig", "/run/cluster/conf/admin.kubeconfig"];
    let controller = cx.start_driver("mock-gpu-driver", &administrator)?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    // What the controller says stands beside what the driver says.
    let both = || async {
        let status = cx.api::<ResourceClaim>().get("p").await?.status.unwrap_or_default();
        let conditions =
            status.devices.into_iter().flatten().flat_map(|entry| entry.conditions.unwrap_or_default());
        let said: BTreeMap<_, _> = conditions.map(|condition| (condition.type_, condition.status)).collect();
        let is = |kind: &str| said.get(kind).is_some_and(|status| status == "True");
        Ok((is("BindingConditions") && is("Ready")).then_some(()))
    };
    eventually("both conditions in the status of claim p", SOON, both).await?;
    ensure!(controller.is_running().await?, "the controller has ended");
    ensure!(controller.terminate(SOON).await?.success(), "the controller does not stop well");
    end(cx, &["p"]).await
}

async fn annotations(cx: &Context) -> Result<()> {
    if !gpu_health::is_shown(cx).await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    let name = "health";
    let rights = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "resourceNames": [name], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "driver"}],
    });
    for object in [rights, binding] {
        cx.apply(&object.to_string()).await?;
    }
    cx.create_pod(&ShellPod::new(name, "exec sleep 3600").build()).await?;
    let pod = format!("{}/{name}", cx.namespace);
    gpu::start_registered(cx, &["--num-devices", "1", "--health-pod", &pod]).await?;
    make_pod(cx, "p", &json!({"deviceClassName": DRIVER}), None).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;

    let said = format!("so says annotation health.example.com/gpu-0 of pod {pod}");
    for (value, shown, message) in [
        (json!("unhealthy"), "Unhealthy", said.as_str()),
        (json!("unknown"), "Unknown", said.as_str()),
        (json!(null), "Healthy", ""),
    ] {
        let patch = json!({"metadata": {"annotations": {"health.example.com/gpu-0": value}}});
        let annotated = cx.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        annotated.with_context(|| format!("annotating pod {name}"))?;
        gpu_health::wait_shown(cx, "p", shown, message, SOON).await?;
    }
    end(cx, &["p"]).await
}

async fn net(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRAConsumableCapacity").await? {
        return Ok(());
    }
    install_profile(cx, "net", NET).await?;
    let requests = json!({"ingressBandwidth": "10G", "egressBandwidth": "5G"});
    let burst = json!({
        "apiVersion": "net.resource.example.com/v1alpha1", "kind": "NetConfig", "bwBurst": {"ingressBurst": 1_000_000},
    });
    let config = json!([{"requests": ["device"], "opaque": {"driver": NET, "parameters": burst}}]);
    make_pod(cx, "fast", &json!({"deviceClassName": NET, "capacity": {"requests": requests}}), Some(config))
        .await?;
    make_pod(cx, "usual", &json!({"deviceClassName": NET}), None).await?;
    let table =
        [("fast", "10000000000", "5000000000", Some("1000000")), ("usual", "1000000000", "1000000000", None)];
    for (pod, ingress, egress, burst) in table {
        cx.wait_running(pod, RUNS_WITHIN).await?;
        let env = env_of(cx, pod).await?;
        for (variable, expected) in [
            ("NET_DEVICE_0", Some("nic-0")),
            ("NET_DEVICE_0_INGRESS_RATE", Some(ingress)),
            ("NET_DEVICE_0_EGRESS_RATE", Some(egress)),
            ("NET_DEVICE_0_INGRESS_BURST", burst),
        ] {
            ensure!(env.get(variable).map(String::as_str) == expected, "{variable} in {env:?}");
        }
    }
    for pod in ["fast", "usual"] {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

async fn cpu(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRANodeAllocatableResources").await? {
        return Ok(());
    }
    install_profile(cx, "cpu", CPU).await?;
    let request = |name: &str| {
        json!({"name": name, "exactly": {"deviceClassName": CPU,
            "capacity": {"requests": {"cpu.example.com/cpu": "500m"}}}})
    };
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "p"},
        "spec": {"devices": {"requests": [request("cpu0"), request("cpu1")]}},
    });
    cx.apply(&claim.to_string()).await?;
    cx.create_pod(&ShellPod::print_env("p").claim("p").build()).await?;
    let pod = cx.wait_running("p", RUNS_WITHIN).await?;
    let env = env_of(cx, "p").await?;
    ensure!(env.get("CPU_DEVICE_0").map(String::as_str) == Some("numa-0"), "{env:?}");
    ensure!(env.get("CPU_DEVICE_0_CONSUMED_CPU").map(String::as_str) == Some("500m"), "{env:?}");
    let status = serde_json::to_value(pod.status).context("writing the pod's status")?;
    let counted = &status["nodeAllocatableResourceClaimStatuses"];
    ensure!(counted[0]["mapping"][0] == json!({"name": "cpu", "quantity": "1"}), "the pod has {counted}");
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// Has helm install the driver of a profile with one device, and waits until that is offered.
async fn install_profile(cx: &Context, profile: &str, driver: &str) -> Result<()> {
    let profile = format!("deviceProfile={profile}");
    chart::MOCK.install(cx, &["webhook.enabled=false", &profile, "numDevices=1"]).await?;
    cx.wait_devices(driver, 1, SOON).await.map(drop)
}

/// Makes a claim with one request, and a pod of the same name that has it and prints its environment.
async fn make_pod(cx: &Context, name: &str, request: &Value, config: Option<Value>) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": request}], "config": config.unwrap_or(json!([]))}},
    });
    cx.apply(&claim.to_string()).await?;
    cx.create_pod(&ShellPod::print_env(name).claim(name).build()).await.map(drop)
}

/// The same, and waits for what it prints.
async fn env_of_pod(cx: &Context, name: &str, request: &Value) -> Result<BTreeMap<String, String>> {
    make_pod(cx, name, request, None).await?;
    cx.wait_running(name, RUNS_WITHIN).await?;
    env_of(cx, name).await
}

async fn env_of(cx: &Context, pod: &str) -> Result<BTreeMap<String, String>> {
    let env = gpu::env_of(cx, pod).await?;
    if !env.contains_key("DRA_RESOURCE_DRIVER_NAME") {
        bail!("pod {pod} has no device: {env:?}");
    }
    Ok(env)
}

async fn wait_unschedulable(cx: &Context, pod: &str) -> Result<()> {
    let refused = || async {
        let status = cx.api::<Pod>().get(pod).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let refused = |reason: &Option<String>| reason.as_deref() == Some("Unschedulable");
        Ok(conditions.iter().any(|condition| refused(&condition.reason)).then_some(()))
    };
    eventually(&format!("pod {pod} has to wait"), SOON, refused).await
}

async fn end(cx: &Context, pods: &[&str]) -> Result<()> {
    for pod in pods {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}
