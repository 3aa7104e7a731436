//! Metrics and probes of a driver, as those see them who run it. The driver is a process on the node, so the kubelet's
//! probes come from a pod in the node's network.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    api::core::v1::{GRPCAction, HTTPGetAction, Pod, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::gpu;
use crate::{
    context::Context, driver::Driver, eventually::eventually, node, pod::ShellPod, scenario::Scenario,
};

const SOON: Duration = Duration::from_secs(15);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// All addresses of the node, since the kubelet probes the pod's.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 18_080);
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 18_081);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("metrics_and_probes_answer_curl_and_the_kubelet", |cx| {
            Box::pin(metrics_and_probes(cx))
        }),
        Scenario::new("log_lines_of_a_claim_carry_its_call_as_json", |cx| Box::pin(json_log(cx))),
    ]
}

async fn metrics_and_probes(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (metrics_address, health_address) = (METRICS.to_string(), HEALTH.to_string());
    let arguments = ["--metrics-address", &metrics_address, "--health-address", &health_address];
    let (driver, _) = gpu::start_registered(cx, &arguments).await?;
    wait_page(METRICS, "/readyz", 200).await?;
    wait_page(HEALTH, "/healthz", 200).await?;
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    let metrics = wait_page(METRICS, "/metrics", 200).await?;
    for (series, wanted) in [
        (
            "dra_plugin_claim_outcomes_total{driver=\"gpu.example.com\",method=\"NodePrepareResources\",outcome=\"ok\"}",
            "1",
        ),
        ("dra_plugin_claims{driver=\"gpu.example.com\",state=\"prepared\"}", "1"),
        ("dra_plugin_registration{driver=\"gpu.example.com\",state=\"registered\"}", "1"),
        ("dra_plugin_slice_writes_total{driver=\"gpu.example.com\",result=\"failed\"}", "0"),
        ("dra_plugin_ready{driver=\"gpu.example.com\"}", "1"),
    ] {
        let found = metrics.lines().find_map(|line| line.strip_prefix(series)).map(str::trim);
        ensure!(found == Some(wanted), "{series} is {found:?} instead of {wanted}: {metrics}");
    }

    cx.delete_pod("p", RUNS_WITHIN).await?;

    // The kubelet's own clients, on both protocols.
    cx.create_pod(&probing_pod("probed")).await?;
    wait_condition(cx, "probed", "Ready", "True").await?;

    lose_registration_socket(&driver).await?;
    cx.wait_event("probed", "Unhealthy", RUNS_WITHIN).await?;
    wait_condition(cx, "probed", "Ready", "False").await?;
    let reason = wait_page(HEALTH, "/healthz", 503).await?;
    ensure!(reason.contains("GetInfo") && reason.contains("No such file"), "{reason}");
    let reason = wait_page(METRICS, "/readyz", 503).await?;
    ensure!(reason.contains("it had registered the plugin and is gone"), "{reason}");
    cx.delete_pod("probed", RUNS_WITHIN).await
}

/// As a person does who tidies up; the kubelet unregisters the driver.
async fn lose_registration_socket(driver: &Driver) -> Result<()> {
    ensure!(driver.is_running().await?, "the driver has ended");
    for socket in gpu::files()?.sockets {
        if socket.starts_with(node::PLUGIN_REGISTRY) {
            tokio::fs::remove_file(&socket).await.with_context(|| format!("{}", socket.display()))?;
        }
    }
    Ok(())
}

/// A pod in the node's network that is ready and alive as the driver is.
fn probing_pod(name: &str) -> Pod {
    let mut pod = ShellPod::print_env(name).build();
    if let Some(spec) = &mut pod.spec {
        spec.host_network = Some(true);
        if let Some(container) = spec.containers.first_mut() {
            let grpc = GRPCAction {
                port: HEALTH.port().into(),
                service: Some("liveness".into()),
                ..GRPCAction::default()
            };
            container.readiness_probe = Some(every_second(Probe { grpc: Some(grpc), ..Probe::default() }));
            let http = HTTPGetAction {
                path: Some("/readyz".into()),
                port: IntOrString::Int(METRICS.port().into()),
                ..HTTPGetAction::default()
            };
            container.startup_probe = Some(every_second(Probe { http_get: Some(http), ..Probe::default() }));
        }
    }
    pod
}

/// Longer than a check of the driver may take.
fn every_second(probe: Probe) -> Probe {
    Probe { period_seconds: Some(1), timeout_seconds: Some(5), failure_threshold: Some(1), ..probe }
}

async fn wait_condition(cx: &Context, pod: &str, condition: &str, status: &str) -> Result<()> {
    let what = format!("{condition}={status} of pod {pod}");
    eventually(&what, RUNS_WITHIN, || async {
        let found = cx.api::<Pod>().get(pod).await?.status.unwrap_or_default();
        let mut conditions = found.conditions.into_iter().flatten();
        Ok(conditions.any(|found| found.type_ == condition && found.status == status).then_some(()))
    })
    .await
}

/// Waits until a page has this status; gives its content.
pub(super) async fn wait_page(address: SocketAddr, path: &str, status: u16) -> Result<String> {
    let what = format!("status {status} of http://{address}{path}");
    eventually(&what, SOON, || async {
        let (found, content) = get(address, path).await?;
        Ok((found == status).then_some(content))
    })
    .await
}

/// What `curl http://ADDRESS/PATH` gets.
async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let Some((head, content)) = answer.split_once("\r\n\r\n") else { bail!("no answer: {answer:?}") };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| format!("no status: {head:?}"))?, content.to_owned()))
}

async fn json_log(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &["--log-format", "json"]).await?;
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    let log = driver.log()?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let done: Vec<Value> = lines.filter(|line| line["fields"]["message"] == "claim done").collect();
    let [line] = &done[..] else { bail!("{} lines of a claim: {log}", done.len()) };
    let (call, claim) = (&line["spans"][0], &line["spans"][1]);
    ensure!(call["driver"] == gpu::DRIVER && call["method"] == "NodePrepareResources", "{line}");
    ensure!(call["request"] == 1 && claim["namespace"] == cx.namespace.as_str(), "{line}");
    ensure!(claim["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{line}");
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}
