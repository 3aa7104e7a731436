//! Pods that wait for devices, and why.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use dra_doctor::{FindingKind, ObstacleKind};
use k8s_openapi::{
    api::{core::v1::ResourceRequirements, resource::v1::DeviceTaintRule},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use super::{
    Doctor,
    claims::{TRIED_WITHIN, apply_claim},
};
use crate::{context::Context, pod::ShellPod};

/// Nobody prepares its devices: no pod gets one.
const NOBODY: &str = "nobody.example.com";

const CLASS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nobody.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'nobody.example.com'"}}]}
"#;

/// A pool that no driver has made.
const DEVICES: &str = r"
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-plain}
spec:
  driver: nobody.example.com
  nodeName: node-1
  pool: {name: plain, generation: 1, resourceSliceCount: 1}
  devices:
    - {name: first, attributes: {model: {string: T4}, numa: {int: 0}}}
    - {name: second, attributes: {model: {string: T4}, numa: {int: 1}}}
    - {name: third, attributes: {model: {string: L4}}}
";

/// Others, where each device is kept away by something that depends on a gate.
const GATED: &str = r"
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-gated}
spec:
  driver: nobody.example.com
  nodeName: node-1
  pool: {name: gated, generation: 1, resourceSliceCount: 2}
  devices:
    - name: tainted
      attributes: {model: {string: A100}}
      taints: [{key: broken, value: fan, effect: NoSchedule}]
    - name: too-large
      attributes: {model: {string: A100}}
      consumesCounters: [{counterSet: memory, counters: {bytes: {value: 80Gi}}}]
    - name: too-small
      allowMultipleAllocations: true
      attributes: {model: {string: H100}}
      capacity: {memory: {value: 40Gi}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-counters}
spec:
  driver: nobody.example.com
  nodeName: node-1
  pool: {name: gated, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: memory, counters: {bytes: {value: 40Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: nobody-placed}
spec:
  driver: nobody.example.com
  perDeviceNodeSelection: true
  pool: {name: placed, generation: 1, resourceSliceCount: 1}
  devices:
    - {name: here, nodeName: node-1, attributes: {model: {string: T4}}}
    - {name: elsewhere, nodeName: node-2, attributes: {model: {string: A100}}}
";

/// Taints the devices of the driver.
const RULE: &str = r"
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: swap-fans}
spec:
  deviceSelector: {driver: nobody.example.com}
  taint: {key: maintenance, effect: NoSchedule}
";
/// The extended resource that each class has, by its name.
const EXTENDED: &str = "deviceclass.resource.kubernetes.io/nobody.example.com";

/// There is no device; a selector fails; devices do not fit, by a selector or together.
pub(super) async fn waiting(cx: &Context) -> Result<()> {
    cx.apply(CLASS).await?;
    wanting_pod(cx, "any", json!({}), &json!([])).await?;
    Doctor::of_pod(cx, "any").await?.names(FindingKind::NoDevices, "no node has devices of a usable pool")?;
    cx.delete_pod("any", TRIED_WITHIN).await?;

    cx.apply(DEVICES).await?;
    wanting_pod(cx, "wants", model("A100"), &json!([])).await?;
    let said = Doctor::of_pod(cx, "wants").await?;
    said.names(FindingKind::NoFreeDevice, "wants, request r asks for 1 and can have 0")?;
    let attribute = "device.attributes['nobody.example.com'].model";
    said.keeps_away(ObstacleKind::Selector, &format!("{attribute} == 'A100' is false: {attribute} is 'T4'"))?;

    let same_numa = json!([{"matchAttribute": format!("{NOBODY}/numa")}]);
    wanting_pod(cx, "pair", json!({"count": 2}), &same_numa).await?;
    let said = Doctor::of_pod(cx, "pair").await?;
    said.names(FindingKind::NoCombination, "they do not go together")?;
    let constraint = "has no attribute nobody.example.com/numa, which a constraint of the claim compares";
    said.keeps_away(ObstacleKind::NoAttribute, constraint)?;

    let selector = json!([{"cel": {"expression": "device.attributes['nobody.example.com'].vendor == 'x'"}}]);
    wanting_pod(cx, "fails", json!({"selectors": selector}), &json!([])).await?;
    let said = Doctor::of_pod(cx, "fails").await?;
    said.names(FindingKind::ClaimInvalid, "the scheduler gives the pod up")?;
    said.names(FindingKind::ClaimInvalid, "no such key: vendor")
}

/// What keeps devices away by fields that depend on gates.
pub(super) async fn kept_away(cx: &Context) -> Result<()> {
    cx.apply(CLASS).await?;
    cx.apply(GATED).await?;
    wanting_pod(cx, "wants", model("A100"), &json!([])).await?;
    let said = Doctor::of_pod(cx, "wants").await?;
    said.keeps_away(ObstacleKind::Taint, "taint broken=fan:NoSchedule is not tolerated")?;
    let counters = "needs 80Gi of counter bytes of set memory, of which 40Gi of 40Gi are left";
    said.keeps_away(ObstacleKind::Counters, counters)?;
    said.keeps_away(ObstacleKind::OtherNode, "is for other nodes")?;

    let share = json!({"capacity": {"requests": {"memory": "50Gi"}}});
    wanting_pod(cx, "share", share, &json!([])).await?;
    let said = Doctor::of_pod(cx, "share").await?;
    said.keeps_away(ObstacleKind::Capacity, "50Gi of capacity memory are needed, 40Gi of 40Gi are left")?;
    said.keeps_away(ObstacleKind::Capacity, "has no capacity memory")
}

/// An administrator has tainted the devices. A claim and an extended resource wait for them.
pub(super) async fn ruled(cx: &Context) -> Result<()> {
    cx.apply(CLASS).await?;
    cx.apply(DEVICES).await?;
    cx.apply(RULE).await?;
    let seen = tainted_by_rule(cx).await;
    let rules = Api::<DeviceTaintRule>::all(cx.client.clone());
    rules.delete("swap-fans", &DeleteParams::default()).await.context("deleting the rule")?;
    seen
}

async fn tainted_by_rule(cx: &Context) -> Result<()> {
    let rule = "taint maintenance:NoSchedule of DeviceTaintRule swap-fans is not tolerated";
    wanting_pod(cx, "any", json!({}), &json!([])).await?;
    Doctor::of_pod(cx, "any").await?.keeps_away(ObstacleKind::Taint, rule)?;

    let mut pod = ShellPod::print_env("extended").build();
    let amount = BTreeMap::from([(EXTENDED.to_owned(), Quantity("1".into()))]);
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers {
        let limits = Some(amount.clone());
        container.resources = Some(ResourceRequirements { limits, ..ResourceRequirements::default() });
    }
    cx.create_pod(&pod).await?;
    cx.wait_event("extended", "FailedScheduling", TRIED_WITHIN).await?;
    Doctor::of_pod(cx, "extended").await?.keeps_away(ObstacleKind::Taint, rule)
}

fn model(name: &str) -> Value {
    let expression = format!("device.attributes['nobody.example.com'].model == '{name}'");
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

/// A pod with a claim that asks for exactly this, once the scheduler has found that it cannot have it.
async fn wanting_pod(cx: &Context, name: &str, mut exactly: Value, constraints: &Value) -> Result<()> {
    exactly["deviceClassName"] = json!(NOBODY);
    let devices = json!({"requests": [{"name": "r", "exactly": exactly}], "constraints": constraints});
    apply_claim(cx, name, &devices).await?;
    cx.create_pod(&ShellPod::print_env(name).claim(name).build()).await?;
    cx.wait_event(name, "FailedScheduling", TRIED_WITHIN).await
}
