//! Health of GPUs when an instance of the driver or the kubelet comes to its end.

use std::{
    cell::Cell,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{
    gpu::{self, DRIVER},
    gpu_health::{self, Gpus, HealthyWatch},
};
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node,
    node::ComponentLog,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const SOON: Duration = Duration::from_secs(15);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// For how long nobody may know how a GPU is when an instance of its driver ends.
const UNKNOWN_AT_MOST: Duration = Duration::from_secs(15);
/// For how long all has to be well again before it counts.
const CALM: Duration = Duration::from_secs(3);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("end_of_one_of_two_instances_leaves_health_unknown_for_15_s_at_most", |cx| {
            Box::pin(instances(cx))
        }),
        Scenario::new("kubelet_that_was_away_hears_how_the_gpus_are_now", |cx| Box::pin(kubelet_away(cx)))
            .within(Duration::from_secs(180)),
        Scenario::new("kubelet_that_stops_reading_holds_up_nothing_and_then_hears_the_last_word", |cx| {
            Box::pin(mute_kubelet(cx))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(180)),
    ]
}

async fn start_instance(cx: &Context, number: u32, gpus: &Gpus) -> Result<Driver> {
    let uid = format!("00000000-0000-4000-8000-00000000000{number}");
    let arguments = ["--pod-uid", uid.as_str(), "--inventory", gpus.file()?];
    Ok(gpu::start_registered(cx, &arguments).await?.0)
}

async fn instances(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 1)?;
    let old = start_instance(cx, 1, &gpus).await?;
    run_pod(cx, "p").await?;
    if !gpu_health::is_shown(cx).await? {
        return cx.delete_pod("p", RUNS_WITHIN).await;
    }
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;

    let new = start_instance(cx, 2, &gpus).await?;
    let updated = unknown_while(cx, async { old.terminate(SOON).await.map(drop) }).await?;
    let newer = start_instance(cx, 3, &gpus).await?;
    let crashed = unknown_while(cx, new.kill()).await?;
    // An update that is taken back.
    let failed = start_instance(cx, 4, &gpus).await?;
    let taken_back = unknown_while(cx, async { failed.terminate(SOON).await.map(drop) }).await?;
    ensure!(newer.is_running().await?, "the instance that stays has ended");
    println!(
        "    not healthy for {} ms as the old instance ended, {} ms as one crashed, {} ms as the new one ended",
        updated.as_millis(),
        crashed.as_millis(),
        taken_back.as_millis()
    );
    for unknown in [updated, crashed, taken_back] {
        ensure!(unknown <= UNKNOWN_AT_MOST, "health was unknown for {unknown:?}");
    }
    cx.delete_pod("p", RUNS_WITHIN).await
}

/// Does something and gives for how long the pod's GPU was not shown healthy meanwhile and after.
async fn unknown_while(cx: &Context, act: impl Future<Output = Result<()>>) -> Result<Duration> {
    let done = Cell::new(false);
    let watch = HealthyWatch::start().run(cx, "p", CALM, || done.get());
    let act = async {
        act.await?;
        done.set(true);
        Ok(())
    };
    let (longest, ()) = tokio::try_join!(watch, act)?;
    Ok(longest)
}

async fn kubelet_away(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, 1)?;
    let (driver, _) = gpu::start_registered(cx, &["--inventory", gpus.file()?]).await?;
    run_pod(cx, "p").await?;
    if !gpu_health::is_shown(cx).await? {
        return cx.delete_pod("p", RUNS_WITHIN).await;
    }
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;

    let ends = [("kill", "hot"), ("stop", "too hot")];
    for (action, message) in &ends[..if cx.tier == Tier::Full { 2 } else { 1 }] {
        node::component(action, "kubelet").await?;
        gpus.is_unhealthy("gpu-0", message)?;
        let kubelet = ComponentLog::of("kubelet")?;
        node::component("start", "kubelet").await?;
        gpu::wait_registered(&kubelet).await?;
        gpu_health::wait_shown(cx, "p", "Unhealthy", message, SOON).await?;
    }
    ensure!(driver.is_running().await?, "the driver has ended");
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// Messages so long and so many that no buffer holds what is said while the kubelet does not read.
async fn mute_kubelet(cx: &Context) -> Result<()> {
    const GPUS: usize = 1000;
    const ROUNDS: usize = 20;
    gpu::apply_class_and_template(cx).await?;
    let gpus = Gpus::new(cx, GPUS)?;
    let (driver, _) = gpu::start_registered(cx, &["--inventory", gpus.file()?]).await?;
    cx.wait_devices(DRIVER, GPUS, SOON).await?;
    run_pod(cx, "p").await?;
    if !gpu_health::is_shown(cx).await? {
        return cx.delete_pod("p", RUNS_WITHIN).await;
    }
    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;

    let kubelet = Kubelet::freeze()?;
    let before = driver.memory()?.now;
    for round in 1..=ROUNDS {
        gpus.are(&all_ill(GPUS, &format!("round {round} {}", "x".repeat(900))))?;
        // The driver has taken it up: it is not held up.
        let seen = || async { Ok((times_changed(&driver)? >= round).then_some(())) };
        eventually("the driver sees the inventory change", SOON, seen).await?;
    }
    let grown = driver.memory()?.now.saturating_sub(before);
    gpus.are(&all_ill(GPUS, "the last word"))?;
    let thawed = Instant::now();
    kubelet.thaw()?;
    gpu_health::wait_shown(cx, "p", "Unhealthy", "the last word", RUNS_WITHIN).await?;
    println!(
        "    {ROUNDS} reports on {GPUS} GPUs to a kubelet that did not read: {} MiB more, the last word shown after {} ms",
        grown >> 20,
        thawed.elapsed().as_millis()
    );
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

fn all_ill(gpus: usize, message: &str) -> Value {
    let ill =
        (0..gpus).map(|index| (format!("gpu-{index}"), json!({"status": "Unhealthy", "message": message})));
    Value::Object(ill.collect())
}

fn times_changed(driver: &Driver) -> Result<usize> {
    Ok(driver.log()?.matches("the inventory has changed").count())
}

async fn run_pod(cx: &Context, name: &str) -> Result<()> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, RUNS_WITHIN).await.map(drop)
}

/// A kubelet that stands still; it goes on when this is dropped.
struct Kubelet(Pid);

impl Kubelet {
    fn freeze() -> Result<Self> {
        let text = fs::read_to_string("/run/cluster/pid-kubelet").context("reading the kubelet's pid")?;
        let pid = Pid::from_raw(text.trim().parse().context("the kubelet's pid")?);
        signal::kill(pid, Signal::SIGSTOP).context("stopping the kubelet")?;
        Ok(Self(pid))
    }

    fn thaw(self) -> Result<()> {
        signal::kill(self.0, Signal::SIGCONT).context("letting the kubelet go on")
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // It is there, or the next scenario says that it is not.
        let _ = signal::kill(self.0, Signal::SIGCONT);
    }
}
