//! The soak of `cargo xtask soak`, with its usual time and a seed of the day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::{
    context::Context,
    scenario::{Scenario, Tier},
    soak::{self, Settings},
};

/// With the waits for a quiet node about two minutes in all.
const SHORT: Duration = Duration::from_secs(80);
const LONG: Duration = Duration::from_secs(30 * 60);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("soak_loses_no_pod_and_leaves_nothing", |cx| Box::pin(soak(cx)))
            // Each part may have to wait for a quiet node; `--soak-minutes` may ask for hours.
            .within(Duration::from_secs(24 * 3600)),
    ]
}

async fn soak(cx: &Context) -> Result<()> {
    let usual = if cx.tier == Tier::Full { LONG } else { SHORT };
    let time = cx.soak.minutes.map_or(usual, |minutes| Duration::from_secs(60 * minutes));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    soak::run(cx, Settings { time, seed: cx.soak.seed.unwrap_or(now.as_secs()) }).await
}
