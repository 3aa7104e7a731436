//! Parts of GPUs: such that are there, and such that are made for a claim.

use std::time::Duration;

use anyhow::{Result, ensure};
use fake_nvml::{Gpu, Machine, Model};
use serde_json::json;

use super::{
    DRIVER, Hardware, MIG_DEVICES, RUNNING_WITHIN, claim, devices_of, ensure_sees, hardware, log_of,
    look_around, request,
};
use crate::{
    chart::NVIDIA,
    context::Context,
    pod::ShellPod,
    scenario::Scenario,
    scenarios::gpu::{self, SETTLED_WITHIN},
};

pub(super) fn that_exist() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_mig_device_that_is_there_reaches_a_pod", |cx| Box::pin(is_there(cx)))
            .on(&NVIDIA, &[])
            .within(Duration::from_secs(180)),
    ]
}

pub(super) fn that_are_made() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_mig_device_is_made_for_a_pod_and_removed", |cx| Box::pin(is_made(cx)))
            .on(&NVIDIA, &["dynamicMig=true"])
            .within(Duration::from_secs(180)),
    ]
}

/// The pod gets the nodes of the GPU and of the part's capabilities.
async fn is_there(cx: &Context) -> Result<()> {
    let node = Hardware::install(&hardware::machine())?;
    cx.wait_devices(DRIVER, hardware::DEVICES, RUNNING_WITHIN).await?;
    run_with_mig_device(cx, "3g.20gb", "nvidia0").await?;
    ensure!(devices_of(cx, "mig").await? == ["gpu-0-mig-3g20gb-9-4"], "{:?}", devices_of(cx, "mig").await?);
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(node.instances()? == 4, "{} GPU instances after the pod", node.instances()?);
    Ok(())
}

/// A part is made on a GPU that was whole, and removed after the pod.
async fn is_made(cx: &Context) -> Result<()> {
    let node = Hardware::install(&Machine::new([Gpu::new(Model::H100Sxm5_80Gb, 5)]))?;
    run_with_mig_device(cx, "1g.10gb", "nvidia5").await?;
    ensure!(node.instances()? == 1, "{} GPU instances while the pod runs", node.instances()?);
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(node.instances()? == 0, "{} GPU instances after the pod", node.instances()?);
    Ok(())
}

/// Runs the pod `pod` with the claim `mig` for a device of this profile; it has to see this node of a GPU.
async fn run_with_mig_device(cx: &Context, profile: &str, gpu: &str) -> Result<()> {
    let cel = format!("device.attributes['gpu.nvidia.com'].profile == '{profile}'");
    claim(cx, "mig", &json!({"requests": [request(MIG_DEVICES, 1, &cel)]})).await?;
    cx.create_pod(&ShellPod::new("pod", &look_around()).claim("mig").build()).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    let log = log_of(cx, "pod", "main").await?;
    ensure_sees(&log, &[gpu])?;
    let capabilities = log.lines().filter(|line| line.starts_with("nvidia-cap") && *line != "nvidia-caps");
    ensure!(capabilities.count() == 2, "the container has not the two capabilities of a MIG device:\n{log}");
    Ok(())
}
