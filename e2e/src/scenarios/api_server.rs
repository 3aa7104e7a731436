//! An API server that is not there.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::gpu::{self, DRIVER};
use crate::{context::Context, node, pod::ShellPod, scenario::Scenario};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("driver_started_without_an_api_server_registers_and_publishes_once_it_is_back", |cx| {
            Box::pin(down_at_start(cx))
        })
        .within(Duration::from_secs(180)),
    ]
}

async fn down_at_start(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    node::component("stop", "apiserver").await?;
    let started = gpu::start_registered(cx, &[]).await;
    // In any case: the scenarios after this one need it.
    node::component("start", "apiserver").await?;
    started?;
    cx.wait_devices(DRIVER, 8, Duration::from_secs(60)).await?;
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    cx.wait_running("p", Duration::from_secs(30)).await?;
    let gpus = gpu::gpus_of(cx, "p").await?;
    ensure!(gpus.len() == 1, "the container sees {gpus:?}");
    cx.delete_pod("p", Duration::from_secs(30)).await?;
    gpu::nothing_left().await
}
