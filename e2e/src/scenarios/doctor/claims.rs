//! Pods that wait, and why.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::DeleteParams;
use serde_json::json;

use super::{Doctor, RUNS_WITHIN};
use crate::{
    context::Context,
    node,
    pod::ShellPod,
    scenarios::gpu::{self, DRIVER},
};

const TRIED_WITHIN: Duration = Duration::from_secs(10);
/// Nobody prepares its devices: no pod gets one.
const NOBODY: &str = "nobody.example.com";

/// Pools that nobody made by a driver. Each device is kept from `wants` by another reason.
const DEVICES: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nobody.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'nobody.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-devices}
spec:
  driver: nobody.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 2}
  devices:
    - name: other-model
      attributes: {model: {string: T4}}
    - name: tainted
      attributes: {model: {string: A100}}
      taints: [{key: broken, value: fan, effect: NoSchedule}]
    - name: too-large
      attributes: {model: {string: A100}}
      consumesCounters: [{counterSet: memory, counters: {bytes: {value: 80Gi}}}]
    - name: too-small
      allowMultipleAllocations: true
      attributes: {model: {string: H100}, numa: {int: 0}}
      capacity: {memory: {value: 40Gi}}
    - name: too-small-too
      allowMultipleAllocations: true
      attributes: {model: {string: H100}, numa: {int: 1}}
      capacity: {memory: {value: 40Gi}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-counters}
spec:
  driver: nobody.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: memory, counters: {bytes: {value: 40Gi}}}]
"#;

/// A claim of each kind that gets no device of [`DEVICES`].
pub(super) async fn pending(cx: &Context) -> Result<()> {
    cx.apply(DEVICES).await?;
    let model = "device.attributes['nobody.example.com'].model == 'A100'";
    let by_model = json!([{"cel": {"expression": model}}]);
    let numa = json!([{"matchAttribute": format!("{NOBODY}/numa")}]);
    for (name, exactly, constraints) in [
        ("wants", json!({"selectors": by_model}), json!([])),
        ("share", json!({"capacity": {"requests": {"memory": "50Gi"}}}), json!([])),
        ("pair", json!({"count": 2, "capacity": {"requests": {"memory": "1Gi"}}}), numa),
    ] {
        let mut exactly = exactly;
        exactly["deviceClassName"] = json!(NOBODY);
        let devices = json!({"requests": [{"name": "r", "exactly": exactly}], "constraints": constraints});
        apply_claim(cx, name, &devices).await?;
        cx.create_pod(&ShellPod::print_env(name).claim(name).build()).await?;
        cx.wait_event(name, "FailedScheduling", TRIED_WITHIN).await?;
    }
    let said = doctor_of_pod(cx, "wants").await?;
    for words in [
        "device.attributes['nobody.example.com'].model == 'A100' is false: \
         device.attributes['nobody.example.com'].model is 'T4'",
        "taint broken=fan:NoSchedule is not tolerated",
        "needs 80Gi of counter bytes of set memory, of which 40Gi of 40Gi are left",
    ] {
        said.names("pending-claims", words)?;
    }
    let said = doctor_of_pod(cx, "share").await?;
    said.names("pending-claims", "50Gi of capacity memory are needed, 40Gi of 40Gi are left")?;
    said.names("pending-claims", "has no capacity memory")?;
    let said = doctor_of_pod(cx, "pair").await?;
    said.names("pending-claims", "they do not go together")?;
    said.names(
        "pending-claims",
        "has no attribute nobody.example.com/numa, which a constraint of the claim compares",
    )
}

