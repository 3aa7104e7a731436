//! A container runtime with CDI off. The newest containerd always has it on, so an older one takes its place for a while.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use dra_doctor::FindingKind;
use tokio::process::{Child, Command};

use super::{Doctor, RUNS_WITHIN};
use crate::{
    context::Context,
    eventually::eventually,
    node::{self, ComponentLog},
    pod::ShellPod,
    scenarios::gpu::{self, DRIVER},
};

const UP_WITHIN: Duration = Duration::from_secs(60);
/// The kubelet dials all sockets anew after its start.
const REGISTERED_WITHIN: Duration = Duration::from_secs(60);
/// Where the older one keeps what it has.
const STATE: &str = "/run/older-containerd";

/// A pod with a claim cannot start; the doctor says why, on the node and from afar.
pub(super) async fn cdi_off(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    node::component("stop", "kubelet").await?;
    node::component("stop", "containerd").await?;
    let outcome = with_older(cx).await;
    node::component("stop", "kubelet").await?;
    let log = ComponentLog::of("kubelet")?;
    node::component("start", "containerd").await?;
    node::component("start", "kubelet").await?;
    outcome?;
    registered(&log).await?;
    let healthy = || async { Ok(Doctor::run(cx, &["node", "--driver", DRIVER]).await?.is_silent().ok()) };
    eventually("a doctor that is silent again", REGISTERED_WITHIN, healthy).await
}

async fn with_older(cx: &Context) -> Result<()> {
    let mut containerd = start(cx).await?;
    let outcome = pod_that_does_not_start(cx).await;
    containerd.kill().await.context("ending the older containerd")?;
    outcome
}

async fn pod_that_does_not_start(cx: &Context) -> Result<()> {
    for image in fs::read_dir("/run/cluster/images").context("reading the images")? {
        node::ctr(&["images", "import", &image?.path().display().to_string()]).await?;
    }
    let log = ComponentLog::of("kubelet")?;
    node::component("start", "kubelet").await?;
    registered(&log).await?;
    cx.create_pod(&ShellPod::print_env("blind").template("one-gpu").build()).await?;
    // The kubelet's word for a container that the runtime refuses.
    cx.wait_event("blind", "Failed", UP_WITHIN).await?;
    let said = Doctor::run(cx, &["node", "--driver", DRIVER]).await?;
    said.names(FindingKind::CdiOff, "CDI is off: containers with devices do not start")?;
    let told = || async {
        let said = Doctor::of_pod(cx, "blind").await?;
        Ok(said.names(FindingKind::ContainerNotCreated, "CDI support is explicitly disabled").ok())
    };
    eventually("the doctor of the pod repeats what the runtime says", UP_WITHIN, told).await?;
    cx.delete_pod("blind", RUNS_WITHIN).await
}

async fn registered(log: &ComponentLog) -> Result<()> {
    let registered = || async { Ok(log.says_registered(DRIVER)?.then_some(())) };
    eventually("driver registered by a kubelet that was started", REGISTERED_WITHIN, registered).await
}

/// Starts it at the socket of the cluster's own, with that one's configuration but for CDI and the folders.
async fn start(cx: &Context) -> Result<Child> {
    let config =
        fs::read_to_string("/run/cluster/conf/containerd.toml").context("reading containerd.toml")?;
    let state = format!("root = \"{STATE}/root\"\nstate = \"{STATE}/state\"");
    let config = [
        ("root = \"/run/containerd-root\"\nstate = \"/run/containerd\"", state.as_str()),
        ("enable_cdi = true", "enable_cdi = false"),
    ]
    .into_iter()
    .try_fold(config, |config, (from, to)| -> Result<String> {
        ensure!(config.contains(from), "containerd.toml has no {from:?}");
        Ok(config.replace(from, to))
    })?;
    let file = cx.scratch.join("older-containerd.toml");
    fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
    let log = cx.scratch.join("older-containerd.log");
    let log = fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let programs = cx.helper("older-containerd");
    let mut command = Command::new(programs.join("containerd"));
    command.arg("--config").arg(&file).env("PATH", with_first(&programs));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
    let process = command.spawn().with_context(|| format!("running containerd of {}", programs.display()))?;
    let up = || async { Ok(node::ctr(&["version"]).await.ok()) };
    eventually("an older containerd answers", UP_WITHIN, up).await?;
    Ok(process)
}

/// `PATH` with this folder before all others: containerd looks there for its shim.
fn with_first(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}
