//! The demos that users are shown, on the driver that helm has installed. `cargo xtask e2e --suite demos` runs all.
//!
//! One scenario for each folder of `demos/`: it runs what the README says, sees that it prints what the README shows, and
//! checks what the README says in words. Other documents have one for the sections that show output. Those that want the
//! chart with the same values stand together.

mod capacity;
mod choosing;
mod documents;
mod looking;
mod profiles;
mod sharing;
mod troubles;

pub(super) use troubles::wait_webhook;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::ListParams;
use serde_json::Value;

use super::gpu_health;
use crate::{
    context::Context,
    demo::Demo,
    eventually::eventually,
    scenario::{Running, Scenario, Tier},
};

/// What the README of the demos calls *GPUs*, less the webhook, which only its own demo needs.
const GPUS: &[&str] = &["webhook.enabled=false"];
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    let lists = [
        sharing::scenarios(),
        documents::on_gpus(),
        choosing::scenarios(),
        looking::on_gpus(),
        troubles::on_gpus(),
        looking::scenarios(),
        capacity::scenarios(),
        troubles::scenarios(),
        documents::scenarios(),
        profiles::scenarios(),
    ];
    let slow = Duration::from_secs(240);
    lists.into_iter().flatten().map(|scenario| scenario.within(slow)).collect()
}

/// A scenario of the full tier, on the chart as most want it.
fn full(name: &'static str, run: for<'a> fn(&'a Context) -> Running<'a>) -> Scenario {
    Scenario::new(name, run).tier(Tier::Full).on_chart(GPUS)
}

/// For demos whose README shows all that there is to see.
async fn follow(cx: &Context, name: &str) -> Result<()> {
    Demo::follow(cx, name).await?.finish().await
}

/// Whether these gates are on, which Kubernetes has off, and so some clusters here; if not, a line says so.
async fn have_gates(cx: &Context, gates: &[&str]) -> Result<bool> {
    for gate in gates {
        if !gpu_health::is_on(cx, gate).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The results of all claims in the scenario's namespace, as JSON.
async fn results(cx: &Context) -> Result<Vec<Value>> {
    let claims = cx.api::<ResourceClaim>().list(&ListParams::default()).await.context("listing claims")?;
    let mut results = Vec::new();
    for claim in claims {
        let allocation = claim.status.and_then(|status| status.allocation);
        let allocated = allocation.and_then(|allocation| allocation.devices?.results).unwrap_or_default();
        for result in allocated {
            results.push(serde_json::to_value(result).context("writing a result")?);
        }
    }
    Ok(results)
}

/// That the values are all there, and all different.
fn all_different(values: &[Value], field: &str) -> Result<()> {
    let different: BTreeSet<_> = values.iter().filter_map(|value| value[field].as_str()).collect();
    ensure!(different.len() == values.len(), "{field} of {values:?}");
    Ok(())
}

/// Waits until the scheduler has said that it has no node for the pod, and gives what it says.
async fn wait_unschedulable(cx: &Context, pod: &str) -> Result<String> {
    eventually(&format!("pod {pod} has to wait"), SOON, || async {
        let status = cx.api::<Pod>().get(pod).await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let mut refused = conditions.into_iter().filter(|one| one.reason.as_deref() == Some("Unschedulable"));
        Ok(refused.next().map(|condition| condition.message.unwrap_or_default()))
    })
    .await
}
