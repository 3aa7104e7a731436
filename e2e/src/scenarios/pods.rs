//! A GPU gets into a container, and out again.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::gpu::{self, DRIVER};
use crate::{
    context::Context,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pod_sees_its_gpu_and_leaves_nothing", |cx| Box::pin(one_pod(cx))).tier(Tier::Smoke),
        Scenario::new("pods_get_different_gpus", |cx| Box::pin(two_pods(cx))),
        Scenario::new("pod_ends_after_a_driver_restart_by_sigterm", |cx| {
            Box::pin(restart_between(cx, false))
        }),
        Scenario::new("pod_ends_after_a_driver_restart_by_sigkill", |cx| Box::pin(restart_between(cx, true))),
        Scenario::new("pod_that_was_there_first_runs_once_the_driver_starts", |cx| Box::pin(pod_first(cx))),
        Scenario::new("waiting_pods_never_fail_to_prepare", |cx| Box::pin(waiting_pods(cx)))
            .within(Duration::from_secs(600)),
    ]
}

async fn one_pod(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    cx.create_pod(&ShellPod::print_env("one").template("one-gpu").build()).await?;
    cx.wait_running("one", RUNS_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "one").await?;
    ensure!(gpus.len() == 1, "one GPU was asked for, the container sees {gpus:?}");
    let files = gpu::files()?;
    ensure!(files.records.len() == 1 && files.cdi.len() == 1, "while the pod runs: {files:?}");
    let cdi = fs::read_to_string(&files.cdi[0]).context("reading the CDI file")?;
    ensure!(cdi.contains(&gpus[0]), "{} says {cdi}", files.cdi[0].display());
    cx.delete_pod("one", ENDS_WITHIN).await?;
    gpu::nothing_left().await
}

async fn two_pods(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    let mut seen = BTreeSet::new();
    for name in ["a", "b"] {
        cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    }
    for name in ["a", "b"] {
        cx.wait_running(name, RUNS_WITHIN).await?;
        seen.extend(gpu::gpus_of(cx, name).await?);
    }
    ensure!(seen.len() == 2, "two pods see {seen:?}");
    for name in ["a", "b"] {
        cx.delete_pod(name, ENDS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

async fn restart_between(cx: &Context, kill: bool) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    cx.create_pod(&ShellPod::print_env("one").template("one-gpu").build()).await?;
    cx.wait_running("one", RUNS_WITHIN).await?;
    if kill {
        driver.kill().await?;
    } else {
        driver.terminate(Duration::from_secs(6)).await?;
    }
    gpu::start_registered(cx, &[]).await?;
    let files = gpu::files()?;
    ensure!(files.records.len() == 1 && files.cdi.len() == 1, "after the restart: {files:?}");
    cx.delete_pod("one", ENDS_WITHIN).await?;
    gpu::nothing_left().await
}

async fn pod_first(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    cx.create_pod(&ShellPod::print_env("early").template("one-gpu").build()).await?;
    // Long enough for the scheduler to find that there is no such device.
    tokio::time::sleep(Duration::from_secs(2)).await;
    gpu::start_registered(cx, &[]).await?;
    cx.wait_running("early", RUNS_WITHIN).await?;
    ensure!(gpu::gpus_of(cx, "early").await?.len() == 1, "the pod has no GPU");
    cx.delete_pod("early", ENDS_WITHIN).await?;
    gpu::nothing_left().await
}

/// The scheduler takes a slice at once when a pod waits for it. Were slices published before the kubelet has registered
/// the driver, the first prepare would fail, and the kubelet would try again only a minute later.
async fn waiting_pods(cx: &Context) -> Result<()> {
    let rounds = if cx.tier == Tier::Full { 20 } else { 5 };
    gpu::apply_class_and_template(cx).await?;
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let took = waiting_pod(cx, &format!("waiting-{round}")).await;
        slowest = slowest.max(took.with_context(|| format!("round {round}"))?);
    }
    println!(
        "    {rounds} starts with a pod waiting, slowest {} ms from registered to running",
        slowest.as_millis()
    );
    Ok(())
}

/// Starts the driver under a pod that waits; gives how long the pod then took from registered to running.
async fn waiting_pod(cx: &Context, name: &str) -> Result<Duration> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    // It really waits: the scheduler has looked and found no device.
    cx.wait_event(name, "FailedScheduling", Duration::from_secs(60)).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    let registered = Instant::now();
    let running = cx.wait_running(name, Duration::from_secs(20)).await;
    let events = cx.events_of(name).await?;
    let failed = events.iter().find(|event| event.contains("FailedPrepareDynamicResources"));
    ensure!(failed.is_none(), "{failed:?}");
    running?;
    let took = registered.elapsed();

    cx.delete_pod(name, ENDS_WITHIN).await?;
    gpu::nothing_left().await?;
    driver.terminate(Duration::from_secs(6)).await?;
    cx.remove_slices(DRIVER).await?;
    // Until the scheduler has seen that too, it would bring the next pod to a slice whose driver is gone.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(took)
}
