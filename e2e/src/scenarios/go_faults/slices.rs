//! Slices beside the Go helper: the first publish, times of taints, and conflicts in the middle of an update.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{Device, DriverResources, Pool, Slice, Taint};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::SOON;
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    scenarios::{
        go_driver::{self, NEWEST},
        gpu::DRIVER,
        slices as publishers,
    },
    slice_suite::Rig,
};

const SLICES: usize = 6;
const TAINTS: [&str; 2] = ["example.com/a", "example.com/b"];
/// Times of taints are kept in seconds: a time that is set anew has to differ.
const LATER: Duration = Duration::from_millis(1500);
/// The Go helper may lose against somebody who writes all the time for as long as that lasts.
const DISTURBED_FOR: Duration = Duration::from_secs(5);
/// The least that the Go helper's first publish takes.
const GO_BLOCKS: Duration = Duration::from_secs(1);

/// What an update has changed beside the devices.
#[derive(Debug)]
struct Update {
    generations: i64,
    /// Slices that were deleted and made again.
    made_again: usize,
    /// Taints whose time is another one.
    lost_times: usize,
}

pub(super) async fn slices(cx: &Context) -> Result<()> {
    let (go_blocked, go_quiet, go_disturbed) = of_go(cx).await.context("the Go helper")?;
    let (our_call, quiet, disturbed) = of_ours(cx).await.context("ours")?;
    ensure!(our_call < GO_BLOCKS, "the first publish took {our_call:?}");
    ensure!(quiet.lost_times == 0 && quiet.made_again == 0, "{quiet:?}");
    ensure!(disturbed.made_again == 0 && disturbed.generations == 1, "{disturbed:?}");
    let taints = SLICES * TAINTS.len();
    println!(
        "    2: times of {taints} taints that an update of the devices has lost: ours {}; Go helper: {}",
        quiet.lost_times, go_quiet.lost_times
    );
    println!(
        "    3: the first publish returned after: ours {} us; Go helper: {go_blocked} ms",
        our_call.as_micros()
    );
    println!(
        "    7: an update of {SLICES} slices while somebody else writes one: ours {} generation, {} slices made again; \
         Go helper: {}, {}",
        disturbed.generations, disturbed.made_again, go_disturbed.generations, go_disturbed.made_again
    );
    Ok(())
}

async fn of_go(cx: &Context) -> Result<(u64, Update, Update)> {
    let inventory = cx.scratch.join("inventory.json");
    std::fs::write(&inventory, serde_json::to_vec(&inventory_of_go())?).context("writing an inventory")?;
    let go = go_driver::start_registered(cx, NEWEST, &["--inventory", &inventory.to_string_lossy()]).await?;
    let blocked = first_publish(&go).await?;
    let found = || async { cx.slices(DRIVER).await };
    let api: Api<ResourceSlice> = Api::all(cx.client.clone());
    let mut updates = Vec::new();
    for (revision, disturbed) in [(1, false), (2, true)] {
        let before = published(found, revision - 1).await?;
        tokio::time::sleep(LATER).await;
        let publish = async {
            go.signal(Signal::SIGUSR1).await?;
            published(found, revision).await
        };
        let after = if disturbed { beside_writes(&api, &before, publish).await? } else { publish.await? };
        updates.push(compare(&before, &after));
    }
    go_driver::stop(&go).await?;
    let [quiet, disturbed] = <[Update; 2]>::try_from(updates).ok().context("two updates")?;
    Ok((blocked, quiet, disturbed))
}

async fn of_ours(cx: &Context) -> Result<(Duration, Update, Update)> {
    let rig: Rig = publishers::rig(cx, "go-faults").await?;
    let start = Instant::now();
    let mut ticket = rig.publisher.publish(wish(0)?);
    let call = start.elapsed();
    ticket.published().await?;
    let found = || async { rig.slices().await };
    let mut updates = Vec::new();
    for (revision, disturbed) in [(1, false), (2, true)] {
        let before = published(found, revision - 1).await?;
        tokio::time::sleep(LATER).await;
        let publish = async {
            rig.publish(wish(revision)?).await?;
            published(found, revision).await
        };
        let after =
            if disturbed { beside_writes(&rig.api(), &before, publish).await? } else { publish.await? };
        updates.push(compare(&before, &after));
    }
    rig.finish().await?;
    let [quiet, disturbed] = <[Update; 2]>::try_from(updates).ok().context("two updates")?;
    Ok((call, quiet, disturbed))
}

