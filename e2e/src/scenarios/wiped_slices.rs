//! A kubelet deletes the slices of its node when it starts. Until they are back the node has no devices to give.

use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{context::Context, node, node::ComponentLog, pod::ShellPod, scenario::Scenario};

const DEVICES: usize = 8;
const PUBLISHED_WITHIN: Duration = Duration::from_secs(20);
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// A second, and two more for a machine that is busy.
const OURS_BACK_WITHIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("wiped_slices_are_back_once_the_kubelet_has_registered_the_driver_again", |cx| {
            Box::pin(wiped(cx))
        })
        .within(Duration::from_secs(300)),
        Scenario::new("pod_that_waits_for_the_kubelet_and_its_slices_never_fails_to_prepare", |cx| {
            Box::pin(waiting_pod(cx))
        })
        .within(Duration::from_secs(180)),
    ]
}

async fn wiped(cx: &Context) -> Result<()> {
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    let ours = restart_kubelet(cx).await?;
    ensure!(ours.registered_before_seen, "a slice was there before the kubelet had registered the driver");
    let took = ours.back.saturating_duration_since(ours.wiped.max(ours.registered));
    ensure!(took <= OURS_BACK_WITHIN, "the slices were back {took:?} after the registration");
    driver.terminate(Duration::from_secs(6)).await?;
    cx.remove_slices(DRIVER).await?;

    let driver = go_driver::start_registered(cx, go_driver::NEWEST, &[]).await?;
    let go = restart_kubelet(cx).await?;
    go_driver::stop(&driver).await?;

    let (ours, go) = (ours.back - ours.wiped, go.back - go.wiped);
    println!(
        "    from the wipe to the slices: {} ms, {} ms after the registration; Go helper {} ms; ratio {:.4}",
        ours.as_millis(),
        took.as_millis(),
        go.as_millis(),
        ours.as_secs_f64() / go.as_secs_f64(),
    );
    Ok(())
}

/// While the kubelet is away the slices go, and nobody puts them back, since the pod that waits for them would fail to
/// prepare. The kubelet tries that again only after a minute.
async fn waiting_pod(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    cx.wait_devices(DRIVER, DEVICES, PUBLISHED_WITHIN).await?;
    node::component("stop", "kubelet").await?;
    let outcome = async {
        driver.wait_log("the kubelet has closed its connection", Duration::from_secs(15)).await?;
        cx.remove_slices(DRIVER).await?;
        cx.create_pod(&ShellPod::print_env("waiting").template("one-gpu").build()).await?;
        cx.wait_event("waiting", "FailedScheduling", Duration::from_secs(60)).await?;
        let slices = cx.slices(DRIVER).await?;
        ensure!(slices.is_empty(), "{} slices are back without a kubelet", slices.len());
        Ok(())
    };
    let outcome: Result<()> = outcome.await;
    node::component("start", "kubelet").await?;
    outcome?;
    let running = cx.wait_running("waiting", Duration::from_secs(30)).await;
    let events = cx.events_of("waiting").await?;
    let failed = events.iter().find(|event| event.contains("FailedPrepareDynamicResources"));
    ensure!(failed.is_none(), "{failed:?}; all events: {events:?}");
    running?;
    cx.delete_pod("waiting", Duration::from_secs(30)).await?;
    gpu::nothing_left().await
}

/// Restarts the kubelet, and sees all slices go and come back.
async fn restart_kubelet(cx: &Context) -> Result<Return> {
    cx.wait_devices(DRIVER, DEVICES, PUBLISHED_WITHIN).await?;
    let kubelet = ComponentLog::of("kubelet")?;
    let registered = async {
        while !kubelet.says_registered(DRIVER)? {
            tokio::time::sleep(POLL).await;
        }
        Ok(Instant::now())
    };
    let all = async {
        tokio::try_join!(registered, watch_slices(cx, &kubelet), node::component("restart", "kubelet"))
    };
    let (registered, (wiped, back, registered_before_seen), ()) =
        tokio::time::timeout(BACK_WITHIN, all).await.context("the slices are not back")??;
    Ok(Return { wiped, registered, back, registered_before_seen })
}

/// When what was seen.
struct Return {
    wiped: Instant,
    registered: Instant,
    back: Instant,
    /// Whether the kubelet had told of the registration when the first slice was seen again.
    registered_before_seen: bool,
}

/// When the last slice was gone and when the devices were back, and whether the kubelet had registered the driver when
/// the first slice was seen again.
async fn watch_slices(cx: &Context, kubelet: &ComponentLog) -> Result<(Instant, Instant, bool)> {
    let slices: Api<ResourceSlice> = Api::all(cx.client.clone());
    let ours = format!("spec.driver={DRIVER}");
    let listed = slices.list(&ListParams::default().fields(&ours)).await.context("listing ResourceSlices")?;
    let from = listed.metadata.resource_version.context("a list without a version")?;
    let devices = |slice: &ResourceSlice| slice.spec.devices.as_ref().map_or(0, Vec::len);
    let mut there: BTreeMap<String, usize> =
        listed.items.iter().map(|slice| (slice.name_any(), devices(slice))).collect();

    let mut events = pin!(slices.watch(&WatchParams::default().fields(&ours), &from).await?);
    let (mut gone, mut registered_before_seen) = (None, None);
    while let Some(event) = events.try_next().await.context("watching ResourceSlices")? {
        match event {
            WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                if gone.is_some() && registered_before_seen.is_none() {
                    registered_before_seen = Some(kubelet.says_registered(DRIVER)?);
                }
                there.insert(slice.name_any(), devices(&slice));
            }
            WatchEvent::Deleted(slice) => drop(there.remove(&slice.name_any())),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => bail!("watching ResourceSlices: {status}"),
        }
        let now = Instant::now();
        if there.is_empty() {
            gone.get_or_insert(now);
        }
        if let (Some(gone), Some(registered)) = (gone, registered_before_seen)
            && there.values().sum::<usize>() == DEVICES
        {
            return Ok((gone, now, registered));
        }
    }
    bail!("the watch of ResourceSlices ended")
}
