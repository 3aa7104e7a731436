//! What keeps slices from being stored for a while: gates that are off, policies that deny, a node that is gone.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{
    CounterConsumption, CounterSet, Device, DriverResources, Feature, IfDropped, NodeName, Pool, PoolState,
    PublishError, Scope,
};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Node,
    resource::v1::ResourceSlice,
};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::json;

use super::{
    slice_client,
    slices::{rig, wish},
};
use crate::{
    context::Context,
    eventually::eventually,
    node,
    scenario::Scenario,
    slice_suite::{Rig, Start, driver, pool_name, slices_of_one},
};

const GATE: &str = "DRAPartitionableDevices";
const GATES: &str = "/run/cluster/conf/feature-gates";
/// How long a policy denies, and when its denial must be over.
const DENIED: Duration = Duration::from_secs(60);
const OVER_WITHIN: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("gate_that_is_turned_on_later_brings_partitions_in", |cx| Box::pin(gate(cx)))
            .within(Duration::from_secs(240)),
        Scenario::new("policy_that_denies_slices_for_a_minute_costs_two_at_most", |cx| Box::pin(denied(cx)))
            .within(Duration::from_secs(240)),
        Scenario::new("slices_of_a_deleted_node_are_not_made_again", |cx| Box::pin(deleted_node(cx)))
            .within(Duration::from_secs(240)),
    ]
}

/// Starts the API server again with the gate on or off, on top of what the cluster has.
async fn restart_with(gates: &str, on: bool) -> Result<()> {
    let others = gates.split(',').filter(|gate| !gate.is_empty() && !gate.starts_with(GATE));
    let all: Vec<_> = others.map(str::to_owned).chain([format!("{GATE}={on}")]).collect();
    fs::write(GATES, all.join(",")).with_context(|| format!("writing {GATES}"))?;
    node::component("restart", "apiserver").await
}

/// A GPU, which may stay without counters, and its halves.
fn partitions() -> Result<DriverResources> {
    let taken = |amount: i64| CounterConsumption::new("board")?.counter("memory", amount);
    let gpu =
        Device::named("gpu")?.consumes(taken(8)?).if_dropped(Feature::PartitionableDevices, IfDropped::Keep);
    let halves = [Device::named("half-0")?.consumes(taken(4)?), Device::named("half-1")?.consumes(taken(4)?)];
    let board = CounterSet::new("board")?.counter("memory", 8)?;
    wish(Pool::new([gpu].into_iter().chain(halves)).counter_sets([board]))
}

fn names(slices: &[ResourceSlice]) -> Vec<&str> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.map(|device| device.name.as_str()).collect()
}

async fn gate(cx: &Context) -> Result<()> {
    let gates = fs::read_to_string(GATES).unwrap_or_default();
    let outcome = switched(cx, &gates).await;
    // In any case: the scenarios after this one need it.
    fs::write(GATES, &gates).with_context(|| format!("writing {GATES}"))?;
    node::component("restart", "apiserver").await?;
    outcome
}

async fn switched(cx: &Context, gates: &str) -> Result<()> {
    restart_with(gates, false).await?;
    let rig = rig(cx, "gate").await?;
    let published = rig.publish(partitions()?).await?;
    ensure!(published.dropped == [Feature::PartitionableDevices], "dropped are {:?}", published.dropped);
    ensure!(published.problems.len() == 2, "{:?}", published.problems);
    let without = rig.slices().await?;
    ensure!(names(&without) == ["gpu"], "without counters there are {:?}", names(&without));

    rig.recorder.clear();
    restart_with(gates, true).await?;
    let all = |slices: &[ResourceSlice]| names(slices) == ["gpu", "half-0", "half-1"];
    let with = rig.wait_slices("all devices", SOON, all).await?;
    let counters = with.iter().any(|slice| slice.spec.shared_counters.is_some());
    ensure!(counters, "there are no counters");
    let settled = |status: &dra_resourceslice::SliceStatus| {
        status.pools.values().all(|pool| pool.state == PoolState::Published && pool.dropped.is_empty())
    };
    let mut status = rig.publisher.status();
    tokio::time::timeout(SOON, status.wait_for(settled)).await.context("not settled with the gate on")??;
    let writes = rig.recorder.methods();
    ensure!(writes.len() <= 4, "the gate cost {writes:?}");
    rig.recorder.clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.expect_writes("a minute with the gate on", &[])?;
    let others = rig.reported();
    let by_others = |error: &PublishError| matches!(error, PublishError::ChangedByOthers { .. });
    ensure!(!others.iter().any(by_others), "reported {others:?}");
    rig.finish().await
}

/// A policy that denies the slices of this driver.
struct Denial<'a> {
    cx: &'a Context,
    name: String,
}

