//! The driver's books under what a cluster does to them: forced deletions, a kubelet that is away, claims that fail,
//! rolling updates, a machine that was started anew.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};

use super::gpu::{self, DRIVER};
use crate::{
    context::{Context, phase},
    eventually::eventually,
    node,
    pod::ShellPod,
    scenario::Scenario,
    small_disk::SmallDisk,
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The kubelet looks every minute for what pods that are gone have left, and tries a failed prepare again after 60 to
/// 90 s.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("gpu_of_a_force_deleted_pod_goes_to_the_next", |cx| Box::pin(force_deleted(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("gpu_in_use_while_the_kubelet_is_away_is_not_handed_out", |cx| {
            Box::pin(kubelet_away(cx))
        })
        .within(Duration::from_secs(300)),
        Scenario::new("claims_that_fail_do_not_keep_others_from_running", |cx| Box::pin(some_fail(cx))),
        Scenario::new("pods_end_on_a_full_disk_and_start_again_with_space", |cx| Box::pin(full_disk(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("pods_outlive_a_rolling_update_of_the_driver", |cx| Box::pin(rolling_update(cx))),
        Scenario::new("pod_starts_again_after_a_reboot", |cx| Box::pin(reboot(cx)))
            .within(Duration::from_secs(300)),
    ]
}

async fn run_pod(cx: &Context, name: &str, within: Duration) -> Result<Vec<String>> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, within).await?;
    gpu::gpus_of(cx, name).await
}

/// With one GPU on the node there is no way around the pod that had it.
async fn force_deleted(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &["--num-devices", "1"]).await?;
    run_pod(cx, "first", RUNS_WITHIN).await?;
    cx.api::<Pod>()
        .delete("first", &DeleteParams::default().grace_period(0))
        .await
        .context("forcing the pod out")?;
    let gpus = run_pod(cx, "second", SETTLED_WITHIN).await?;
    ensure!(gpus == ["gpu-0"], "the second pod sees {gpus:?}");
    let files = gpu::files()?;
    ensure!(files.records.len() == 1, "one pod runs, on disk are {files:?}");
    let log = driver.log()?;
    ensure!(log.contains("unprepare"), "the first claim was never unprepared: {log}");
    cx.delete_pod("second", RUNS_WITHIN).await?;
    gpu::nothing_left().await
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
    let gpus = run_pod(cx, "second", SETTLED_WITHIN).await?;
    ensure!(gpus == ["gpu-0"], "the second pod sees {gpus:?}");
    ensure!(gpu::files()?.records.len() == 1, "one pod runs, on disk are {:?}", gpu::files()?);
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

/// Five pods, three of them on GPUs that the driver fails to prepare.
async fn some_fail(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &["--num-devices", "5", "--fail-prepare", "gpu-0,gpu-1,gpu-2"]).await?;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    }
    let (mut running, mut told) = (0, 0);
    for name in names {
        let what = format!("pod {name} running, or its reason told");
        let state = eventually(&what, RUNS_WITHIN, || async {
            let pod = cx.api::<Pod>().get(name).await?;
            if phase(&pod) == "Running" {
                return Ok(Some(true));
            }
            let events = cx.events_of(name).await?;
            Ok(events.iter().any(|event| event.contains("is set to fail")).then_some(false))
        });
        if state.await? { running += 1 } else { told += 1 }
    }
    ensure!((running, told) == (2, 3), "{running} pods run, {told} have their reason in an event");
    let files = gpu::files()?;
    ensure!(files.records.len() == 2 && files.cdi.len() == 2, "two pods run, on disk are {files:?}");
    Ok(())
}

/// Eviction under disk pressure must be able to end pods.
async fn full_disk(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let disk = SmallDisk::mount(&Path::new(node::PLUGINS).join(DRIVER))?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "early", RUNS_WITHIN).await?;
    disk.fill();
    cx.create_pod(&ShellPod::print_env("late").template("one-gpu").build()).await?;
    cx.wait_event("late", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    let events = cx.events_of("late").await?;
    ensure!(events.iter().any(|event| event.contains("free space on the kubelet's disk")), "{events:?}");
    cx.delete_pod("early", RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    disk.free()?;
    cx.wait_running("late", SETTLED_WITHIN).await?;
    cx.delete_pod("late", RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    driver.terminate(Duration::from_secs(6)).await.map(drop)
}

/// As a `DaemonSet` with `maxSurge` does it: the new instance is there before the old one goes.
async fn rolling_update(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let uid = |digit: u32| format!("00000000-0000-4000-8000-00000000000{digit}");
    let (old, _) = gpu::start_registered(cx, &["--pod-uid", &uid(1)]).await?;
    run_pod(cx, "before", RUNS_WITHIN).await?;
    let (_new, _) = gpu::start_registered(cx, &["--pod-uid", &uid(2)]).await?;
    let between = run_pod(cx, "between", RUNS_WITHIN).await?;
    let status = old.terminate(Duration::from_secs(6)).await?;
    ensure!(status.success(), "the old instance ended with {status}");
    let after = run_pod(cx, "after", RUNS_WITHIN).await?;
    ensure!(between != after, "two running pods see {between:?}");
    let files = gpu::files()?;
    ensure!(files.records.len() == 3 && files.sockets.len() == 2, "three pods run, on disk are {files:?}");
    for name in ["before", "between", "after"] {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

/// Nothing runs after a reboot and `/var/run/cdi` is empty, but the kubelet's and the driver's files are there.
async fn reboot(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &["--boot-id", "first"]).await?;
    cx.create_pod(&ShellPod::print_env("survivor").restarting().template("one-gpu").build()).await?;
    cx.wait_running("survivor", RUNS_WITHIN).await?;
    node::component("stop", "kubelet").await?;
    let outcome = async {
        driver.kill().await?;
        node::end_containers().await?;
        for file in gpu::files()?.cdi {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
        Ok(())
    };
    let outcome: Result<()> = outcome.await;
    node::component("start", "kubelet").await?;
    outcome?;
    gpu::start_registered(cx, &["--boot-id", "second"]).await?;
    cx.wait_devices(DRIVER, 8, RUNS_WITHIN).await?;
    let back = gpu::wait_files("the record and CDI file of the new boot", SETTLED_WITHIN, |files| {
        files.cdi.len() == 1
            && files.records.len() == 1
            && files.records[0].parent().is_some_and(|boot| boot.ends_with("second"))
    });
    back.await?;
    cx.delete_pod("survivor", SETTLED_WITHIN).await?;
    gpu::nothing_left().await
}
