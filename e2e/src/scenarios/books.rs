//! The driver's books under what a cluster does to them: forced deletions, rolling updates, a machine that was started
//! anew.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use super::gpu::{self, DRIVER, SETTLED_WITHIN, run_pod};
use crate::{context::Context, driver::Driver, node, pod::ShellPod, scenario::Scenario};

const RUNS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("gpu_of_a_force_deleted_pod_goes_to_the_next", |cx| Box::pin(force_deleted(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("pods_outlive_a_rolling_update_of_the_driver", |cx| Box::pin(rolling_update(cx))),
        Scenario::new("pod_starts_again_after_a_reboot", |cx| Box::pin(reboot(cx)))
            .within(Duration::from_secs(300)),
    ]
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
    cx.create_pod(&ShellPod::print_env("second").template("one-gpu").build()).await?;
    cx.wait_running_again("second", SETTLED_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "second").await?;
    ensure!(gpus == ["gpu-0"], "the second pod sees {gpus:?}");
    let files = gpu::files()?;
    ensure!(files.records.len() == 1, "one pod runs, on disk are {files:?}");
    ensure!(
        driver.answers("NodeUnprepareResources", "first-")? > 0,
        "the first claim was never unprepared: {}",
        driver.log()?
    );
    cx.delete_pod("second", RUNS_WITHIN).await?;
    gpu::nothing_left().await
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
    power_cut(&driver).await?;
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

/// Ends the driver and all containers and empties the CDI folder, while the kubelet is down.
pub(super) async fn power_cut(driver: &Driver) -> Result<()> {
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
    outcome
}
