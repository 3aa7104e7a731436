//! The health of GPUs in the status of the pods that have them.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{
    gpu::{self, DRIVER},
    gpu_health::{self, Gpus},
};
use crate::{
    context::Context,
    pod::ShellPod,
    scenario::{Scenario, Tier},
    slice_suite::Server,
};

const SOON: Duration = Duration::from_secs(15);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// Long enough for the kubelet to show something if it wrongly did.
const A_WHILE: Duration = Duration::from_secs(2);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pod_shows_the_health_of_its_gpu_as_it_changes_if_the_gate_is_on", |cx| {
            Box::pin(changes(cx))
        })
        .tier(Tier::Smoke),
        Scenario::new("health_is_unknown_while_the_driver_is_down_and_known_again_after", |cx| {
            Box::pin(driver_down(cx))
        }),
        Scenario::new("kubelet_takes_each_version_of_health_that_it_knows_alone", |cx| {
            Box::pin(versions(cx))
        })
        .tier(Tier::Full),
        Scenario::new("each_share_of_a_gpu_shows_its_health", |cx| Box::pin(shares(cx))),
        Scenario::new("many_changes_reach_many_pods_over_the_one_connection", |cx| {
            Box::pin(many_changes(cx))
        }),
    ]
}

async fn changes(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 1)?;
    let (driver, _) = gpu::start_registered(cx, &["--inventory", gpus.file()?]).await?;
    run_pod(cx, "p").await?;
    if gpu_health::is_shown(cx).await? {
        gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
        gpus.is_unhealthy("gpu-0", "fell off the bus")?;
        let shown = gpu_health::wait_shown(cx, "p", "Unhealthy", "fell off the bus", SOON).await?;
        ensure!(shown.keys().all(|name| name.ends_with("-gpu-0")), "it is shown as {shown:?}");
        gpus.is_unhealthy("gpu-0", "")?;
        gpu_health::wait_shown(cx, "p", "Unhealthy", "", SOON).await?;
        gpus.are(&json!({}))?;
        gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    } else {
        gpus.is_unhealthy("gpu-0", "fell off the bus")?;
        driver.wait_log("the inventory has changed", SOON).await?;
        gpu_health::nudge(cx, "p").await?;
        tokio::time::sleep(A_WHILE).await;
        let shown = gpu_health::shown(cx, "p").await?;
        ensure!(shown.is_empty(), "shown without the gate: {shown:?}");
        cx.wait_running("p", Duration::from_secs(1)).await?;
    }
    one_connection()?;
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

async fn driver_down(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 1)?;
    let arguments = ["--inventory", gpus.file()?];
    let (driver, _) = gpu::start_registered(cx, &arguments).await?;
    run_pod(cx, "p").await?;
    if !gpu_health::is_shown(cx).await? {
        return cx.delete_pod("p", RUNS_WITHIN).await;
    }
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    driver.terminate(SOON).await?;
    gpu_health::wait_shown_nudged(cx, "p", "Unknown", SOON).await?;

    let (driver, _) = gpu::start_registered(cx, &arguments).await?;
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    driver.kill().await?;
    gpu_health::wait_shown_nudged(cx, "p", "Unknown", SOON).await?;
    // What it has never heard of is news.
    gpus.is_unhealthy("gpu-0", "broke meanwhile")?;
    gpu::start_registered(cx, &arguments).await?;
    gpu_health::wait_shown(cx, "p", "Unhealthy", "broke meanwhile", SOON).await?;
    cx.delete_pod("p", RUNS_WITHIN).await
}

async fn versions(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 1)?;
    let start = async |versions| {
        let arguments = ["--inventory", gpus.file()?, "--health-versions", versions];
        Ok::<_, anyhow::Error>(gpu::start_registered(cx, &arguments).await?.0)
    };
    let driver = start("v1alpha1").await?;
    run_pod(cx, "p").await?;
    if !gpu_health::is_shown(cx).await? {
        return cx.delete_pod("p", RUNS_WITHIN).await;
    }
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    driver.terminate(SOON).await?;
    gpu_health::wait_shown_nudged(cx, "p", "Unknown", SOON).await?;

    let driver = start("v1").await?;
    let knows_v1 = Server::ask(&cx.client).await?.minor >= 37;
    if knows_v1 {
        gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    } else {
        // Such a kubelet asks all the same, by the only version that it knows, and is told that there is none.
        tokio::time::sleep(A_WHILE).await;
        gpu_health::wait_shown_nudged(cx, "p", "Unknown", SOON).await?;
    }
    ensure!(driver.is_running().await?, "the driver has ended");
    cx.delete_pod("p", RUNS_WITHIN).await
}

