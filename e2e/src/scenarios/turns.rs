//! Two instances of a driver, of which one publishes: rolling updates to other devices, and kubelets that come and go
//! meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::gpu::{self, DRIVER};
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node,
    node::ComponentLog,
    pod::ShellPod,
    scenario::{Scenario, Tier},
    slice_history::SliceWatch,
};

const SOON: Duration = Duration::from_secs(10);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// Longer than an instance needs to take the turn, if it wrongly did.
const A_WHILE: Duration = Duration::from_secs(3);
/// The longest that a pool may be empty after a registration.
const EMPTY_AT_MOST: Duration = Duration::from_secs(2);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rolling_updates_to_other_devices_switch_the_slices_once_each", |cx| {
            Box::pin(other_devices(cx))
        })
        .within(Duration::from_secs(180)),
        Scenario::new("slices_of_a_rolling_update_come_back_once_after_each_kubelet_restart", |cx| {
            Box::pin(kubelet_restarts(cx))
        })
        .within(Duration::from_secs(1800)),
    ]
}

/// Starts an instance in a pod of its own, with so many devices.
async fn start_instance(cx: &Context, pod: u32, devices: usize) -> Result<Driver> {
    let (uid, devices) = (format!("00000000-0000-4000-8000-00000000000{pod}"), devices.to_string());
    let arguments = ["--pod-uid", uid.as_str(), "--num-devices", devices.as_str()];
    Ok(gpu::start_registered(cx, &arguments).await?.0)
}

async fn run_pod(cx: &Context, name: &str) -> Result<()> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    cx.wait_running(name, RUNS_WITHIN).await.map(drop)
}

async fn other_devices(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let first = start_instance(cx, 1, 8).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    run_pod(cx, "one").await?;

    // The usual order: the old instance ends after the new one has taken over.
    let second = start_instance(cx, 2, 9).await?;
    cx.wait_devices(DRIVER, 9, SOON).await?;
    published_once_registered(&second)?;
    run_pod(cx, "two").await?;
    first.terminate(SOON).await?;

    // An update that is taken back, and one that dies.
    let third = start_instance(cx, 3, 7).await?;
    cx.wait_devices(DRIVER, 7, SOON).await?;
    run_pod(cx, "three").await?;
    third.terminate(SOON).await?;
    cx.wait_devices(DRIVER, 9, SOON).await?;
    let fourth = start_instance(cx, 4, 8).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    fourth.kill().await?;
    cx.wait_devices(DRIVER, 9, SOON).await?;

    // The same devices: nothing is written, whoever publishes.
    let before = watch.history()?.len();
    let fifth = start_instance(cx, 5, 9).await?;
    wait_log(&fifth, "this instance of the driver publishes").await?;
    second.terminate(SOON).await?;
    tokio::time::sleep(A_WHILE).await;
    let history = watch.history()?;
    ensure!(history.len() == before, "a hand-over of equal devices made {history:?}");

    history.check()?;
    ensure!(history.device_counts() == [8, 9, 7, 9, 8, 9], "{:?}", history.device_counts());
    ensure!(history.len() == 6, "more writes than changes: {history:?}");
    for name in ["one", "two", "three"] {
        cx.wait_running(name, Duration::from_secs(1)).await.context("pods go on")?;
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

async fn wait_log(driver: &Driver, text: &str) -> Result<()> {
    let what = format!("{text:?} in {}", driver.log_path().display());
    eventually(&what, SOON, || async { Ok(driver.log()?.contains(text).then_some(())) }).await
}

fn published_once_registered(driver: &Driver) -> Result<()> {
    let log = driver.log()?;
    let line = |text: &str| log.lines().position(|line| line.contains(text));
    let (registered, published) =
        (line("registered by the kubelet"), line("this instance of the driver publishes"));
    ensure!(
        registered.is_some() && registered < published,
        "took over in line {published:?}, registered in line {registered:?}: {log}"
    );
    Ok(())
}

async fn kubelet_restarts(cx: &Context) -> Result<()> {
    let restarts = if cx.tier == Tier::Full { 50 } else { 2 };
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let _old = start_instance(cx, 1, 8).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    run_pod(cx, "p").await?;
    let _new = start_instance(cx, 2, 9).await?;
    cx.wait_devices(DRIVER, 9, SOON).await?;

    let mut emptiest = Duration::ZERO;
    for restart in 1..=restarts {
        let log = ComponentLog::of("kubelet")?;
        node::component("restart", "kubelet").await?;
        let both = || async { Ok((log.registrations(DRIVER)? >= 2).then_some(())) };
        eventually("both instances registered", RUNS_WITHIN, both).await?;
        let registered = Instant::now();
        cx.wait_devices(DRIVER, 9, SOON).await?;
        // The kubelet may still be at its wipe.
        tokio::time::sleep(A_WHILE).await;
        let history = watch.history()?;
        let empty = history.longest_empty(registered, Instant::now());
        ensure!(empty <= EMPTY_AT_MOST, "restart {restart}: no slices for {empty:?} after the registration");
        emptiest = emptiest.max(empty);
    }
    let history = watch.history()?;
    history.check()?;
    ensure!(history.device_counts() == [8, 9], "{:?}", history.device_counts());
    println!(
        "    {restarts} kubelet restarts, {} events of slices, at most {} ms without slices after a registration",
        history.len(),
        emptiest.as_millis()
    );
    cx.wait_running("p", Duration::from_secs(1)).await?;
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}