/// How long the Go helper's first publish kept its caller, in milliseconds, by the driver's log.
async fn first_publish(go: &Driver) -> Result<u64> {
    let said = "\"published for the first time\" milliseconds=";
    go.wait_log(said, SOON).await?;
    let log = go.log()?;
    let figure = log.lines().find_map(|line| line.split_once(said)?.1.trim().parse().ok());
    figure.with_context(|| format!("no figure in {log}"))
}

fn inventory_of_go() -> Value {
    let taints = TAINTS.map(|key| json!({"key": key, "effect": "NoSchedule"}));
    let slice = |number: usize| json!({"devices": [{"name": format!("d{number}"), "taints": taints}]});
    (0..SLICES).map(slice).collect()
}

fn wish(revision: i64) -> Result<DriverResources> {
    let slice = |number: usize| {
        let mut device = Device::named(&format!("d{number}"))?;
        if revision > 0 {
            device = device.try_attribute("revision", revision)?;
        }
        Ok(Slice::new([TAINTS.into_iter().map(Taint::no_schedule).fold(device, Device::taint)]))
    };
    publishers::wish(Pool::from_slices((0..SLICES).map(slice).collect::<Result<Vec<_>>>()?))
}

/// Waits until the pool is whole, all of it of this revision, and stays so.
async fn published<F: Future<Output = Result<Vec<ResourceSlice>>>>(
    found: impl Fn() -> F,
    revision: i64,
) -> Result<Vec<ResourceSlice>> {
    const SETTLED: Duration = Duration::from_secs(1);
    let what = format!("{SLICES} slices of revision {revision}");
    let settled = || async {
        let slices = found().await?;
        if !is_whole(&slices, revision) {
            return Ok(None);
        }
        tokio::time::sleep(SETTLED).await;
        let later = found().await?;
        Ok((uids(&slices) == uids(&later) && is_whole(&later, revision)).then_some(later))
    };
    eventually(&what, 6 * SOON, settled).await
}

fn is_whole(slices: &[ResourceSlice], revision: i64) -> bool {
    let of = |slice: &ResourceSlice| {
        let device = slice.spec.devices.iter().flatten().next()?;
        let attributes = device.attributes.as_ref();
        let found = attributes.and_then(|attributes| attributes.get("revision")?.int);
        Some((slice.spec.pool.generation, found.unwrap_or_default()))
    };
    let states: BTreeSet<_> = slices.iter().map(of).collect();
    slices.len() == SLICES
        && states.len() == 1
        && states.iter().flatten().all(|(_, found)| *found == revision)
}

fn uids(slices: &[ResourceSlice]) -> BTreeSet<String> {
    slices.iter().filter_map(ResourceSlice::uid).collect()
}

/// Runs `publish` while somebody else changes the annotations of a slice again and again, for some time.
async fn beside_writes<T>(
    api: &Api<ResourceSlice>,
    slices: &[ResourceSlice],
    publish: impl Future<Output = Result<T>>,
) -> Result<T> {
    let name = slices.get(SLICES / 2).context("too few slices")?.name_any();
    let end = Instant::now() + DISTURBED_FOR;
    let write = async {
        let mut count = 0_u64;
        while Instant::now() < end {
            let note =
                Patch::Merge(json!({"metadata": {"annotations": {"example.com/n": count.to_string()}}}));
            // The slice may be gone for a while.
            let _ = api.patch(&name, &PatchParams::default(), &note).await;
            count += 1;
        }
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        published = publish => published,
        never = write => match never {},
    }
}

fn compare(before: &[ResourceSlice], after: &[ResourceSlice]) -> Update {
    let generation = |slices: &[ResourceSlice]| slices.iter().map(|slice| slice.spec.pool.generation).max();
    let times = |slices: &[ResourceSlice]| -> BTreeSet<String> {
        let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let taints = devices.flat_map(|device| {
            device.taints.iter().flatten().map(move |taint| {
                format!("{} {} {:?}", device.name, taint.key, taint.time_added.as_ref().map(|time| time.0))
            })
        });
        taints.collect()
    };
    Update {
        generations: generation(after).unwrap_or_default() - generation(before).unwrap_or_default(),
        made_again: uids(after).difference(&uids(before)).count(),
        lost_times: times(before).difference(&times(after)).count(),
    }
}
