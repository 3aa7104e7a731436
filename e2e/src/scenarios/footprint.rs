//! What the driver costs: printed, not judged.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

use super::gpu::{self, DRIVER};
use crate::{context::Context, scenario::Scenario};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("footprint_is_printed", |cx| Box::pin(footprint(cx)))]
}

async fn footprint(cx: &Context) -> Result<()> {
    let binary = cx.binary("mock-gpu-driver");
    let size = fs::metadata(&binary).with_context(|| format!("reading {}", binary.display()))?.len();
    let (driver, took) = gpu::start_registered(cx, &[]).await?;
    cx.wait_devices(DRIVER, 8, Duration::from_secs(5)).await?;
    let memory = driver.memory()?;
    println!(
        "    mock-gpu-driver: RSS {:.1} MB (peak {:.1} MB), binary {:.1} MB, registered after {} ms",
        megabytes(memory.now),
        megabytes(memory.peak),
        megabytes(size),
        took.as_millis()
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
