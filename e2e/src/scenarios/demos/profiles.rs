//! Other devices than GPUs. Each profile is another driver, so it comes by a release of its own.

use anyhow::{Result, ensure};

use super::{SOON, all_different, full, have_gates, results};
use crate::{context::Context, demo::Demo, scenario::Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    const NET: &[&str] = &["webhook.enabled=false", "deviceProfile=net", "numDevices=1"];
    const CPU: &[&str] = &["webhook.enabled=false", "deviceProfile=cpu"];
    vec![
        full("demos_network_bandwidth", |cx| Box::pin(network_bandwidth(cx))).on_chart(NET).since(36),
        full("demos_native_cpu", |cx| Box::pin(native_cpu(cx))).on_chart(CPU).since(37),
    ]
}

async fn network_bandwidth(cx: &Context) -> Result<()> {
    cx.wait_devices("net.example.com", 1, SOON).await?;
    let demo = Demo::follow(cx, "network-bandwidth").await?;
    let results = results(cx).await?;
    ensure!(results.len() == 2 && results.iter().all(|result| result["device"] == "nic-0"), "{results:?}");
    all_different(&results, "shareID")?;
    demo.finish().await
}

async fn native_cpu(cx: &Context) -> Result<()> {
    if !have_gates(cx, &["DRANodeAllocatableResources"]).await? {
        return Ok(());
    }
    let demo = Demo::follow(cx, "native-cpu").await?;
    let results = results(cx).await?;
    ensure!(results.len() == 2 && results[0]["device"] == results[1]["device"], "{results:?}");
    all_different(&results, "shareID")?;
    demo.finish().await
}
