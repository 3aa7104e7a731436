//! A GPU that the containers of a pod share.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{
    DRIVER, GPUS, Hardware, RUNNING_WITHIN, claim, ensure_sees, hardware, is_gpu, log_of, look_around,
    request,
};
use crate::{
    chart::NVIDIA,
    context::Context,
    pod::ShellPod,
    scenario::Scenario,
    scenarios::gpu::{self, SETTLED_WITHIN},
};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_gpu_is_shared_in_turn_by_two_containers", |cx| Box::pin(in_turn(cx)))
            .on(&NVIDIA, &[])
            .within(Duration::from_secs(180)),
    ]
}

/// Both have its node, and those of the driver; how long each has it for itself is set for the claim, and taken back.
async fn in_turn(cx: &Context) -> Result<()> {
    const GPU: u32 = 2;
    let node = Hardware::install(&hardware::machine())?;
    cx.wait_devices(DRIVER, hardware::DEVICES, RUNNING_WITHIN).await?;
    let sharing = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    let parameters =
        json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing});
    let devices = json!({
        "requests": [request(GPUS, 1, &is_gpu(GPU))],
        "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
    });
    claim(cx, "shared", &devices).await?;
    cx.create_pod(&two_containers(ShellPod::new("pod", &look_around()).claim("shared").build())?).await?;
    cx.wait_running("pod", RUNNING_WITHIN).await?;
    for container in ["main", "second"] {
        let seen = ensure_sees(&log_of(cx, "pod", container).await?, &["nvidia2"]);
        seen.with_context(|| format!("container {container}"))?;
    }
    let asked = |slice: u32| format!("compute-policy -i {} --set-timeslice {slice}", hardware::uuid(GPU));
    let (long, default) = (asked(3), asked(0));
    ensure!(node.asked_of_nvidia_smi()? == [long.as_str()], "{:?}", node.asked_of_nvidia_smi()?);
    cx.delete_pod("pod", SETTLED_WITHIN).await?;
    gpu::nothing_left().await?;
    ensure!(node.asked_of_nvidia_smi()? == [long, default], "{:?}", node.asked_of_nvidia_smi()?);
    Ok(())
}

/// The same pod with its container twice.
fn two_containers(mut pod: Pod) -> Result<Pod> {
    let spec = pod.spec.as_mut().context("a pod without a spec")?;
    let mut second = spec.containers.first().cloned().context("a pod without a container")?;
    "second".clone_into(&mut second.name);
    spec.containers.push(second);
    Ok(pod)
}
