//! How the kubelet finds a driver written in Rust: by the `@` in its registration socket's file name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::gpu::{self, DRIVER};
use crate::{context::Context, node, scenario::Scenario};

/// It waits 10 s for the first one to end, as one that is being replaced would.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("registration_socket_answers_grpc_go_only_by_a_name_with_an_at_sign", |cx| {
            Box::pin(at_sign(cx))
        }),
        Scenario::new("second_instance_without_rolling_updates_is_refused", |cx| {
            Box::pin(second_instance(cx))
        }),
    ]
}

/// The name works for a client that dials as the kubelet does, and the same socket by a name without `@` does not: the
/// day that the second half fails, the first has lost its point.
async fn at_sign(cx: &Context) -> Result<()> {
    let (_driver, _) = gpu::start_registered(cx, &[]).await?;
    let socket = registration_socket()?;
    let answer = dial(cx, &socket).await?;
    ensure!(answer.status.success(), "{}: {}", socket.display(), String::from_utf8_lossy(&answer.stderr));
    let info: Value = serde_json::from_slice(&answer.stdout).context("reading what grpc-dial prints")?;
    ensure!(info["name"] == DRIVER, "GetInfo says {info}");
    ensure!(info["milliseconds"].as_f64().is_some_and(|took| took < 200.0), "GetInfo took too long: {info}");

    // Another name of the same socket, in a folder that the kubelet does not look into.
    let plain = Path::new(node::PLUGINS).join(format!("{DRIVER}-reg.sock"));
    fs::hard_link(&socket, &plain).with_context(|| format!("linking {}", plain.display()))?;
    let answer = dial(cx, &plain).await?;
    let errors = String::from_utf8_lossy(&answer.stderr);
    ensure!(!answer.status.success() && errors.contains("PROTOCOL_ERROR"), "a name without @ gave: {errors}");
    Ok(())
}

async fn second_instance(cx: &Context) -> Result<()> {
    let (first, _) = gpu::start_registered(cx, &[]).await?;
    let second = cx.start_driver("mock-gpu-driver", &[])?;
    let status = second.wait(REFUSED_WITHIN).await?;
    let log = second.log()?;
    ensure!(!status.success(), "the second instance ended with {status}: {log}");
    let errors: Vec<_> = log.lines().filter(|line| line.starts_with("error: ")).collect();
    ensure!(errors.len() == 1, "the second instance says its error in {} lines: {log}", errors.len());
    ensure!(first.is_running().await?, "the first instance ended too");
    ensure!(
        dial(cx, &registration_socket()?).await?.status.success(),
        "the first instance does not answer any more"
    );
    Ok(())
}

async fn dial(cx: &Context, socket: &Path) -> Result<Output> {
    let helper = cx.helper("grpc-dial");
    Command::new(&helper).arg(socket).output().await.with_context(|| format!("running {}", helper.display()))
}

/// The driver's only registration socket.
pub(crate) fn registration_socket() -> Result<PathBuf> {
    let entries = fs::read_dir(node::PLUGIN_REGISTRY).context("reading the plugin registry")?;
    let sockets: Vec<_> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.to_string_lossy().ends_with(&format!("@{DRIVER}-reg.sock")))
        .collect();
    ensure!(sockets.len() == 1, "the driver has the registration sockets {sockets:?}");
    Ok(sockets[0].clone())
}
