//! Things that happen while the kubelet is not there, and what it and the books make of them once it is back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};

use super::{
    adoption,
    gpu::{self, SETTLED_WITHIN, run_pod},
};
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node::{self, ComponentLog},
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("gpu_in_use_while_the_kubelet_is_away_is_not_handed_out", |cx| {
            Box::pin(kubelet_away(cx))
        })
        .within(Duration::from_secs(300)),
        Scenario::new("claim_allocated_anew_while_the_kubelet_is_away_gets_its_new_gpu", |cx| {
            Box::pin(allocated_anew(cx))
        })
        .within(Duration::from_secs(480)),
        Scenario::new("claim_is_not_collected_for_the_time_that_the_kubelet_was_away", |cx| {
            Box::pin(away_for_long(cx))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(1200)),
    ]
}

/// The pod and its claim are gone from the API server, its container runs on: nobody can tell but the books.
async fn kubelet_away(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (_driver, _) = gpu::start_registered(cx, &["--num-devices", "1"]).await?;
    run_pod(cx, "first", RUNS_WITHIN).await?;
    let before = gpu::files()?;
    node::component("stop", "kubelet").await?;
    let outcome = async {
        cx.api::<Pod>().delete("first", &DeleteParams::default().grace_period(0)).await?;
        force_claims_out(cx).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let meanwhile = gpu::files()?;
        ensure!(
            meanwhile.records == before.records && meanwhile.cdi == before.cdi,
            "without a kubelet the books went from {before:?} to {meanwhile:?}"
        );
        Ok(())
    };
    let outcome = outcome.await;
    node::component("start", "kubelet").await?;
    outcome?;
    cx.create_pod(&ShellPod::print_env("second").template("one-gpu").build()).await?;
    cx.wait_running_again("second", SETTLED_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "second").await?;
    ensure!(gpus == ["gpu-0"], "the second pod sees {gpus:?}");
    ensure!(gpu::files()?.records.len() == 1, "one pod runs, on disk are {:?}", gpu::files()?);
    cx.delete_pod("second", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// The driver looks for claims without an object at its start and every ten minutes, and collects one that it has seen gone
/// for ten minutes. It is started again while the kubelet is away, so that it sees the claim gone at once and looks again
/// just after the kubelet has come back. The time before that does not count: the kubelet could not unprepare the claim.
async fn away_for_long(cx: &Context) -> Result<()> {
    const LOOKS_AFTER: Duration = Duration::from_secs(600);
    /// The kubelet needs some seconds to register the driver.
    const BACK_AFTER: Duration = Duration::from_secs(592);
    const LOOKED_AFTER: Duration = Duration::from_secs(608);
    gpu::apply_class_and_template(cx).await?;
    let devices = ["--num-devices", "1"];
    let (first, _) = gpu::start_registered(cx, &devices).await?;
    run_pod(cx, "first", RUNS_WITHIN).await?;
    let container = adoption::status(cx, "first").await?.container_id.context("no container")?;
    let container = container.trim_start_matches("containerd://");
    node::component("stop", "kubelet").await?;
    let outcome = async {
        cx.api::<Pod>().delete("first", &DeleteParams::default().grace_period(0)).await?;
        force_claims_out(cx).await?;
        first.terminate(RUNS_WITHIN).await?;
        let start = Instant::now();
        let driver = cx.start_driver("mock-gpu-driver", &devices)?;
        tokio::time::sleep(BACK_AFTER.saturating_sub(start.elapsed())).await;
        let tasks = node::ctr(&["tasks", "list", "--quiet"]).await?;
        ensure!(tasks.contains(container), "the first pod's container {container} is not in {tasks}");
        Ok((driver, start))
    };
    let outcome: Result<(Driver, Instant)> = outcome.await;
    let kubelet = ComponentLog::of("kubelet")?;
    node::component("start", "kubelet").await?;
    let (driver, start) = outcome?;
    gpu::wait_registered(&kubelet).await?;
    ensure!(start.elapsed() < LOOKS_AFTER, "the kubelet was not back before the driver looked");

    // A pod that is made earlier is evicted from a node that is away.
    let gpus = run_pod(cx, "second", SETTLED_WITHIN).await?;
    ensure!(gpus == ["gpu-0"], "the second pod sees {gpus:?}");
    tokio::time::sleep(LOOKED_AFTER.saturating_sub(start.elapsed())).await;
    let log = driver.log()?;
    ensure!(!log.contains("collecting a claim"), "the claim was collected: {log}");
    ensure!(driver.answers("NodeUnprepareResources", "first-")? > 0, "no unprepare by the kubelet: {log}");
    cx.delete_pod("second", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// The claim controller may be quicker with any of them.
async fn force_claims_out(cx: &Context) -> Result<()> {
    let claims = cx.api::<ResourceClaim>();
    let gone = || async {
        let left = claims.list(&ListParams::default()).await?.items;
        for name in left.iter().filter_map(|claim| claim.metadata.name.as_deref()) {
            let without_finalizers = serde_json::json!({"metadata": {"finalizers": null}});
            let freed = claims.patch(name, &PatchParams::default(), &Patch::Merge(without_finalizers)).await;
            let deleted = claims.delete(name, &DeleteParams::default()).await;
            for outcome in [freed.map(drop), deleted.map(drop)] {
                match outcome {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(left.is_empty().then_some(()))
    };
    eventually("no claims", RUNS_WITHIN, gone).await
}

/// A claim that has a name of its own stays when its pod goes, and its next pod may get another GPU with it: the same UID,
/// another device. The GPU that it had goes to another pod, which must wait until the claim has let go of it.
async fn allocated_anew(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &["--num-devices", "2"]).await?;
    gpu::apply_claim(cx, "named").await?;
    let user = ShellPod::print_env("user").claim("named").build();
    cx.create_pod(&user).await?;
    cx.wait_running("user", RUNS_WITHIN).await?;
    let had = gpu::gpus_of(cx, "user").await?;
    let uid = cx.api::<ResourceClaim>().get("named").await?.metadata.uid;

    node::component("stop", "kubelet").await?;
    let outcome = async {
        cx.api::<Pod>().delete("user", &DeleteParams::default().grace_period(0)).await?;
        // The claim controller takes the allocation away once no pod is left that the claim is reserved for.
        wait_allocated(cx, "named", <[String]>::is_empty).await?;
        cx.create_pod(&ShellPod::print_env("taker").template("one-gpu").build()).await?;
        wait_allocated(cx, "taker-", |gpus| gpus == had).await?;
        cx.create_pod(&user).await?;
        wait_allocated(cx, "named", |gpus| gpus.len() == 1 && gpus != had).await
    };
    let outcome = outcome.await;
    node::component("start", "kubelet").await?;
    outcome?;

    for (pod, gets_the_old) in [("user", false), ("taker", true)] {
        cx.wait_running_again(pod, SETTLED_WITHIN).await?;
        let gpus = gpu::gpus_of(cx, pod).await?;
        ensure!(
            gpus.len() == 1 && (gpus == had) == gets_the_old,
            "pod {pod} sees {gpus:?}; the claim had {had:?}"
        );
    }
    ensure!(
        driver.answers("NodeUnprepareResources", "named")? == 0,
        "the kubelet gave the claim back first, so nothing was shown: {}",
        driver.log()?
    );
    let now = cx.api::<ResourceClaim>().get("named").await?.metadata.uid;
    ensure!(uid.is_some() && uid == now, "the claim is another one: {uid:?} before, {now:?} now");
    let files = gpu::files()?;
    ensure!(files.records.len() == 2 && files.cdi.len() == 2, "two pods run, on disk are {files:?}");
    ensure!(driver.is_running().await?, "the driver has ended");
    for pod in ["user", "taker"] {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    // The kubelet counts the pod that was forced out among the claim's users until it next looks for such pods.
    let empty = |files: &gpu::Files| files.records.is_empty() && files.cdi.is_empty();
    gpu::wait_files("no CDI file and no record", SETTLED_WITHIN, empty).await.map(drop)
}

/// Waits until the GPUs of the only claim whose name starts with `prefix` are as wanted.
async fn wait_allocated(cx: &Context, prefix: &str, wanted: impl Fn(&[String]) -> bool) -> Result<()> {
    let claims = cx.api::<ResourceClaim>();
    let what = format!("another allocation of claim {prefix}");
    eventually(&what, RUNS_WITHIN, || async {
        let all = claims.list(&ListParams::default()).await.context("listing claims")?.items;
        let named = |claim: &&ResourceClaim| {
            claim.metadata.name.as_deref().is_some_and(|name| name.starts_with(prefix))
        };
        let Some(claim) = all.iter().find(named) else { return Ok(None) };
        Ok(wanted(&gpus_of_claim(claim)).then_some(()))
    })
    .await
}

fn gpus_of_claim(claim: &ResourceClaim) -> Vec<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_ref());
    results.into_iter().flatten().map(|result| result.device.clone()).collect()
}