impl<'a> Denial<'a> {
    async fn start(cx: &'a Context, case: &str, reason: Option<&str>) -> Result<Self> {
        let (name, driver) = (format!("deny-{case}"), driver(case)?);
        let mut validation = json!({
            "expression": format!("object.spec.driver != '{driver}'"), "message": "not now",
        });
        if let Some(reason) = reason {
            validation["reason"] = json!(reason);
        }
        let rule = json!({
            "apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["resourceslices"],
        });
        let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [validation],
            },
        }))?;
        let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        }))?;
        Api::all(cx.client.clone()).create(&PostParams::default(), &policy).await.context("a policy")?;
        Api::all(cx.client.clone()).create(&PostParams::default(), &binding).await.context("its binding")?;
        let denial = Self { cx, name };
        // It takes a moment until the API server knows it.
        let probe: ResourceSlice = serde_json::from_value(json!({
            "metadata": {"generateName": "probe-"},
            "spec": {
                "driver": driver, "nodeName": node::NAME, "devices": [{"name": "d"}],
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        }))?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let slices: Api<ResourceSlice> = Api::all(cx.client.clone());
        eventually("slices are denied", SOON, || async {
            Ok(slices.create(&dry_run, &probe).await.is_err().then_some(()))
        })
        .await?;
        Ok(denial)
    }

    async fn end(self) -> Result<()> {
        let (policies, bindings): (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) =
            (Api::all(self.cx.client.clone()), Api::all(self.cx.client.clone()));
        bindings.delete(&self.name, &DeleteParams::default()).await.context("ending a denial")?;
        policies.delete(&self.name, &DeleteParams::default()).await.context("ending a denial")?;
        Ok(())
    }
}

async fn denied(cx: &Context) -> Result<()> {
    // Without a reason a policy denies with 422, as the API server itself refuses what is not valid.
    let cases = [("denied", None), ("denied-with-reason", Some("Forbidden"))];
    futures::future::try_join_all(cases.map(|(case, reason)| denied_with(cx, case, reason))).await?;
    Ok(())
}

async fn denied_with(cx: &Context, case: &str, reason: Option<&str>) -> Result<()> {
    let rig = rig(cx, case).await?;
    rig.publish(wish(slices_of_one(3, 0)?)?).await?;
    let before = rig.slices().await?;
    let denial = Denial::start(cx, case, reason).await?;
    rig.recorder.clear();
    let _ = rig.publisher.publish(wish(slices_of_one(3, 1)?)?);
    tokio::time::sleep(DENIED).await;
    let meanwhile = rig.slices().await?;
    ensure!(meanwhile == before, "{case}: a denial has changed the pool to {meanwhile:?}");
    denial.end().await?;
    let whole = |slices: &[ResourceSlice]| {
        slices.len() == 3 && slices.iter().all(|slice| slice.spec.pool.generation == 2)
    };
    rig.wait_slices("the slices after the denial", OVER_WITHIN, whole).await.context(case.to_owned())?;
    rig.finish().await
}

/// As by `kubectl delete node`, of a node whose driver still runs.
async fn deleted_node(cx: &Context) -> Result<()> {
    let name = NodeName::new("slices-node")?;
    let nodes: Api<Node> = Api::all(cx.client.clone());
    let make = || async {
        let metadata = ObjectMeta { name: Some(name.to_string()), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        nodes.create(&PostParams::default(), &node).await.context("making a node")
    };
    make().await?;
    let scope = Scope::node(driver("deleted-node")?, name.clone());
    let rig =
        Rig::start(&Start { driver_client: slice_client::driver().await?, admin: cx.client.clone(), scope });
    let content = Pool::new([Device::named("gpu-0")?]);
    rig.publish(DriverResources::new().pool(pool_name(&name), content)).await?;
    nodes.delete(name.as_str(), &DeleteParams::default()).await.context("deleting the node")?;
    rig.wait_slices("the garbage collector", SOON, <[_]>::is_empty).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = rig.slices().await?;
    ensure!(left.is_empty(), "a node that is gone has {left:?}");
    let told = rig.reported();
    ensure!(told.iter().any(|error| matches!(error, PublishError::NoNode { .. })), "reported {told:?}");

    let uid = make().await?.metadata.uid;
    let back =
        rig.wait_slices("the slice of the node that is back", SOON, |slices| slices.len() == 1).await?;
    let owner = back[0].metadata.owner_references.iter().flatten().next().map(|owner| owner.uid.clone());
    ensure!(owner == uid, "the owner is {owner:?}, not {uid:?}");
    rig.finish().await?;
    nodes.delete(name.as_str(), &DeleteParams::default()).await.context("deleting the node")?;
    Ok(())
}
