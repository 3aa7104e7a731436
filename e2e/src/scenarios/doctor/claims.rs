//! Claims and devices that somebody else has, or that cannot be used.

use std::time::Duration;

use anyhow::{Context as _, Result};
use dra_doctor::{FindingKind, ObstacleKind};
use k8s_openapi::api::{
    core::v1::Namespace,
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Doctor, RUNS_WITHIN};
use crate::{
    context::Context,
    node,
    pod::ShellPod,
    scenarios::gpu::{self, DRIVER},
};

pub(super) const TRIED_WITHIN: Duration = Duration::from_secs(30);
/// Most pods that a claim can be reserved for.
const MOST_CONSUMERS: usize = 256;

/// All devices are held; a claim is in use, and on its way out.
pub(super) async fn held(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let important = format!("{}-important", cx.namespace);
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": important}, "value": 1000,
    });
    cx.apply(&class.to_string()).await?;
    gpu::start_registered(cx, &["--num-devices", "1"]).await?;
    gpu::apply_claim(cx, "shared").await?;
    cx.create_pod(&ShellPod::print_env("holder").claim("shared").build()).await?;
    cx.wait_running("holder", RUNS_WITHIN).await?;

    let mut pod = ShellPod::print_env("important").template("one-gpu").build();
    pod.spec.as_mut().context("a pod without a spec")?.priority_class_name = Some(important.clone());
    cx.create_pod(&pod).await?;
    cx.wait_event("important", "FailedScheduling", TRIED_WITHIN).await?;
    let said = Doctor::of_pod(cx, "important").await?;
    said.keeps_away(ObstacleKind::Held, &format!("held by claim {}/shared", cx.namespace))?;
    let holder = format!("hold devices that it could have: {}/holder", cx.namespace);
    said.names(FindingKind::NotPreempted, &holder)?;

    // It can run only where the claim's device is, and is kept from there.
    let mut elsewhere = ShellPod::print_env("elsewhere").claim("shared").build();
    let spec = elsewhere.spec.as_mut().context("a pod without a spec")?;
    spec.node_selector = Some([("no".to_owned(), "where".to_owned())].into());
    cx.create_pod(&elsewhere).await?;
    cx.wait_event("elsewhere", "FailedScheduling", TRIED_WITHIN).await?;
    let in_use = format!("in use by {}/holder on {}", cx.namespace, node::NAME);
    Doctor::of_pod(cx, "elsewhere").await?.names(FindingKind::ClaimUsedElsewhere, &in_use)?;

    let claims = cx.api::<ResourceClaim>();
    claims.delete("shared", &DeleteParams::default()).await.context("deleting the claim in use")?;
    let said = Doctor::of_claim(cx, "shared").await?;
    said.names(FindingKind::ClaimProtected, "is protected as long as it is reserved for")?;
    let classes: Api<PriorityClass> = Api::all(cx.client.clone());
    classes.delete(&important, &DeleteParams::default()).await.map(drop).context("deleting a PriorityClass")
}

/// Claims that no pod uses, that cannot be made, that are held back, and that are full.
pub(super) async fn unusable(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::apply_claim(cx, "unused").await?;
    Doctor::of_claim(cx, "unused").await?.names(FindingKind::ClaimUnused, "no pod uses it")?;
    not_made(cx).await?;

    let claims = cx.api::<ResourceClaim>();
    let finalizers = |names: &Value| Patch::Merge(json!({"metadata": {"finalizers": names}}));
    let patched = PatchParams::default();
    claims.patch("unused", &patched, &finalizers(&json!(["e2e.test/keep"]))).await?;
    claims.delete("unused", &DeleteParams::default()).await.context("deleting a claim that is held back")?;
    let said = Doctor::of_claim(cx, "unused").await?;
    said.names(FindingKind::ClaimHeldBack, "is held back by finalizers: e2e.test/keep")?;
    claims.patch("unused", &patched, &finalizers(&json!([]))).await?;

    // The controller manager would take pods that do not exist off the claim.
    node::component("stop", "manager").await?;
    let named = full(cx).await;
    node::component("start", "manager").await?;
    named
}

/// Access for administrators, in a namespace that is not for them any more.
async fn not_made(cx: &Context) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cx.client.clone());
    let for_administrators = |label: &Value| {
        let labels = json!({"resource.kubernetes.io/admin-access": label});
        Patch::Merge(json!({"metadata": {"labels": labels}}))
    };
    let patched = PatchParams::default();
    namespaces.patch(&cx.namespace, &patched, &for_administrators(&json!("true"))).await?;
    let exactly = json!({"deviceClassName": DRIVER, "adminAccess": true});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "admin"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    });
    cx.apply(&template.to_string()).await?;
    namespaces.patch(&cx.namespace, &patched, &for_administrators(&Value::Null)).await?;
    cx.create_pod(&ShellPod::print_env("admin").template("admin").build()).await?;
    cx.wait_event("admin", "FailedResourceClaimCreation", TRIED_WITHIN).await?;
    let said = Doctor::of_pod(cx, "admin").await?;
    said.names(FindingKind::ClaimNotMade, "cannot be made from ResourceClaimTemplate \"admin\"")?;
    let templates = cx.api::<ResourceClaimTemplate>();
    templates.delete("admin", &DeleteParams::default()).await.map(drop).context("deleting a template")
}

/// A claim that as many pods have as can be, and one more that waits for it.
async fn full(cx: &Context) -> Result<()> {
    gpu::apply_claim(cx, "full").await?;
    let consumer = |number| {
        let name = format!("pod-{number}");
        json!({"resource": "pods", "name": name, "uid": format!("uid-of-{name}")})
    };
    let consumers: Vec<Value> = (0..MOST_CONSUMERS).map(consumer).collect();
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": "none", "device": "none"});
    let status = json!({"status": {
        "allocation": {"devices": {"results": [result]}}, "reservedFor": consumers,
    }});
    let claims = cx.api::<ResourceClaim>();
    let patched = claims.patch_status("full", &PatchParams::default(), &Patch::Merge(status)).await;
    patched.context("reserving a claim for many pods")?;
    cx.create_pod(&ShellPod::print_env("late").claim("full").build()).await?;
    cx.wait_event("late", "FailedScheduling", TRIED_WITHIN).await?;
    Doctor::of_pod(cx, "late").await?.names(FindingKind::ClaimFull, "it is reserved for 256 others")
}

/// A driver that cannot prepare a device.
pub(super) async fn unprepared(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "1", "--fail-prepare", "gpu-0"]).await?;
    cx.create_pod(&ShellPod::print_env("failing").template("one-gpu").build()).await?;
    cx.wait_event("failing", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    let said = Doctor::of_pod(cx, "failing").await?;
    said.names(FindingKind::NotPrepared, "its devices cannot be prepared on node node-1")
}

/// Makes a claim that asks for these devices.
pub(super) async fn apply_claim(cx: &Context, name: &str, devices: &Value) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name}, "spec": {"devices": devices},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}
