//! The demos that users are shown, on the driver that helm has installed. `cargo xtask e2e --suite demos` runs all.
//!
//! One scenario for each folder of `demos/`: it applies the files as they are and checks what the README beside them says
//! that one will see. Those that want the chart with the same values stand together.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;

use super::gpu;
use crate::{
    context::Context,
    demo,
    eventually::eventually,
    scenario::{Scenario, Tier},
};

/// What the README of the demos calls *GPUs*.
const GPUS: &[&str] = &["webhook.enabled=false"];
const RUNS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("demos_claim_template", |cx| Box::pin(claim_template(cx))).on_chart(GPUS),
        Scenario::new("demos_extended_resource", |cx| Box::pin(extended_resource(cx)))
            .on_chart(GPUS)
            .tier(Tier::Full)
            .since(36),
    ]
}

/// Two pods that name one template have different GPUs.
async fn claim_template(cx: &Context) -> Result<()> {
    demo::apply(cx, "claim-template").await?;
    let gpus = different_gpus(cx, &["pod0", "pod1"]).await?;
    ensure!(gpus.len() == 2, "the pods have {gpus:?}");
    end(cx, &["pod0", "pod1"]).await
}

/// Pods that ask for GPUs as for an extended resource have them, and the scheduler's claim is in their status.
async fn extended_resource(cx: &Context) -> Result<()> {
    const PODS: [&str; 2] = ["extended-implicit", "extended-named"];
    demo::apply(cx, "extended-resource").await?;
    let gpus = different_gpus(cx, &PODS).await?;
    ensure!(gpus.len() == 4, "the pods have {gpus:?}");
    for pod in PODS {
        let status = cx.api::<Pod>().get(pod).await?.status.unwrap_or_default();
        ensure!(status.extended_resource_claim_status.is_some(), "no claim in the status of {pod}");
    }
    end(cx, &PODS).await
}

/// The GPUs that these pods have printed, once they run: `gpu-0` and so on.
///
/// # Errors
/// Two of them have the same one.
async fn different_gpus(cx: &Context, pods: &[&str]) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for pod in pods {
        cx.wait_running(pod, RUNS_WITHIN).await?;
        for gpu in gpus(cx, pod).await? {
            ensure!(all.insert(gpu.clone()), "{pod} has {gpu}, as another pod has");
        }
    }
    Ok(all)
}

/// The GPUs that a pod has printed: the values of variables that end in `=gpu-N`.
async fn gpus(cx: &Context, pod: &str) -> Result<BTreeSet<String>> {
    let what = format!("GPUs in the log of pod {pod}");
    eventually(&what, RUNS_WITHIN, || async {
        let log = cx.pod_log(pod).await?;
        let found: BTreeSet<_> = gpus_in(&log).map(str::to_owned).collect();
        Ok((!found.is_empty()).then_some(found))
    })
    .await
}

fn gpus_in(log: &str) -> impl Iterator<Item = &str> {
    log.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(_, value)| value)
        .filter(|value| value.strip_prefix("gpu-").is_some_and(|index| index.parse::<u32>().is_ok()))
}

/// Deletes the pods, after which nothing of them is left on the node.
async fn end(cx: &Context, pods: &[&str]) -> Result<()> {
    for pod in pods {
        cx.delete_pod(pod, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_found_by_what_variables_hold() {
        let log =
            "DRA_ADMIN_ACCESS=false\nGPU_DEVICE_0=gpu-0\nGPU_DEVICE_0_X=gpu-x\nOTHER=gpu-12\nno variable\n";
        assert_eq!(gpus_in(log).collect::<Vec<_>>(), ["gpu-0", "gpu-12"]);
    }
}