/// All devices are held; a claim is in use, and on its way out.
pub(super) async fn held(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    for (name, value) in [("important", 1000), ("plain", 0)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": format!("{}-{name}", cx.namespace)}, "value": value,
        });
        cx.apply(&class.to_string()).await?;
    }
    gpu::start_registered(cx, &["--num-devices", "1"]).await?;
    gpu::apply_claim(cx, "shared").await?;
    cx.create_pod(&ShellPod::print_env("holder").claim("shared").build()).await?;
    cx.wait_running("holder", RUNS_WITHIN).await?;

    let mut important = ShellPod::print_env("important").template("one-gpu").build();
    let spec = important.spec.as_mut().context("a pod without a spec")?;
    spec.priority_class_name = Some(format!("{}-important", cx.namespace));
    cx.create_pod(&important).await?;
    cx.wait_event("important", "FailedScheduling", TRIED_WITHIN).await?;
    let said = doctor_of_pod(cx, "important").await?;
    said.names("pending-claims", &format!("held by claim {}/shared", cx.namespace))?;
    said.names("preemption", &format!("hold devices that it could have: {}/holder", cx.namespace))?;

    // It can run only where the claim's device is, and is kept from there.
    let mut elsewhere = ShellPod::print_env("elsewhere").claim("shared").build();
    let spec = elsewhere.spec.as_mut().context("a pod without a spec")?;
    spec.node_selector = Some([("no".to_owned(), "where".to_owned())].into());
    cx.create_pod(&elsewhere).await?;
    cx.wait_event("elsewhere", "FailedScheduling", TRIED_WITHIN).await?;
    let in_use = format!("in use by {}/holder on {}", cx.namespace, node::NAME);
    doctor_of_pod(cx, "elsewhere").await?.names("claim-in-use", &in_use)?;

    let claims = cx.api::<ResourceClaim>();
    claims.delete("shared", &DeleteParams::default()).await.context("deleting the claim in use")?;
    let said = Doctor::run(cx, &["claim", &format!("{}/shared", cx.namespace)]).await?;
    said.names("claim-in-use", "is protected as long as it is reserved for")?;
    for name in ["important", "plain"] {
        let classes = kube::Api::<k8s_openapi::api::scheduling::v1::PriorityClass>::all(cx.client.clone());
        classes.delete(&format!("{}-{name}", cx.namespace), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// A driver that cannot prepare a device.
pub(super) async fn unprepared(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "1", "--fail-prepare", "gpu-0"]).await?;
    cx.create_pod(&ShellPod::print_env("failing").template("one-gpu").build()).await?;
    cx.wait_event("failing", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    doctor_of_pod(cx, "failing").await?.names("prepare", "its devices cannot be prepared on node node-1")
}

/// Claims, templates, classes and slices that are not there.
pub(super) async fn missing(cx: &Context) -> Result<()> {
    let pod = |name: &str| ShellPod::print_env(name);
    cx.create_pod(&pod("no-claim").claim("nothing").build()).await?;
    cx.create_pod(&pod("no-template").template("nothing").build()).await?;
    let request = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]});
    apply_claim(cx, "classless", &request).await?;
    cx.create_pod(&pod("no-class").claim("classless").build()).await?;
    let slice = |name: &str, generation: i64, count: i64, pool: &str| {
        let pool = json!({"name": pool, "generation": generation, "resourceSliceCount": count});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": NOBODY, "allNodes": true, "pool": pool, "devices": [{"name": name}]},
        })
    };
    for slice in [slice("half", 1, 2, "half"), slice("old", 1, 1, "mixed"), slice("new", 2, 1, "mixed")] {
        cx.apply(&slice.to_string()).await?;
    }
    let said = Doctor::run(cx, &["cluster"]).await?;
    said.names("missing-objects", &format!("ResourceClaim {}/nothing, which does not exist", cx.namespace))?;
    said.names("missing-objects", "ResourceClaimTemplate \"nothing\", which does not exist")?;
    said.names("missing-objects", &format!("DeviceClass \"{DRIVER}\", which does not exist"))?;
    said.names("slices", "generation 1 has 1 slices of 2")?;
    said.names("slices", "several generations: 1 are older than generation 2")?;
    let unused = Doctor::run(cx, &["claim", &format!("{}/nothing", cx.namespace)]).await?;
    unused.names("missing-objects", "it does not exist")
}

async fn doctor_of_pod(cx: &Context, name: &str) -> Result<Doctor> {
    Doctor::run(cx, &["pod", &format!("{}/{name}", cx.namespace)]).await
}

async fn apply_claim(cx: &Context, name: &str, devices: &serde_json::Value) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name}, "spec": {"devices": devices},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}
