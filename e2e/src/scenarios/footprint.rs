//! What the driver costs: printed, not judged.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{context::Context, driver::Driver, scenario::Scenario};

/// How long a driver gets to finish what it does about its slices.
const AT_REST: Duration = Duration::from_secs(5);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("footprint_is_printed", |cx| Box::pin(footprint(cx))),
        Scenario::new("memory_with_10000_devices_is_printed_beside_the_go_helper", |cx| Box::pin(memory(cx)))
            .within(Duration::from_secs(240)),
    ]
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

/// With few devices and with many, in one pool.
async fn memory(cx: &Context) -> Result<()> {
    for (devices, within) in [(8, Duration::from_secs(30)), (10_000, Duration::from_secs(90))] {
        let count = devices.to_string();
        let arguments = ["--num-devices", &count];
        let (ours, _) = gpu::start_registered(cx, &arguments).await?;
        let ours = measure(cx, &ours, devices, within).await.context("our driver")?;
        let go = go_driver::start_registered(cx, go_driver::NEWEST, &arguments).await?;
        let go = measure(cx, &go, devices, within).await.context("the Go driver")?;
        println!(
            "    {devices} devices: RSS {:.1} MB, Go helper {:.1} MB, ratio {:.2}; visible {} ms after the \
             registration was seen, Go helper {} ms",
            megabytes(ours.memory),
            megabytes(go.memory),
            megabytes(ours.memory) / megabytes(go.memory),
            ours.visible.as_millis(),
            go.visible.as_millis(),
        );
    }
    Ok(())
}

struct Measured {
    memory: u64,
    visible: Duration,
}

/// Waits until the devices are published, lets the driver come to rest, and ends it.
async fn measure(cx: &Context, driver: &Driver, devices: usize, within: Duration) -> Result<Measured> {
    let start = Instant::now();
    cx.wait_devices(DRIVER, devices, within).await?;
    let visible = start.elapsed();
    tokio::time::sleep(AT_REST).await;
    let memory = driver.memory()?.now;
    driver.terminate(Duration::from_secs(10)).await?;
    cx.remove_slices(DRIVER).await?;
    Ok(Measured { memory, visible })
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