async fn shares(cx: &Context) -> Result<()> {
    if !gpu_health::is_on(cx, "DRAConsumableCapacity").await? || !gpu_health::is_shown(cx).await? {
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    let memory =
        json!({"value": "80Gi", "requestPolicy": {"default": "10Gi", "validRange": {"min": "10Gi"}}});
    let device = json!({"name": "gpu-0", "allowMultipleAllocations": true, "capacity": {"memory": memory}});
    let gpus = Gpus::of(cx, vec![device])?;
    gpu::start_registered(cx, &["--inventory", gpus.file()?]).await?;
    for name in ["one", "two"] {
        let request = json!({"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "20Gi"}}});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        });
        cx.apply(&claim.to_string()).await?;
        cx.create_pod(&ShellPod::print_env(name).claim(name).build()).await?;
    }
    for name in ["one", "two"] {
        cx.wait_running(name, RUNS_WITHIN).await?;
        gpu_health::wait_shown(cx, name, "Healthy", "", SOON).await?;
    }
    gpus.is_unhealthy("gpu-0", "hot")?;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let shown = gpu_health::wait_shown(cx, name, "Unhealthy", "hot", SOON).await?;
        ids.extend(shown.into_keys());
    }
    ensure!(ids.len() == 2 && ids[0] != ids[1], "two shares are shown as {ids:?}");
    for name in ["one", "two"] {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

/// Changes faster than the kubelet syncs pods: each pod has to end up with what was said last of its own GPU.
async fn many_changes(cx: &Context) -> Result<()> {
    const PODS: usize = 4;
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, PODS)?;
    gpu::start_registered(cx, &["--inventory", gpus.file()?]).await?;
    let names: Vec<_> = (0..PODS).map(|number| format!("p-{number}")).collect();
    for name in &names {
        cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    }
    for name in &names {
        cx.wait_running(name, RUNS_WITHIN * 2).await?;
    }
    one_connection()?;
    if gpu_health::is_shown(cx).await? {
        let rounds = if cx.tier == Tier::Full { 40 } else { 8 };
        for round in 0..rounds {
            gpus.are(&sick(PODS, round))?;
            // As often as the driver looks.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let last = rounds - 1;
        try_join_all(names.iter().map(|name| shows_last(cx, name, last))).await?;
    }
    for name in &names {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    one_connection()?;
    gpu::nothing_left().await
}

/// Some GPUs are ill in each round, others in the next.
fn sick(gpus: usize, round: usize) -> Value {
    let ill = (0..gpus).filter(|index| is_ill(*index, round));
    let health = ill.map(|index| {
        (format!("gpu-{index}"), json!({"status": "Unhealthy", "message": format!("round {round}")}))
    });
    Value::Object(health.collect())
}

fn is_ill(index: usize, round: usize) -> bool {
    (index + round).is_multiple_of(2)
}

async fn shows_last(cx: &Context, pod: &str, round: usize) -> Result<()> {
    let gpus = gpu::gpus_of(cx, pod).await?;
    let [name] = &gpus[..] else { bail!("pod {pod} has {gpus:?}") };
    let index = name.trim_start_matches("gpu-").parse().with_context(|| format!("GPU {name}"))?;
    let (health, message) = if is_ill(index, round) {
        ("Unhealthy", format!("round {round}"))
    } else {
        ("Healthy", String::new())
    };
    gpu_health::wait_shown(cx, pod, health, &message, RUNS_WITHIN).await.map(drop)
}

/// Runs a pod with one GPU.
async fn run_pod(cx: &Context, name: &str) -> Result<()> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, RUNS_WITHIN).await.map(drop)
}

/// The kubelet has exactly one connection to the driver, for calls and health together.
fn one_connection() -> Result<()> {
    let socket = gpu::our_socket()?;
    let table = fs::read_to_string("/proc/net/unix").context("reading /proc/net/unix")?;
    let path = socket.to_string_lossy();
    // The state of a socket that a server has accepted is 03; what listens is 01.
    let accepted = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(5) == Some(&"03") && fields.get(7) == Some(&path.as_ref())
    };
    let connections = table.lines().filter(accepted).count();
    ensure!(connections == 1, "{connections} connections to {path}");
    Ok(())
}
