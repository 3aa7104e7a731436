//! Prepares that fail or hang, beside others that must not mind.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use super::gpu::{self, SETTLED_WITHIN, run_pod};
use crate::{
    context::{Context, phase},
    eventually::eventually,
    node::ComponentLog,
    pod::ShellPod,
    scenario::Scenario,
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("claims_that_fail_do_not_keep_others_from_running", |cx| Box::pin(some_fail(cx))),
        Scenario::new("pod_whose_prepare_hangs_ends_and_its_gpu_is_free", |cx| Box::pin(one_hangs(cx)))
            .within(Duration::from_secs(300)),
    ]
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

/// The driver is at work on a claim for longer than the kubelet waits for a prepare and the unprepare that follows, 45 s
/// each, and does not mind that it is cancelled. That the pod is deleted does not end the kubelet's first wait (1.37).
async fn one_hangs(cx: &Context) -> Result<()> {
    const HANGS_FOR: Duration = Duration::from_secs(100);
    gpu::apply_class_and_template(cx).await?;
    let delay = HANGS_FOR.as_millis().to_string();
    let options = ["--num-devices", "2", "--slow-devices", "gpu-0", "--prepare-delay", &delay];
    let (driver, _) = gpu::start_registered(cx, &options).await?;
    cx.create_pod(&ShellPod::print_env("hangs").template("one-gpu").build()).await?;
    gpu::wait_files("the record of the claim that hangs", RUNS_WITHIN, |files| files.records.len() == 1)
        .await?;
    let began = Instant::now();
    let gpus = run_pod(cx, "other", RUNS_WITHIN).await?;
    ensure!(gpus == ["gpu-1"], "the other pod sees {gpus:?}");

    let kubelet = ComponentLog::of("kubelet")?;
    cx.api::<Pod>().delete("hangs", &DeleteParams::default()).await?;
    // Each call is answered before the kubelet gives up: it would log that its deadline was exceeded then.
    for call in ["NodePrepareResources", "NodeUnprepareResources"] {
        let failed = format!("{call} failed");
        eventually(&format!("why {call} failed in the kubelet's log"), HANGS_FOR, || async {
            let told = |line: &str| line.contains(&failed) && line.contains("prepare is still running since");
            Ok(kubelet.read()?.lines().any(told).then_some(()))
        })
        .await?;
    }
    cx.wait_gone("hangs", SETTLED_WITHIN).await?;
    // By then the driver is done with it, however the claim was let go.
    tokio::time::sleep((HANGS_FOR + Duration::from_secs(5)).saturating_sub(began.elapsed())).await;
    let files = gpu::files()?;
    ensure!(files.records.len() == 1 && files.cdi.len() == 1, "one pod runs, on disk are {files:?}");

    driver.terminate(Duration::from_secs(6)).await?;
    gpu::start_registered(cx, &["--num-devices", "2"]).await?;
    let gpus = run_pod(cx, "next", RUNS_WITHIN).await?;
    ensure!(gpus == ["gpu-0"], "the next pod sees {gpus:?}");
    for pod in ["other", "next"] {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}
