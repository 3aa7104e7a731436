//! Parts and shares of devices, and devices that are not ready yet.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{SOON, all_different, follow, full, results};
use crate::{context::Context, demo::Demo, scenario::Scenario, scenarios::gpu::DRIVER};

pub(super) fn scenarios() -> Vec<Scenario> {
    const PARTITIONS: &[&str] = &["webhook.enabled=false", "gpu.partitions=4"];
    const SHARED: &[&str] = &["webhook.enabled=false", "gpu.allowMultipleAllocations=true"];
    const SHARED_PARTITIONS: &[&str] =
        &["webhook.enabled=false", "gpu.partitions=4", "gpu.allowMultipleAllocations=true"];
    const BINDING: &[&str] = &["webhook.enabled=false", "gpu.bindingConditions=true"];
    vec![
        full("demos_partitions", |cx| Box::pin(partitions(cx))).on_chart(PARTITIONS).since(36),
        full("demos_shared_capacity", |cx| Box::pin(shared_capacity(cx))).on_chart(SHARED).since(36),
        full("demos_shared_partitions", |cx| Box::pin(shared_partitions(cx)))
            .on_chart(SHARED_PARTITIONS)
            .since(36),
        full("demos_binding_conditions", |cx| Box::pin(follow(cx, "binding-conditions")))
            .on_chart(BINDING)
            .since(36),
    ]
}

async fn partitions(cx: &Context) -> Result<()> {
    cx.wait_devices(DRIVER, 40, SOON).await?;
    follow(cx, "partitions").await
}

async fn shared_capacity(cx: &Context) -> Result<()> {
    cx.wait_devices(DRIVER, 8, SOON).await?;
    let demo = Demo::follow(cx, "shared-capacity").await?;
    let results = results(cx).await?;
    ensure!(results.len() == 5, "{results:?}");
    all_different(&results, "shareID")?;
    let memory = |wanted: &str| -> Vec<_> {
        let with = |result: &&Value| result["consumedCapacity"]["memory"] == wanted;
        results.iter().filter(with).map(|result| result["device"].clone()).collect()
    };
    let (two, big, spread) = (memory("16Gi"), memory("60Gi"), memory("1Gi"));
    ensure!(two.len() == 2 && two[0] == two[1], "not one GPU for both shares: {results:?}");
    ensure!(big.len() == 1 && big[0] != two[0], "not another GPU for the big share: {results:?}");
    ensure!(spread.len() == 2 && spread[0] != spread[1], "not two GPUs: {results:?}");
    demo.finish().await
}

async fn shared_partitions(cx: &Context) -> Result<()> {
    cx.wait_devices(DRIVER, 40, SOON).await?;
    let demo = Demo::follow(cx, "shared-partitions").await?;
    let results = results(cx).await?;
    ensure!(results.len() == 2, "{results:?}");
    all_different(&results, "shareID")?;
    demo.finish().await
}
