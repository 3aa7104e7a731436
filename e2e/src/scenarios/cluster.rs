//! The cluster itself: if these fail, look at it before any driver.

use std::{collections::BTreeSet, fs, io, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use crate::{
    context::Context,
    feature_gates, node,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("node_is_ready", |cx| Box::pin(node_is_ready(cx))).tier(Tier::Smoke),
        Scenario::new("feature_gates_are_as_their_document_says", |cx| Box::pin(documented_gates(cx)))
            .tier(Tier::Smoke),
        Scenario::new("pod_without_claims_runs_and_its_log_is_read", |cx| Box::pin(pod_without_claims(cx)))
            .tier(Tier::Smoke),
        Scenario::new("pods_run_after_a_kubelet_restart", |cx| Box::pin(kubelet_restart(cx))),
    ]
}

async fn node_is_ready(cx: &Context) -> Result<()> {
    let node = Api::<Node>::all(cx.client.clone()).get(node::NAME).await.context("reading the node")?;
    let status = node.status.context("the node has no status")?;
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    ensure!(ready.is_some_and(|ready| ready.status == "True"), "conditions are {:?}", status.conditions);
    let version = status.node_info.map(|info| info.kubelet_version).unwrap_or_default();
    ensure!(version == format!("v{}", cx.kubernetes), "the kubelet says {version}, wanted {}", cx.kubernetes);
    Ok(())
}

async fn documented_gates(cx: &Context) -> Result<()> {
    let metrics = http::Request::get("/metrics").body(Vec::new())?;
    let metrics = cx.client.request_text(metrics).await.context("reading the API server's metrics")?;
    let documented = feature_gates::documented(cx.minor()?)?;
    let differences =
        feature_gates::differences(&documented, &feature_gates::reported(&metrics)?, &set_gates()?);
    ensure!(differences.is_empty(), "docs/feature-gates.md is wrong:\n{}", differences.join("\n"));
    Ok(())
}

/// Gates that this cluster was started with: `A=true,B=false`.
fn set_gates() -> Result<BTreeSet<String>> {
    const FILE: &str = "/run/cluster/conf/feature-gates";
    match fs::read_to_string(FILE) {
        Ok(gates) => {
            Ok(gates.split(',').filter_map(|gate| Some(gate.split_once('=')?.0.trim().to_owned())).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error).with_context(|| format!("reading {FILE}")),
    }
}

async fn pod_without_claims(cx: &Context) -> Result<()> {
    cx.create_pod(&ShellPod::print_env("plain").build()).await?;
    cx.wait_running("plain", Duration::from_secs(30)).await?;
    let host = cx.wait_log_line("plain", "HOSTNAME=", Duration::from_secs(10)).await?;
    ensure!(host == "plain", "the container's host name is {host}");
    cx.delete_pod("plain", Duration::from_secs(20)).await
}

async fn kubelet_restart(cx: &Context) -> Result<()> {
    cx.create_pod(&ShellPod::print_env("before").build()).await?;
    cx.wait_running("before", Duration::from_secs(30)).await?;
    node::component("restart", "kubelet").await?;
    cx.create_pod(&ShellPod::print_env("after").build()).await?;
    cx.wait_running("after", Duration::from_secs(60)).await?;
    cx.wait_running("before", Duration::from_secs(5)).await.map(drop)
}
