//! Shares of one device (consumed capacity): each has an id, which comes from the scheduler and goes through the driver's
//! answer into the kubelet's book.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use super::gpu::{self, DRIVER};
use crate::{
    context::Context, kubelet::BookedDevice, kubelet::booked_devices, pod::ShellPod, scenario::Scenario,
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The first version that has `DRAConsumableCapacity` on.
const FIRST_MINOR: u32 = 36;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("share_ids_reach_the_kubelet_for_no_share_one_and_two_of_a_device", |cx| {
        Box::pin(share_ids(cx))
    })]
}

async fn share_ids(cx: &Context) -> Result<()> {
    if cx.minor()? < FIRST_MINOR {
        println!("    note: not run: shares of devices are off in Kubernetes {}", cx.kubernetes);
        return Ok(());
    }
    gpu::apply_class_and_template(cx).await?;
    let file = cx.scratch.join("inventory.json");
    fs::write(&file, inventory().to_string()).with_context(|| format!("writing {}", file.display()))?;
    let file = file.to_str().context("a scratch folder that is not UTF-8")?;
    gpu::start_registered(cx, &["--inventory", file]).await?;
    cx.wait_devices(DRIVER, 2, RUNS_WITHIN).await?;

    // Name of claim and pod, requests, how many of the results have a share's id.
    let table = [
        ("none", vec![request("whole", false)], 0),
        ("one", vec![request("share", true)], 1),
        ("twice", vec![request("share", true), request("other-share", true)], 2),
    ];
    for (name, requests, shares) in &table {
        apply_claim(cx, name, requests).await?;
        cx.create_pod(&ShellPod::print_env(name).claim(name).build()).await?;
        cx.wait_running(name, RUNS_WITHIN).await?;
        let gpus = gpu::gpus_of(cx, name).await?;
        ensure!(gpus == [if *shares > 0 { "gpu-0" } else { "gpu-1" }], "pod {name} sees {gpus:?}");
        let (allocated, booked) = of_claim(cx, name).await?;
        ensure!(allocated == booked, "{name}: allocated is {allocated:?}, the kubelet has {booked:?}");
        let mut ids: Vec<_> = allocated.iter().filter_map(|device| device.share_id.as_ref()).collect();
        ids.dedup();
        ensure!(
            allocated.len() == requests.len() && ids.len() == *shares,
            "{name} has been allocated {allocated:?}"
        );
    }
    for (name, ..) in &table {
        cx.delete_pod(name, RUNS_WITHIN).await?;
    }
    gpu::nothing_left().await
}

/// What the scheduler has allocated to a claim, and what the kubelet has of it from the driver, in the same order.
async fn of_claim(cx: &Context, name: &str) -> Result<(Vec<BookedDevice>, Vec<BookedDevice>)> {
    let claim = cx.api::<ResourceClaim>().get(name).await.context("reading the claim")?;
    let uid = claim.metadata.uid.context("a claim without a UID")?;
    let allocation = claim.status.and_then(|status| status.allocation).context("no allocation")?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    let mut allocated: Vec<_> = results
        .into_iter()
        .map(|result| BookedDevice {
            device_name: result.device,
            share_id: result.share_id,
            request_names: vec![result.request],
        })
        .collect();
    let mut booked = booked_devices(&uid, DRIVER)?;
    allocated.sort();
    booked.sort();
    Ok((allocated, booked))
}

/// A GPU that can be shared and one that cannot.
fn inventory() -> Value {
    let memory = json!({"memory": {"value": "80Gi", "requestPolicy": {
        "default": "10Gi",
        "validRange": {"min": "10Gi", "step": "10Gi"},
    }}});
    json!([{"devices": [
        {"name": "gpu-0", "allowMultipleAllocations": true, "capacity": memory,
         "attributes": {"shared": {"bool": true}}},
        {"name": "gpu-1", "attributes": {"shared": {"bool": false}}},
    ]}])
}

fn request(name: &str, shared: bool) -> Value {
    let selects = format!("device.attributes['{DRIVER}'].shared == {shared}");
    json!({"name": name, "exactly": {
        "deviceClassName": DRIVER,
        "selectors": [{"cel": {"expression": selects}}],
    }})
}

async fn apply_claim(cx: &Context, name: &str, requests: &[Value]) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}
