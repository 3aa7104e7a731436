//! Drivers and kubelets that come and go; the plain restarts of a driver are in `pods`.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::gpu::{self, DRIVER};
use crate::{context::Context, node, node::ComponentLog, scenario::Scenario};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The kubelet tries an unprepare again after 10 to 15 s, and its back-off doubles.
const UNPREPARED_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pod_deleted_while_the_driver_is_down_ends_once_it_is_back", |cx| {
            Box::pin(deleted_meanwhile(cx))
        }),
        Scenario::new("driver_and_pod_outlive_a_kubelet_restart", |cx| Box::pin(kubelet_restart(cx)))
            .within(Duration::from_secs(180)),
    ]
}

async fn deleted_meanwhile(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (first, _) = gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "p").await?;
    first.kill().await?;
    let deleted = cx.delete_pod("p", Duration::from_secs(5)).await;
    ensure!(deleted.is_err(), "the kubelet let the pod go without an unprepare");

    gpu::start_registered(cx, &[]).await?;
    cx.wait_gone("p", UNPREPARED_WITHIN).await?;
    gpu::nothing_left().await
}

async fn kubelet_restart(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "before").await?;

    let kubelet = ComponentLog::of("kubelet")?;
    node::component("restart", "kubelet").await?;
    gpu::wait_registered(&kubelet).await?;
    // The kubelet has deleted the node's slices at its start.
    cx.wait_devices(DRIVER, 8, Duration::from_secs(40)).await?;
    run_pod(cx, "after").await?;
    cx.wait_running("before", Duration::from_secs(1)).await?;
    for name in ["before", "after"] {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

/// Runs a pod with one GPU.
async fn run_pod(cx: &Context, name: &str) -> Result<()> {
    let gpus = gpu::run_pod(cx, name, RUNS_WITHIN).await?;
    ensure!(gpus.len() == 1, "pod {name} sees {gpus:?}");
    Ok(())
}
