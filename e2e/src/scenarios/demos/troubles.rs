//! What goes wrong: pods that wait, settings with mistakes, a driver that dies.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use super::{follow, full};
use crate::{chart, context::Context, eventually::eventually, scenario::Scenario};

pub(super) fn on_gpus() -> Vec<Scenario> {
    vec![full("demos_pending", |cx| Box::pin(follow(cx, "pending")))]
}

pub(super) fn scenarios() -> Vec<Scenario> {
    const WEBHOOK: &[&str] = &["webhook.enabled=true"];
    // As GPUs, and for itself: the demo takes the driver away.
    const GPUS_ALONE: &[&str] = &["webhook.enabled=false", "gpu.partitions=0"];
    vec![
        full("demos_webhook", |cx| Box::pin(webhook(cx))).on_chart(WEBHOOK),
        full("demos_walk_through", |cx| Box::pin(follow(cx, "walk-through"))).on_chart(GPUS_ALONE),
    ]
}

/// Helm's `--wait` waits for the webhook, too.
async fn webhook(cx: &Context) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cx.client.clone(), chart::MOCK.namespace);
    eventually("the webhook is there", Duration::from_secs(60), || async {
        let webhook = deployments.get(&format!("{}-webhook", chart::MOCK.name)).await?;
        Ok((webhook.status.and_then(|status| status.ready_replicas) >= Some(1)).then_some(()))
    })
    .await?;
    follow(cx, "webhook").await
}
