//! A GPU that reports a critical error, and what is to be seen of it.

use std::time::Duration;

use anyhow::Result;
use fake_nvml::{Event, Gpu, Machine};
use serde_json::json;

use super::{DRIVER, GPUS, Hardware, RUNNING_WITHIN, claim, hardware, is_gpu, request};
use crate::{
    chart::NVIDIA,
    context::Context,
    eventually::eventually,
    pod::ShellPod,
    scenario::Scenario,
    scenarios::gpu_health::{is_on, is_shown, wait_shown, wait_shown_nudged},
};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_xid_taints_a_gpu_and_its_pod_tells_until_it_is_back", |cx| Box::pin(xid(cx)))
            .on(&NVIDIA, &[])
            .within(Duration::from_secs(180)),
    ]
}

/// The GPU of this scenario.
const GPU: u32 = 4;

/// The error keeps other pods away, and the pod that has the GPU says that it does not work; both until the GPU was lost
/// and is back. Clusters without taints show nothing of it, and some that have them nothing in pods.
async fn xid(cx: &Context) -> Result<()> {
    if !is_on(cx, "DRADeviceTaints").await? {
        return Ok(());
    }
    let in_pods = is_shown(cx).await?;
    let node = Hardware::install(&hardware::machine())?;
    cx.wait_devices(DRIVER, hardware::DEVICES, RUNNING_WITHIN).await?;
    claim(cx, "gpu", &json!({"requests": [request(GPUS, 1, &is_gpu(GPU))]})).await?;
    cx.create_pod(&ShellPod::new("pod", "exec sleep 3600").claim("gpu").build()).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    // An error from before the driver waits for one is not told.
    eventually("a driver that waits for what GPUs report", RUNNING_WITHIN, || async {
        Ok(NVIDIA.logs(cx, None).await?.contains("waits for what GPUs report").then_some(()))
    })
    .await?;

    change(&node, |gpu| gpu.events.push(Event::xid(79)))?;
    wait_taints(cx, &[("gpu.nvidia.com/xid", "79")]).await?;
    if in_pods {
        wait_shown(cx, "pod", "Unhealthy", "critical error XID 79", RUNNING_WITHIN).await?;
    }
    change(&node, |gpu| gpu.lost = true)?;
    wait_taints(cx, &[("gpu.nvidia.com/gpu-lost", ""), ("gpu.nvidia.com/xid", "79")]).await?;
    change(&node, |gpu| gpu.lost = false)?;
    wait_taints(cx, &[]).await?;
    if in_pods {
        wait_shown_nudged(cx, "pod", "Healthy", RUNNING_WITHIN).await?;
    }
    Ok(())
}

/// Does something to the GPU.
fn change(node: &Hardware, change: impl FnOnce(&mut Gpu)) -> Result<()> {
    let of_machine = |machine: &mut Machine| {
        if let Some(gpu) = machine.gpus.iter_mut().find(|gpu| gpu.number == GPU) {
            change(gpu);
        }
    };
    Ok(node.fake.change(of_machine)?)
}

/// Waits until the GPU has these taints, by key and value, and no other device has any.
async fn wait_taints(cx: &Context, expected: &[(&str, &str)]) -> Result<()> {
    eventually(&format!("taints {expected:?}"), RUNNING_WITHIN, || async {
        let slices = cx.slices(DRIVER).await?;
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let mut taints: Vec<(&str, &str, &str)> = devices
            .flat_map(|device| {
                let taints = device.taints.iter().flatten();
                taints.map(|taint| {
                    (device.name.as_str(), taint.key.as_str(), taint.value.as_deref().unwrap_or_default())
                })
            })
            .collect();
        taints.sort_unstable();
        let device = format!("gpu-{GPU}");
        let expected = expected.iter().map(|(key, value)| (device.as_str(), *key, *value));
        Ok(taints.iter().copied().eq(expected).then_some(()))
    })
    .await
}
