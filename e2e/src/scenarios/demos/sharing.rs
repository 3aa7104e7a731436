//! Who has a device: each pod its own, several containers or pods the same.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};

use super::{GPUS, all_different, follow, full, have_gates, results};
use crate::{context::Context, demo::Demo, scenario::Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("demos_claim_template", |cx| Box::pin(claim_template(cx))).on_chart(GPUS),
        Scenario::new("demos_shared_by_pods", |cx| Box::pin(follow(cx, "shared-by-pods"))).on_chart(GPUS),
        Scenario::new("demos_opaque_config", |cx| Box::pin(opaque_config(cx))).on_chart(GPUS),
        full("demos_several_requests", |cx| Box::pin(follow(cx, "several-requests"))),
        full("demos_shared_by_containers", |cx| Box::pin(follow(cx, "shared-by-containers"))),
        full("demos_shared_with_init_container", |cx| Box::pin(follow(cx, "shared-with-init-container"))),
        full("demos_job", |cx| Box::pin(job(cx))),
        full("demos_pod_group", |cx| Box::pin(pod_group(cx))).since(37),
        full("demos_extended_resource", |cx| Box::pin(follow(cx, "extended-resource"))).since(36),
    ]
}

async fn claim_template(cx: &Context) -> Result<()> {
    let demo = Demo::follow(cx, "claim-template").await?;
    let results = results(cx).await?;
    ensure!(results.len() == 2, "{results:?}");
    all_different(&results, "device")?;
    demo.finish().await
}

/// Each two containers have the same GPU, the one that the README shows for one of them.
async fn opaque_config(cx: &Context) -> Result<()> {
    let demo = Demo::follow(cx, "opaque-config").await?;
    all_different(&results(cx).await?, "device")?;
    demo.finish().await
}

/// Two containers of all pods have one GPU, and the third has another.
async fn job(cx: &Context) -> Result<()> {
    let demo = Demo::follow(cx, "job").await?;
    let of_job = ListParams::default().labels("job-name=gpu-job");
    let pods = cx.api::<Pod>().list(&of_job).await.context("listing the job's pods")?.items;
    ensure!(pods.len() == 10, "the job has {} pods", pods.len());
    for pod in pods {
        let name = pod.metadata.name.unwrap_or_default();
        let mut gpus = Vec::new();
        for container in ["container0", "container1", "container2"] {
            let of = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
            let log = cx.api::<Pod>().logs(&name, &of).await.with_context(|| format!("the log of {name}"))?;
            let gpu = log.lines().find_map(|line| Some(line.split_once("=gpu-")?.1.to_owned()));
            gpus.push(gpu.with_context(|| format!("{container} of {name} has no GPU: {log}"))?);
        }
        // Between two pods the shared claim may have been free, and got another GPU.
        ensure!(gpus[1] == gpus[2] && gpus[0] != gpus[1], "the containers of {name} have {gpus:?}");
    }
    demo.finish().await
}

async fn pod_group(cx: &Context) -> Result<()> {
    if !have_gates(cx, &["GenericWorkload", "DRAWorkloadResourceClaims"]).await? {
        return Ok(());
    }
    follow(cx, "pod-group").await
}
