//! Which devices, and how many.

use anyhow::{Result, ensure};

use super::{follow, full, results, wait_unschedulable};
use crate::{context::Context, demo::Demo, scenario::Scenario};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        full("demos_cel_selector", |cx| Box::pin(cel_selector(cx))),
        full("demos_match_attribute", |cx| Box::pin(waits(cx, "match-attribute", "same-uuid"))),
        full("demos_distinct_attribute", |cx| Box::pin(waits(cx, "distinct-attribute", "different-models")))
            .since(36),
        full("demos_allocation_modes", |cx| Box::pin(follow(cx, "allocation-modes"))),
        full("demos_first_available", |cx| Box::pin(follow(cx, "first-available"))),
    ]
}

/// A demo in which a pod can have no device.
async fn waits(cx: &Context, demo: &str, pod: &str) -> Result<()> {
    let demo = Demo::follow(cx, demo).await?;
    let said = wait_unschedulable(cx, pod).await?;
    ensure!(said.contains("cannot allocate all claims"), "{pod} is told {said:?}");
    demo.finish().await
}

/// What the two pods have that got one of the two GPUs is in the results; which of the three that are is open.
async fn cel_selector(cx: &Context) -> Result<()> {
    let demo = Demo::follow(cx, "cel-selector").await?;
    wait_unschedulable(cx, "too-picky").await?;
    let results = results(cx).await?;
    let has = |device: &str| results.iter().filter(|result| result["device"] == device).count() == 1;
    ensure!(has("gpu-0") && has("gpu-1"), "{results:?}");
    demo.finish().await
}
