//! Devices that have to have something in common.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{DRIVER, GPUS, Hardware, MIG_DEVICES, RUNNING_WITHIN, claim, devices_of, hardware, request};
use crate::{chart::NVIDIA, context::Context, pod::ShellPod, scenario::Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("nvidia_devices_of_a_claim_have_one_pcie_root_or_one_parent", |cx| {
            Box::pin(one_root_or_parent(cx))
        })
        .on(&NVIDIA, &[])
        .within(Duration::from_secs(180)),
    ]
}

/// A kind of devices that is free, what they have to have in common, how many have it, and which.
struct Case {
    name: &'static str,
    class: &'static str,
    cel: &'static str,
    attribute: &'static str,
    devices: &'static [&'static str],
}

/// Of both kinds there are three, of which two have one root or parent.
const CASES: [Case; 2] = [
    Case {
        name: "root",
        class: GPUS,
        cel: "true",
        attribute: "resource.kubernetes.io/pcieRoot",
        devices: &["gpu-2", "gpu-3"],
    },
    Case {
        name: "parent",
        class: MIG_DEVICES,
        cel: "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
        attribute: "gpu.nvidia.com/parentUUID",
        devices: &["gpu-0-mig-1g5gb-19-0", "gpu-0-mig-1g5gb-19-1"],
    },
];

/// Two with one root or parent there are; three there are, but of two, so a pod that asks for three waits.
async fn one_root_or_parent(cx: &Context) -> Result<()> {
    let _node = Hardware::install(&hardware::machine())?;
    cx.wait_devices(DRIVER, hardware::DEVICES, RUNNING_WITHIN).await?;
    for case in &CASES {
        ask(cx, case, 3).await?;
    }
    for case in &CASES {
        cx.wait_event(&format!("{}-3", case.name), "FailedScheduling", RUNNING_WITHIN).await?;
    }
    for case in &CASES {
        ask(cx, case, 2).await?;
    }
    for case in &CASES {
        let name = format!("{}-2", case.name);
        cx.wait_running(&name, RUNNING_WITHIN).await?;
        let devices = devices_of(cx, &name).await?;
        ensure!(devices == case.devices, "{name} has {devices:?}, not {:?}", case.devices);
    }
    Ok(())
}

/// Makes a pod, and a claim of its name, for so many devices with the same attribute.
async fn ask(cx: &Context, case: &Case, count: u32) -> Result<()> {
    let name = format!("{}-{count}", case.name);
    let devices = json!({
        "requests": [request(case.class, count, case.cel)],
        "constraints": [{"requests": ["gpu"], "matchAttribute": case.attribute}],
    });
    claim(cx, &name, &devices).await?;
    cx.create_pod(&ShellPod::new(&name, "exec sleep 3600").claim(&name).build()).await.map(drop)
}
