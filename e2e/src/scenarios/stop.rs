//! How a driver stops beside a real kubelet.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpStream, UnixStream},
};

use super::{
    gpu::{self, SETTLED_WITHIN},
    registration::registration_socket,
};
use crate::{context::Context, pod::ShellPod, scenario::Scenario};

/// What a stop may take, and slack for a busy machine.
const BOUND: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(3);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// Longer than the scenario.
const HANGS: &str = "600000";
const METRICS: &str = "127.0.0.1:18084";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("stop_keeps_its_bound_whatever_holds_it_up_and_the_claim_is_prepared_later", |cx| {
            Box::pin(bound(cx))
        })
        .within(Duration::from_secs(300)),
    ]
}

/// The kubelet is connected (with a health stream too, if it knows health), waits for a prepare that does not end, and
/// others are connected who say nothing.
async fn bound(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let arguments = ["--num-devices", "1", "--prepare-delay", HANGS, "--metrics-address", METRICS];
    let (driver, _) = gpu::start_registered(cx, &arguments).await?;
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    gpu::wait_files("the record of the claim that hangs", RUNS_WITHIN, |files| files.records.len() == 1)
        .await?;
    let _mute = [mute(&registration_socket()?).await?, mute(&gpu::our_socket()?).await?];
    let mut metrics = TcpStream::connect(METRICS).await.context("connecting for metrics")?;
    metrics.write_all(b"GET /metrics HTTP/1.1\r\n").await?;

    let start = Instant::now();
    let status = driver.terminate(BOUND + SLACK).await?;
    let took = start.elapsed();
    let files = gpu::files()?;
    ensure!(status.code() == Some(0), "the driver ended with {status}: {}", driver.log()?);
    ensure!(files.sockets.is_empty(), "left are {:?}", files.sockets);
    println!("    stopped after {} ms with a prepare that hangs and mute connections", took.as_millis());

    let start = Instant::now();
    gpu::start_registered(cx, &["--num-devices", "1"]).await?;
    // A change of the pod lets the kubelet look at it at once; by itself it would after 60 to 90 s.
    let label = Patch::Merge(json!({"metadata": {"labels": {"look": "again"}}}));
    cx.api::<Pod>().patch("p", &PatchParams::default(), &label).await.context("labelling the pod")?;
    cx.wait_running("p", SETTLED_WITHIN).await?;
    println!("    its pod ran {} ms after the next start", start.elapsed().as_millis());
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// A client that begins as HTTP/2 does and says no more.
async fn mute(socket: &Path) -> Result<UnixStream> {
    let connected = UnixStream::connect(socket).await;
    let mut stream = connected.with_context(|| format!("connecting to {}", socket.display()))?;
    stream.write_all(b"PRI * HTTP/2.0\r\n").await?;
    Ok(stream)
}
