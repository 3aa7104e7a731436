//! A kubelet that does not want a driver, or does not come: where that is told.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};

use super::{
    gpu::{self, DRIVER},
    operations::wait_page,
    registration::registration_socket,
};
use crate::{
    context::Context,
    eventually::eventually,
    node,
    scenario::{Scenario, Tier},
};

const RESTARTED_WITHIN: Duration = Duration::from_secs(60);
/// The kubelet's back-off may have begun, and Events are 10 s apart.
const TOLD_WITHIN: Duration = Duration::from_secs(40);
const METRICS: &str = "127.0.0.1:18085";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("refusal_is_told_by_log_readiness_metrics_and_events_of_the_node", |cx| {
            Box::pin(refused(cx))
        }),
        Scenario::new("kubelet_that_does_not_come_is_told_with_what_was_tried", |cx| Box::pin(overdue(cx)))
            .tier(Tier::Full)
            .within(Duration::from_secs(180)),
    ]
}

/// The same plugin by a second name: the kubelet refuses what has the endpoint of a plugin that it knows.
async fn refused(cx: &Context) -> Result<()> {
    let (driver, _) = gpu::start_registered(cx, &["--node-events", "--metrics-address", METRICS]).await?;
    let socket = registration_socket()?;
    let second = Path::new(node::PLUGIN_REGISTRY).join(format!("second@{DRIVER}-reg.sock"));
    fs::hard_link(&socket, &second).with_context(|| format!("linking {}", second.display()))?;

    driver.wait_log("refused by the kubelet", TOLD_WITHIN).await?;
    let address = METRICS.parse()?;
    let reason = wait_page(address, "/readyz", 503).await?;
    ensure!(reason.contains("refused the plugin") && reason.contains("already registered"), "{reason}");
    let metrics = wait_page(address, "/metrics", 200).await?;
    ensure!(
        metrics.contains("dra_plugin_registration{driver=\"gpu.example.com\",state=\"refused\"} 1"),
        "{metrics}"
    );
    let note = wait_event(cx, "DRADriverRefused").await?;
    ensure!(note.contains("already registered"), "{note}");
    println!("    Event on the Node: {note}");

    // With the second name the kubelet forgets the plugin, which has the same endpoint; anew it finds the first.
    fs::remove_file(&second).with_context(|| format!("removing {}", second.display()))?;
    node::component("restart", "kubelet").await?;
    let ready = eventually("ready again", RESTARTED_WITHIN, || async {
        Ok(wait_page(address, "/readyz", 200).await.ok())
    });
    ready.await?;
    wait_event(cx, "DRADriverRegistered").await.map(drop)
}

/// Started while the kubelet is away, and found when it is back.
async fn overdue(cx: &Context) -> Result<()> {
    node::component("stop", "kubelet").await?;
    let driver = cx.start_driver("mock-gpu-driver", &["--node-events", "--metrics-address", METRICS]);
    let told = async {
        driver?.wait_log("not registered by the kubelet for 30 s", TOLD_WITHIN).await?;
        let reason = wait_page(METRICS.parse()?, "/readyz", 503).await?;
        ensure!(
            reason.contains(node::PLUGIN_REGISTRY) && reason.contains("nobody has dialled it"),
            "{reason}"
        );
        let note = wait_event(cx, "DRADriverNotRegistered").await?;
        println!("    Event on the Node: {note}");
        Ok(())
    }
    .await;
    node::component("start", "kubelet").await?;
    told?;
    let ready = eventually("ready", RESTARTED_WITHIN, || async {
        Ok(wait_page(METRICS.parse()?, "/readyz", 200).await.ok())
    });
    ready.await.map(drop)
}

/// Waits for an Event of ours on the Node; gives what it says.
async fn wait_event(cx: &Context, reason: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(cx.client.clone(), "default");
    let ours = ListParams::default().fields(&format!("reason={reason},regarding.kind=Node"));
    eventually(&format!("an Event {reason}"), TOLD_WITHIN, || async {
        let found = events.list(&ours).await.context("listing Events")?.items;
        Ok(found.into_iter().find_map(|event| event.note.filter(|note| note.contains(DRIVER))))
    })
    .await
}
