//! Claims for devices of two drivers: in two processes, in one, and when one of them fails, hangs, or is at work while the
//! kubelet is restarted.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::gpu;
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    kubelet::Metrics,
    node::{self, ComponentLog},
    pod::ShellPod,
    read_only::ReadOnly,
    scenario::Scenario,
};

const FIRST: &str = "first.example.com";
const SECOND: &str = "second.example.com";
const DEVICES: usize = 8;

const SOON: Duration = Duration::from_secs(30);
/// The kubelet tries a failed unprepare again after 10 to 15 s, and looks every minute for what it has missed.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pod_with_a_claim_of_two_drivers_gets_devices_of_both", |cx| {
            Box::pin(in_two_processes(cx))
        }),
        Scenario::new("pod_with_claims_of_two_drivers_in_one_process_gets_devices_of_both", |cx| {
            Box::pin(in_one_process(cx))
        }),
        Scenario::new("pod_waits_while_one_of_its_two_drivers_fails", |cx| Box::pin(one_fails(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("kubelet_restarted_while_one_of_two_drivers_is_at_work_asks_again", |cx| {
            Box::pin(restarted_in_the_middle(cx))
        })
        .within(Duration::from_secs(480)),
    ]
}

async fn in_two_processes(cx: &Context) -> Result<()> {
    start_both(cx).await?;
    let before = good_calls(cx).await?;
    apply_claim(cx, "both", &[request(FIRST), request(SECOND)]).await?;
    cx.create_pod(&ShellPod::print_env("p").claim("both").build()).await?;
    cx.wait_running("p", SOON).await?;
    sees_both(cx, "p").await?;
    // The claim counts for each driver, and once in all.
    wait_in_use(cx, [1, 1, 1]).await?;

    cx.delete_pod("p", SOON).await?;
    wait_in_use(cx, [0, 0, 0]).await?;
    let after = good_calls(cx).await?;
    let one_more = before.iter().zip(&after).all(|(before, after)| *after == before + 1);
    ensure!(one_more, "good calls in the kubelet's metrics: {before:?} became {after:?}");
    nothing_left().await
}

async fn in_one_process(cx: &Context) -> Result<()> {
    let log = ComponentLog::of("kubelet")?;
    cx.start_driver("mock-gpu-driver", &["--driver-name", FIRST, "--second-driver", SECOND])?;
    wait_ready(cx, &log).await?;
    apply_claim(cx, "first", &[request(FIRST)]).await?;
    apply_claim(cx, "second", &[request(SECOND)]).await?;
    cx.create_pod(&ShellPod::print_env("p").claim("first").claim("second").build()).await?;
    cx.wait_running("p", SOON).await?;
    sees_both(cx, "p").await?;
    for driver in [FIRST, SECOND] {
        let files = files_of(driver)?;
        ensure!(files.records.len() == 1 && files.cdi.len() == 2, "{driver} has {files:?}");
    }
    cx.delete_pod("p", SOON).await?;
    nothing_left().await
}

/// What the other driver has prepared is kept for the next try.
async fn one_fails(cx: &Context) -> Result<()> {
    let (first, second) = start_both(cx).await?;
    let folder = Path::new(node::PLUGINS).join(SECOND);
    let read_only = ReadOnly::make(&folder)?;
    apply_claim(cx, "both", &[request(FIRST), request(SECOND)]).await?;
    cx.create_pod(&ShellPod::print_env("p").claim("both").build()).await?;
    let folder = folder.to_str().context("a folder with a plain name")?;
    eventually("an event that names what the second driver cannot write", SOON, || async {
        let events = cx.events_of("p").await?;
        let told =
            |event: &String| event.starts_with("FailedPrepareDynamicResources: ") && event.contains(folder);
        Ok(events.iter().any(told).then_some(()))
    })
    .await?;
    drop(read_only);
    cx.wait_running_nudged("p", SETTLED_WITHIN).await?;
    sees_both(cx, "p").await?;
    ensure!(first.answers("NodePrepareResources", "both")? > 0, "the first driver was never asked");

    // The same with the unprepare.
    let read_only = ReadOnly::make(Path::new(folder))?;
    cx.api::<Pod>().delete("p", &DeleteParams::default()).await?;
    let failed = || async { Ok((second.answers("NodeUnprepareResources", "both")? > 0).then_some(())) };
    eventually("an unprepare by the second driver, which fails", SOON, failed).await?;
    ensure!(cx.api::<Pod>().get_opt("p").await?.is_some(), "the pod ended without an unprepare");
    drop(read_only);
    cx.wait_gone("p", SETTLED_WITHIN).await?;
    nothing_left().await
}

/// The second driver does not answer while the kubelet goes.
async fn restarted_in_the_middle(cx: &Context) -> Result<()> {
    let (_first, second) = start_both(cx).await?;
    apply_claim(cx, "both", &[request(FIRST), request(SECOND)]).await?;
    let make = async {
        cx.create_pod(&ShellPod::print_env("p").claim("both").build()).await?;
        Ok(())
    };
    restart_during_call(cx, &second, "NodePrepareResource", make).await.context("prepare")?;
    cx.wait_running_nudged("p", SETTLED_WITHIN).await?;
    sees_both(cx, "p").await?;

    let delete = async {
        cx.api::<Pod>().delete("p", &DeleteParams::default()).await?;
        Ok(())
    };
    restart_during_call(cx, &second, "NodeUnprepareResource", delete).await.context("unprepare")?;
    cx.wait_gone("p", SETTLED_WITHIN).await?;
    nothing_left().await
}

/// Stops the second driver (SIGSTOP), brings a call about, restarts the kubelet once it has called, and lets the driver go
/// on.
async fn restart_during_call(
    cx: &Context,
    second: &Driver,
    method: &str,
    bring_about: impl Future<Output = Result<()>>,
) -> Result<()> {
    let log = ComponentLog::of("kubelet")?;
    second.signal(Signal::SIGSTOP).await?;
    let called = async {
        bring_about.await?;
        wait_stuck(&log, method).await?;
        node::component("restart", "kubelet").await
    };
    let called = called.await;
    second.signal(Signal::SIGCONT).await?;
    called?;
    wait_ready(cx, &log).await
}

/// Waits until a call hangs: the first driver answers in far less than the time between two looks.
async fn wait_stuck(log: &ComponentLog, method: &str) -> Result<()> {
    eventually(&format!("a call of {method} without an answer"), SOON, || async {
        if log.open_calls(method)? == 0 {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok((log.open_calls(method)? > 0).then_some(()))
    })
    .await
}

/// Both in processes of their own, registered and published, with their device classes.
async fn start_both(cx: &Context) -> Result<(Driver, Driver)> {
    let log = ComponentLog::of("kubelet")?;
    let start = |name| cx.start_driver("mock-gpu-driver", &["--driver-name", name]);
    let drivers = (start(FIRST)?, start(SECOND)?);
    wait_ready(cx, &log).await?;
    Ok(drivers)
}

/// Waits until both drivers are registered, by what the kubelet says since the start of `log`, and published.
async fn wait_ready(cx: &Context, log: &ComponentLog) -> Result<()> {
    for driver in [FIRST, SECOND] {
        let registered = || async { Ok(log.says_registered(driver)?.then_some(())) };
        eventually(&format!("{driver} registered by the kubelet"), SOON, registered).await?;
        cx.wait_devices(driver, DEVICES, SOON).await?;
    }
    Ok(())
}

/// For the first GPU of the first driver or the second of the second, whose variables in a container have other names.
fn request(driver: &str) -> Value {
    let (name, index) = if driver == FIRST { ("of-first", 0) } else { ("of-second", 1) };
    let selects = format!("device.driver == '{driver}' && device.attributes['{driver}'].index == {index}");
    json!({"name": name, "exactly": {
        "deviceClassName": "any.example.com",
        "selectors": [{"cel": {"expression": selects}}],
    }})
}

async fn apply_claim(cx: &Context, name: &str, requests: &[Value]) -> Result<()> {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "any.example.com"},
        "spec": {},
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    });
    for object in [class, claim] {
        cx.apply(&object.to_string()).await?;
    }
    Ok(())
}

