//! When the kubelet removes a driver's slices: half a minute after it has lost the driver, and at its own start.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::{
    behind_proxy::BehindProxy,
    gpu::{self, DRIVER},
};
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node::{self, ComponentLog},
    scenario::{Scenario, Tier},
    slice_history::SliceWatch,
    socket_proxy::Rule,
};

const DEVICES: usize = 8;
const SOON: Duration = Duration::from_secs(30);
/// The kubelet waits 30 s.
const REMOVED_WITHIN: Duration = Duration::from_secs(90);
/// The pauses between its dials have grown to about 20 s by then.
const BACK_WITHIN: Duration = Duration::from_secs(120);

const ENDED: &str = "ended.example.com";
const KILLED: &str = "killed.example.com";
const UNREGISTERED: &str = "unregistered.example.com";
const UNREACHABLE: &str = "unreachable.example.com";
const RESTARTED: &str = "restarted.example.com";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("slices_wiped_while_a_driver_hangs_are_back_once_it_goes_on", |cx| Box::pin(hangs(cx)))
            .within(Duration::from_secs(240)),
        Scenario::new("slices_of_drivers_that_the_kubelet_loses_go_after_thirty_seconds", |cx| {
            Box::pin(lost(cx))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(480)),
    ]
}

/// The kubelet starts anew and gets no answer from the driver.
async fn hangs(cx: &Context) -> Result<()> {
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    cx.wait_devices(DRIVER, DEVICES, SOON).await?;
    let kubelet = ComponentLog::of("kubelet")?;
    driver.signal(Signal::SIGSTOP).await?;
    let wiped = async {
        node::component("restart", "kubelet").await?;
        cx.wait_devices(DRIVER, 0, SOON).await?;
        ensure!(!kubelet.says_registered(DRIVER)?, "registered without an answer");
        Ok(())
    };
    let wiped: Result<()> = wiped.await;
    driver.signal(Signal::SIGCONT).await?;
    wiped?;
    let registered = || async { Ok(kubelet.says_registered(DRIVER)?.then_some(())) };
    eventually("driver registered by the restarted kubelet", BACK_WITHIN, registered).await?;
    cx.wait_devices(DRIVER, DEVICES, BACK_WITHIN).await.map(drop)
}

/// Five drivers at once: four are lost, each in its way, and one is away for less than half a minute.
async fn lost(cx: &Context) -> Result<()> {
    const AWAY: Duration = Duration::from_secs(12);
    let start = |name| cx.start_driver("mock-gpu-driver", &["--driver-name", name]);
    let (ended, killed, restarted) = (start(ENDED)?, start(KILLED)?, start(RESTARTED)?);
    let unregistered = start(UNREGISTERED)?;
    let unreachable = BehindProxy::start(cx, UNREACHABLE, Rule::Forward).await?;
    let dra = unreachable.serve()?;
    for driver in [ENDED, KILLED, UNREGISTERED, UNREACHABLE, RESTARTED] {
        cx.wait_devices(driver, DEVICES, SOON).await?;
    }
    let watch = SliceWatch::start(&cx.client, RESTARTED).await?;

    restarted.terminate(Duration::from_secs(10)).await?;
    ended.terminate(Duration::from_secs(10)).await?;
    killed.kill().await?;
    remove_registration_socket(UNREGISTERED)?;
    dra.set(Rule::Refuse);
    dra.cut();
    tokio::time::sleep(AWAY).await;
    let _again = start(RESTARTED)?;

    for driver in [ENDED, KILLED, UNREGISTERED, UNREACHABLE] {
        cx.wait_devices(driver, 0, REMOVED_WITHIN).await.context(driver)?;
    }
    for driver in [&unregistered, &unreachable.driver] {
        keeps_quiet(driver).await?;
    }
    for driver in [UNREGISTERED, UNREACHABLE] {
        ensure!(cx.slices(driver).await?.is_empty(), "{driver} cannot be called and has published");
    }
    let history = watch.history()?;
    ensure!(
        history.len() == 1 && history.device_counts() == [DEVICES],
        "slices of a driver that was back after {AWAY:?} were written or deleted: {history:?}"
    );

    dra.set(Rule::Forward);
    cx.wait_devices(UNREACHABLE, DEVICES, BACK_WITHIN).await.map(drop)
}

/// As a person does who tidies up; the kubelet takes the driver for gone.
fn remove_registration_socket(driver: &str) -> Result<()> {
    let files = gpu::files_of(Path::new(node::KUBELET), driver)?;
    let name = format!("@{driver}-reg.sock");
    let mut sockets = files.sockets.iter().filter(|path| path.to_string_lossy().ends_with(&name));
    let socket = sockets.next().with_context(|| format!("no registration socket of {driver}"))?;
    fs::remove_file(socket).with_context(|| format!("removing {}", socket.display()))
}

/// It lives and has seen what is the matter.
async fn keeps_quiet(driver: &Driver) -> Result<()> {
    driver.wait_log("the kubelet has closed its connection", SOON).await?;
    ensure!(driver.is_running().await?, "the driver has ended");
    Ok(())
}
