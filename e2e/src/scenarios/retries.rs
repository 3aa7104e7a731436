//! What a kubelet asks a driver for after it was down, or after prepares and unprepares have failed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use nix::sys::signal::Signal;

use super::gpu::{self, DRIVER, SETTLED_WITHIN, run_pod};
use crate::{
    context::{Context, phase},
    eventually::eventually,
    node::{self, ComponentLog},
    pod::ShellPod,
    read_only::ReadOnly,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "pod_made_while_the_kubelet_is_down_runs_and_one_deleted_meanwhile_is_not_prepared",
            |cx| Box::pin(made_and_deleted_meanwhile(cx)),
        )
        .within(Duration::from_secs(300)),
        Scenario::new("restarted_kubelet_tries_failed_prepares_and_unprepares_again", |cx| {
            Box::pin(tried_again(cx))
        })
        .within(Duration::from_secs(480)),
        Scenario::new("pod_waits_while_its_driver_hangs_and_runs_once_it_goes_on", |cx| Box::pin(hangs(cx)))
            .tier(Tier::Full)
            .within(Duration::from_secs(300)),
    ]
}

/// All three pods have their devices. One runs; one was deleted before the kubelet knew of it; one was deleted after its
/// prepare had failed.
async fn made_and_deleted_meanwhile(cx: &Context) -> Result<()> {
    const PREPARE: &str = "NodePrepareResources";
    gpu::apply_class_and_template(cx).await?;
    // The first GPU is the first that the scheduler gives away.
    let (driver, _) = gpu::start_registered(cx, &["--fail-prepare", "gpu-0"]).await?;
    cx.wait_devices(DRIVER, 8, RUNS_WITHIN).await?;
    let pod = |name| ShellPod::print_env(name).template("one-gpu").build();
    cx.create_pod(&pod("tried")).await?;
    cx.wait_event("tried", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    node::component("stop", "kubelet").await?;
    let outcome = async {
        let tried = driver.answers(PREPARE, "tried-")?;
        ensure!(tried > 0, "no prepare of the first pod: {}", driver.log()?);
        for name in ["made", "deleted"] {
            cx.create_pod(&pod(name)).await?;
            cx.wait_scheduled(name, RUNS_WITHIN).await?;
        }
        for name in ["tried", "deleted"] {
            cx.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
            cx.wait_gone(name, RUNS_WITHIN).await?;
        }
        Ok(tried)
    };
    let outcome: Result<usize> = outcome.await;
    node::component("start", "kubelet").await?;
    let tried = outcome?;

    cx.wait_running_nudged("made", SETTLED_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "made").await?;
    ensure!(gpus.len() == 1, "the pod sees {gpus:?}");
    for (claim, before) in [("tried-", tried), ("deleted-", 0)] {
        let now = driver.answers(PREPARE, claim)?;
        ensure!(now == before, "{now} prepares of {claim} instead of {before}: {}", driver.log()?);
    }
    cx.delete_pod("made", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// The driver's folder is read-only, so that it can neither prepare nor unprepare, until after the restart.
async fn tried_again(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "early", RUNS_WITHIN).await?;
    let read_only = ReadOnly::make(&data())?;
    cx.create_pod(&ShellPod::print_env("late").template("one-gpu").build()).await?;
    cx.wait_event("late", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    cx.api::<Pod>().delete("early", &DeleteParams::default()).await?;
    let failed = || async { Ok((driver.answers("NodeUnprepareResources", "early-")? > 0).then_some(())) };
    eventually("an unprepare of the first pod that fails", RUNS_WITHIN, failed).await?;

    let kubelet = ComponentLog::of("kubelet")?;
    node::component("restart", "kubelet").await?;
    let registered = || async { Ok(kubelet.says_registered(DRIVER)?.then_some(())) };
    eventually("driver registered by the restarted kubelet", RUNS_WITHIN, registered).await?;
    ensure!(cx.api::<Pod>().get_opt("early").await?.is_some(), "the first pod ended without an unprepare");
    drop(read_only);
    cx.wait_running_nudged("late", SETTLED_WITHIN).await?;
    cx.wait_gone("early", SETTLED_WITHIN).await?;
    let files = gpu::files()?;
    ensure!(files.records.len() == 1 && files.cdi.len() == 1, "one pod runs, on disk are {files:?}");
    cx.delete_pod("late", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// The driver's own folder.
fn data() -> PathBuf {
    Path::new(node::PLUGINS).join(DRIVER)
}

/// The kubelet gives a prepare 45 s.
async fn hangs(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    cx.wait_devices(DRIVER, 8, RUNS_WITHIN).await?;
    driver.signal(Signal::SIGSTOP).await?;
    let timed_out = async {
        cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
        eventually("an event that names the deadline", Duration::from_secs(120), || async {
            let events = cx.events_of("p").await?;
            Ok(events.iter().any(|event| event.contains("DeadlineExceeded")).then_some(()))
        })
        .await
    };
    let timed_out: Result<()> = timed_out.await;
    driver.signal(Signal::SIGCONT).await?;
    timed_out?;
    let pod = cx.api::<Pod>().get("p").await.context("reading the pod")?;
    ensure!(phase(&pod) == "Pending", "the pod is {}", phase(&pod));
    cx.wait_running_nudged("p", SETTLED_WITHIN).await?;
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}