async fn sees_both(cx: &Context, pod: &str) -> Result<()> {
    let gpus = gpu::gpus_of(cx, pod).await?;
    ensure!(gpus == ["gpu-0", "gpu-1"], "pod {pod} sees {gpus:?}");
    Ok(())
}

fn files_of(driver: &str) -> Result<gpu::Files> {
    gpu::files_of(Path::new(node::KUBELET), driver)
}

/// Waits until no claim has left a file.
async fn nothing_left() -> Result<()> {
    eventually("no CDI file and no record of both drivers", Duration::from_secs(5), || async {
        let files = [files_of(FIRST)?, files_of(SECOND)?];
        let empty = files.iter().all(|files| files.records.is_empty() && files.cdi.is_empty());
        Ok(empty.then_some(()))
    })
    .await
}

/// Waits until the kubelet counts so many claims in use for the first driver, for the second, and in all.
async fn wait_in_use(cx: &Context, wanted: [u64; 3]) -> Result<()> {
    let what = format!("{wanted:?} claims in use in the kubelet's metrics");
    eventually(&what, SOON, || async {
        let metrics = Metrics::read(&cx.client).await?;
        let mut found = Vec::new();
        for driver in [FIRST, SECOND, "<any>"] {
            found.push(metrics.sum("dra_resource_claims_in_use", &[("driver_name", driver)])?);
        }
        Ok((found == wanted).then_some(()))
    })
    .await
}

/// Calls of the first driver and of the second that went well: prepares, then unprepares.
async fn good_calls(cx: &Context) -> Result<Vec<u64>> {
    let metrics = Metrics::read(&cx.client).await?;
    let mut calls = Vec::new();
    for driver in [FIRST, SECOND] {
        for method in ["NodePrepareResources", "NodeUnprepareResources"] {
            let method = format!("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}");
            let labels = [("driver_name", driver), ("method_name", &method), ("grpc_status_code", "OK")];
            calls.push(metrics.sum("dra_grpc_operations_duration_seconds_count", &labels)?);
        }
    }
    Ok(calls)
}
