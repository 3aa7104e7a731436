//! Others that undo what the driver publishes, over and over: it must not fight at full speed, and must say so.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::{Api, api::PostParams};

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{
    context::Context,
    driver::Driver,
    scenario::{Scenario, Tier},
    slice_history::SliceWatch,
};

const EVERY: Duration = Duration::from_secs(1);
/// What the publisher writes before it makes others wait: what the driver publishes, and three repairs.
const AT_ONCE: usize = 4;
/// The publisher's distance is 30 s; events are seen with some delay.
const AT_LEAST_APART: Duration = Duration::from_secs(28);
const DEVICES: usize = 8;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("slices_that_others_undo_each_second_are_written_once_in_thirty_seconds", |cx| {
            Box::pin(undone(cx))
        })
        .within(Duration::from_secs(480)),
        Scenario::new(
            "slices_beside_a_go_helper_with_other_devices_are_written_once_in_thirty_seconds",
            |cx| Box::pin(beside_go(cx)),
        )
        .tier(Tier::Full)
        .within(Duration::from_secs(480)),
    ]
}

/// One driver's slices are deleted, another's are given other devices.
async fn undone(cx: &Context) -> Result<()> {
    let time = Duration::from_secs(if cx.tier == Tier::Full { 300 } else { 65 });
    let deleted = Victim::start(cx, "deleted.example.com").await?;
    let changed = Victim::start(cx, "changed.example.com").await?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        cx.remove_slices(deleted.name).await?;
        change_all(cx, changed.name).await?;
        tokio::time::sleep(EVERY).await;
    }

    let created = deleted.watch.history()?.created();
    ensure_apart(&created).context("slices that the scenario deletes")?;
    deleted.says("somebody else deletes our slices")?;
    let corrected = changed.watch.history()?.written_with("gpu-0");
    ensure_apart(&corrected).context("slices that the scenario changes")?;
    changed.says("somebody else changes our slices")?;
    println!(
        "    in {} s: created {} times, corrected {} times",
        time.as_secs(),
        created.len() - 1,
        corrected.len() - 1
    );

    // Once they are left alone, all is well by itself.
    for victim in [deleted, changed] {
        cx.wait_devices(victim.name, DEVICES, Duration::from_secs(45)).await?;
    }
    Ok(())
}

/// The Go helper corrects the pool whenever it sees a difference, so all that keeps the two apart is our patience.
async fn beside_go(cx: &Context) -> Result<()> {
    const TIME: Duration = Duration::from_secs(300);
    // The devices of the Go driver are the first of these.
    const OURS_ALONE: &str = "gpu-7";
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let (ours, _) = gpu::start_registered(cx, &["--pod-uid", "00000000-0000-4000-8000-000000000001"]).await?;
    cx.wait_devices(DRIVER, DEVICES, Duration::from_secs(15)).await?;
    let go = ["--num-devices", "4", "--pod-uid", "00000000-0000-4000-8000-000000000002"];
    go_driver::start_registered(cx, go_driver::NEWEST, &go).await?;
    tokio::time::sleep(TIME).await;

    let written = watch.history()?.written_with(OURS_ALONE);
    ensure_apart(&written).context("our devices beside those of a Go helper")?;
    let log = ours.log()?;
    ensure!(log.contains("somebody else changes our slices"), "the driver does not say why: {log}");
    println!("    in {} s beside a Go helper: corrected {} times", TIME.as_secs(), written.len() - 1);
    Ok(())
}

struct Victim {
    name: &'static str,
    driver: Driver,
    watch: SliceWatch,
}

impl Victim {
    async fn start(cx: &Context, name: &'static str) -> Result<Self> {
        let watch = SliceWatch::start(&cx.client, name).await?;
        let driver = cx.start_driver("mock-gpu-driver", &["--driver-name", name])?;
        cx.wait_devices(name, DEVICES, Duration::from_secs(15)).await?;
        Ok(Self { name, driver, watch })
    }

    /// Once for each time that it had to wait, no more.
    fn says(&self, text: &str) -> Result<()> {
        let log = self.driver.log()?;
        let times = log.matches(text).count();
        ensure!((1..=15).contains(&times), "{} says {times} times {text:?}: {log}", self.name);
        Ok(())
    }
}

/// From the last write that may come at once, each is 30 s after the one before, and there was more than one.
fn ensure_apart(times: &[Instant]) -> Result<()> {
    ensure!(times.len() > AT_ONCE, "written {} times", times.len());
    for pair in times[AT_ONCE - 1..].windows(2) {
        let distance = pair[1].duration_since(pair[0]);
        ensure!(distance >= AT_LEAST_APART, "written {distance:?} after the last time");
    }
    Ok(())
}

async fn change_all(cx: &Context, driver: &str) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(cx.client.clone());
    for mut slice in cx.slices(driver).await? {
        let foreign = Device { name: "foreign".to_owned(), ..Device::default() };
        let Some(name) = slice.metadata.name.clone() else { continue };
        if slice.spec.devices.replace(vec![foreign.clone()]) == Some(vec![foreign]) {
            continue;
        }
        match slices.replace(&name, &PostParams::default(), &slice).await {
            // The driver was quicker; next time, then.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            replaced => drop(replaced.context("changing a slice")?),
        }
    }
    Ok(())
}
