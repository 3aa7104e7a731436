//! A driver on the Go helper and one on the SDK take turns on a node. As long as the devices stay the same, no slice is
//! written: a write would be a change to every scheduler and a moment in which the pool is not whole.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{context::Context, driver::Driver, eventually::eventually, scenario::Scenario};

const PUBLISHED_WITHIN: Duration = Duration::from_secs(20);
/// How long nothing may be written after a driver has compared its devices with the slices.
const QUIET: Duration = Duration::from_secs(3);
/// All three inventories, with drivers that start and stop six times for each.
const DONE_WITHIN: Duration = Duration::from_secs(300);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("driver_takes_over_from_go_helper_0_37_and_back_without_a_write", |cx| {
            Box::pin(take_turns(cx, go_driver::NEWEST))
        })
        .within(DONE_WITHIN),
        Scenario::new("driver_takes_over_from_go_helper_0_35_and_back_without_a_write", |cx| {
            Box::pin(take_turns(cx, go_driver::RANDOM_NAMES))
        })
        .within(DONE_WITHIN),
    ]
}

async fn take_turns(cx: &Context, helper: &str) -> Result<()> {
    for inventory in [eight(), cut_by_hand(), partitions()] {
        let outcome = there_and_back(cx, helper, &inventory).await;
        outcome.with_context(|| format!("with {}", inventory.name))?;
        cx.remove_slices(DRIVER).await?;
    }
    Ok(())
}

/// The kubelet deletes the slices of a driver half a minute after its sockets are gone. Each driver starts as soon as the
/// one before it has ended, so that does not come to pass.
async fn there_and_back(cx: &Context, helper: &str, inventory: &Inventory) -> Result<()> {
    let file = cx.scratch.join(format!("{}.json", inventory.name));
    fs::write(&file, inventory.slices.to_string()).with_context(|| format!("writing {}", file.display()))?;
    let file = file.to_str().context("a scratch folder that is not UTF-8")?;

    let go = go_driver::start_registered(cx, helper, &["--inventory", file]).await?;
    wait_published(cx, inventory).await?;
    go_driver::stop(&go).await?;
    let left = as_written(cx).await?;

    let (ours, _) = gpu::start_registered(cx, &["--inventory", file]).await?;
    ours.wait_log("devices published", PUBLISHED_WITHIN).await?;
    nothing_written(cx, &left).await.context("by our driver")?;
    ours.terminate(Duration::from_secs(6)).await?;
    if ours.log()?.contains("the API server drops fields") {
        // The Go helper does not know that before it has written them.
        println!(
            "    note: not back to the Go helper with {}, of which this API server drops fields",
            inventory.name
        );
        return Ok(());
    }

    let go = go_driver::start_registered(cx, helper, &["--inventory", file, "-v=5"]).await?;
    compared(&go).await?;
    nothing_written(cx, &left).await.context("by the Go helper that came back")?;
    go_driver::stop(&go).await
}

/// Waits until all slices are there; those of counters have no devices.
async fn wait_published(cx: &Context, inventory: &Inventory) -> Result<()> {
    let slices = inventory.slices.as_array().map_or(0, Vec::len);
    let what = format!("{slices} slices of {DRIVER}");
    let there = || async { Ok((cx.slices(DRIVER).await?.len() == slices).then_some(())) };
    eventually(&what, PUBLISHED_WITHIN, there).await
}

/// Waits until the Go helper has held its wish against the slices. It says so at verbosity 5.
async fn compared(go: &Driver) -> Result<()> {
    go.wait_log("Completed comparison", PUBLISHED_WITHIN).await
}

async fn nothing_written(cx: &Context, before: &BTreeSet<Written>) -> Result<()> {
    tokio::time::sleep(QUIET).await;
    let after = as_written(cx).await?;
    ensure!(*before == after, "slices were written: before {before:#?}\nafter {after:#?}");
    Ok(())
}

/// What changes with every write of a slice.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    name: String,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    pool_generation: i64,
}

async fn as_written(cx: &Context) -> Result<BTreeSet<Written>> {
    let written = |slice: k8s_openapi::api::resource::v1::ResourceSlice| Written {
        name: slice.metadata.name.unwrap_or_default(),
        uid: slice.metadata.uid,
        resource_version: slice.metadata.resource_version,
        generation: slice.metadata.generation,
        pool_generation: slice.spec.pool.generation,
    };
    Ok(cx.slices(DRIVER).await?.into_iter().map(written).collect())
}

/// A file for both drivers.
struct Inventory {
    name: &'static str,
    slices: Value,
}

fn eight() -> Inventory {
    Inventory { name: "8-devices", slices: json!([{ "devices": devices(0..8) }]) }
}

/// Neither driver would cut it like this by itself.
fn cut_by_hand() -> Inventory {
    let slices = [0..100, 100..200, 200..300].map(|indices| json!({ "devices": devices(indices) }));
    Inventory { name: "300-devices-cut-by-hand", slices: Value::from(slices.to_vec()) }
}

/// With shared counters, and two taints for each device. The API server sets the time of a taint that has none.
fn partitions() -> Inventory {
    let counters = json!([{ "name": "board", "counters": { "memory": { "value": "640Gi" } } }]);
    let mut devices = devices(0..8);
    for (index, device) in devices.iter_mut().enumerate() {
        device["consumesCounters"] =
            json!([{ "counterSet": "board", "counters": { "memory": { "value": "80Gi" } } }]);
        device["taints"] = json!([
            { "key": "gpu.example.com/worn", "value": "yes", "effect": "NoSchedule" },
            { "key": "gpu.example.com/hot", "effect": "NoExecute" },
        ]);
        if index % 2 == 0 {
            device["taints"][0]["timeAdded"] = json!("2026-01-02T03:04:05Z");
            device["taints"][1]["timeAdded"] = json!("2026-05-06T07:08:09Z");
        }
    }
    let slices = json!([{ "sharedCounters": counters }, { "devices": devices }]);
    Inventory { name: "counters-and-taints", slices }
}

/// The memory is spelled in a way that the API server does not keep.
fn devices(indices: std::ops::Range<u32>) -> Vec<Value> {
    let device = |index| {
        json!({
            "name": format!("gpu-{index}"),
            "attributes": {
                "index": { "int": index },
                "model": { "string": "LATEST-GPU-MODEL" },
                "driverVersion": { "version": "1.0.0" },
                "healthy": { "bool": true },
            },
            "capacity": { "memory": { "value": "81920Mi" } },
        })
    };
    indices.map(device).collect()
}
