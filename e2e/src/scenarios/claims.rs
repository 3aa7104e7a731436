//! Claims that users make themselves, and more of them than one.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use super::gpu::{self, DRIVER};
use crate::{context::Context, pod::ShellPod, scenario::Scenario};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const GPUS: usize = 8;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("claim_made_before_the_driver_starts_is_served", |cx| Box::pin(early_claim(cx))),
        Scenario::new("as_many_pods_as_gpus_run_at_once", |cx| Box::pin(all_gpus(cx))),
    ]
}

async fn early_claim(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::apply_claim(cx, "early").await?;
    cx.create_pod(&ShellPod::print_env("p").claim("early").build()).await?;
    cx.wait_event("p", "FailedScheduling", Duration::from_secs(60)).await?;
    gpu::start_registered(cx, &[]).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "p").await?;
    ensure!(gpus.len() == 1, "the container sees {gpus:?}");
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

async fn all_gpus(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    cx.wait_devices(DRIVER, GPUS, Duration::from_secs(10)).await?;
    let names: Vec<_> = (0..GPUS).map(|index| format!("p{index}")).collect();
    for name in &names {
        cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await?;
    }
    let mut seen = BTreeSet::new();
    for name in &names {
        cx.wait_running(name, RUNS_WITHIN).await?;
        seen.extend(gpu::gpus_of(cx, name).await?);
    }
    ensure!(seen.len() == GPUS, "{GPUS} pods share {seen:?}");
    try_join_all(names.iter().map(|name| cx.delete_pod(name, RUNS_WITHIN))).await?;
    gpu::nothing_left().await
}
