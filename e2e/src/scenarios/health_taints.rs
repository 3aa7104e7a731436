//! GPUs that do not work are tainted, as the driver was told to.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::DeviceTaint};
use serde_json::json;

use super::{
    gpu::{self, DRIVER},
    gpu_health::{self, Gpus},
};
use crate::{
    context::{Context, phase},
    eventually::eventually,
    pod::ShellPod,
    scenario::Scenario,
};

const KEY: &str = "gpu.example.com/unhealthy";
const SOON: Duration = Duration::from_secs(15);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// Long enough for the scheduler to bind a pod if it wrongly did.
const A_WHILE: Duration = Duration::from_secs(3);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("unhealthy_gpu_is_tainted_and_given_to_no_pod_until_it_works", |cx| {
            Box::pin(no_schedule(cx))
        }),
        Scenario::new("pod_of_a_gpu_that_fails_is_evicted_if_the_driver_says_so", |cx| {
            Box::pin(no_execute(cx))
        }),
    ]
}

async fn no_schedule(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 2)?;
    gpus.is_unhealthy("gpu-0", "hot")?;
    let arguments = ["--inventory", gpus.file()?, "--taint-unhealthy", "NoSchedule"];
    let (driver, _) = gpu::start_registered(cx, &arguments).await?;
    if !gpu_health::is_on(cx, "DRADeviceTaints").await? {
        // It is left out: this API server would drop its taint.
        cx.wait_devices(DRIVER, 1, SOON).await?;
        driver.wait_log("DRADeviceTaints", SOON).await?;
        gpus.are(&json!({}))?;
        cx.wait_devices(DRIVER, 2, SOON).await?;
        return Ok(());
    }
    let taint = wait_taint(cx, "gpu-0").await?;
    ensure!((taint.key.as_str(), taint.effect.as_str()) == (KEY, "NoSchedule"), "{taint:?}");
    let added = taint.time_added.clone().context("a taint without timeAdded")?;

    cx.create_pod(&ShellPod::print_env("one").template("one-gpu").build()).await?;
    cx.wait_running("one", RUNS_WITHIN).await?;
    ensure!(gpu::gpus_of(cx, "one").await? == ["gpu-1"], "the pod has the GPU that does not work");
    cx.create_pod(&ShellPod::print_env("two").template("one-gpu").build()).await?;
    cx.wait_event("two", "FailedScheduling", RUNS_WITHIN).await?;

    // Neither another message nor a restart of the driver is a new taint.
    let generation = generation(cx).await?;
    gpus.is_unhealthy("gpu-0", "too hot")?;
    driver.wait_log("the inventory has changed", SOON).await?;
    driver.kill().await?;
    gpu::start_registered(cx, &arguments).await?;
    tokio::time::sleep(A_WHILE).await;
    let taint = wait_taint(cx, "gpu-0").await?;
    ensure!(taint.time_added.as_ref() == Some(&added), "added at {added:?}, now {:?}", taint.time_added);
    ensure!(self::generation(cx).await? == generation, "the slices were written again");
    let pod = cx.api::<Pod>().get("two").await?;
    ensure!(phase(&pod) == "Pending", "a pod was given the GPU that does not work");

    gpus.are(&json!({}))?;
    cx.wait_running("two", RUNS_WITHIN).await?;
    ensure!(gpu::gpus_of(cx, "two").await? == ["gpu-0"], "the pod has not the GPU that works again");
    ensure!(taints(cx, "gpu-0").await?.is_empty(), "the taint has stayed");
    for name in ["one", "two"] {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

async fn no_execute(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRADeviceTaints").await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 2)?;
    let arguments = ["--inventory", gpus.file()?, "--taint-unhealthy", "NoExecute"];
    gpu::start_registered(cx, &arguments).await?;
    for name in ["one", "two"] {
        cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
        cx.wait_running(name, RUNS_WITHIN).await?;
    }
    let has = gpu::gpus_of(cx, "one").await?;
    let [broken] = &has[..] else { bail!("pod one has {has:?}") };
    gpus.is_unhealthy(broken, "fell off the bus")?;
    cx.wait_gone("one", RUNS_WITHIN).await?;
    cx.wait_running("two", Duration::from_secs(1)).await.context("the other pod goes on")?;

    ensure!(wait_taint(cx, broken).await?.effect == "NoExecute", "another effect");
    cx.delete_pod("two", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// Waits until a device has a taint: it has one at most.
async fn wait_taint(cx: &Context, device: &str) -> Result<DeviceTaint> {
    let what = format!("a taint of {device}");
    let found = eventually(&what, SOON, || async {
        let taints = taints(cx, device).await?;
        Ok((!taints.is_empty()).then_some(taints))
    })
    .await?;
    let [taint] = &found[..] else { bail!("{device} has more than one taint: {found:?}") };
    Ok(taint.clone())
}

async fn taints(cx: &Context, device: &str) -> Result<Vec<DeviceTaint>> {
    let slices = cx.slices(DRIVER).await?;
    let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.into_iter().flatten());
    let of_device = devices.filter(|found| found.name == device);
    Ok(of_device.flat_map(|device| device.taints.into_iter().flatten()).collect())
}

/// The pool's generation.
async fn generation(cx: &Context) -> Result<i64> {
    let slices = cx.slices(DRIVER).await?;
    slices.iter().map(|slice| slice.spec.pool.generation).max().context("no slices")
}
