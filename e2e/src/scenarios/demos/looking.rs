//! What one can know of devices, and how they are.

use anyhow::{Context as _, Result};
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};

use super::{SOON, follow, full};
use crate::{chart, context::Context, eventually::eventually, scenario::Scenario};

pub(super) fn on_gpus() -> Vec<Scenario> {
    vec![
        full("demos_admin_access", |cx| Box::pin(follow(cx, "admin-access"))),
        full("demos_device_metadata", |cx| Box::pin(follow(cx, "device-metadata"))),
        full("demos_taints", |cx| Box::pin(taints(cx))).since(37),
    ]
}

pub(super) fn scenarios() -> Vec<Scenario> {
    const HEALTH: &[&str] = &["webhook.enabled=false", "healthAnnotations=true"];
    vec![full("demos_health", |cx| Box::pin(health(cx))).on_chart(HEALTH).since(36)]
}

/// One pod of the driver on the node, as users find it who do not come right after an upgrade.
async fn health(cx: &Context) -> Result<()> {
    eventually("one pod of the driver", SOON, || async {
        Ok((chart::MOCK.pods(cx).await?.len() == 1).then_some(()))
    })
    .await?;
    follow(cx, "health").await
}

/// The rule is not in the scenario's namespace, and would be in the way of all after it.
async fn taints(cx: &Context) -> Result<()> {
    let followed = follow(cx, "taints").await;
    let rules: Api<DeviceTaintRule> = Api::all(cx.client.clone());
    let left = rules.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    followed?;
    left.context("deleting taint rules").map(drop)
}
