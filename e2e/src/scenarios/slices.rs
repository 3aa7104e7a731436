//! Slices at the real API server, without a kubelet in between: publishers of our own, in this process.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dra_resourceslice::{DriverResources, NodeName, Pool, Scope};
use kube::Client;

use super::slice_client;
use crate::{
    context::Context,
    node,
    scenario::{Scenario, Tier},
    slice_suite::{self, Rig, Server, Start, Suite, devices, driver, pool_name, slices_of_one},
};

/// How long nothing must be written when nothing changes.
const STEADY: Duration = Duration::from_secs(120);
const STEADY_FULL: Duration = Duration::from_secs(600);
/// How soon a deleted slice must be back.
const BACK_WITHIN: Duration = Duration::from_secs(2);
/// How long the API server is away in the middle of an update.
const OUTAGE: Duration = Duration::from_secs(20);
const OUTAGE_FULL: Duration = Duration::from_secs(60);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("slice_suite_passes_on_the_real_api_server", |cx| Box::pin(suite(cx)))
            .tier(Tier::Smoke)
            .within(Duration::from_secs(240)),
        Scenario::new("slice_limits_are_those_of_the_real_api_server", |cx| Box::pin(limits(cx)))
            .tier(Tier::Smoke),
        Scenario::new("ten_thousand_devices_take_79_writes_and_a_change_of_one_takes_one", |cx| {
            Box::pin(ten_thousand(cx))
        }),
        Scenario::new("api_server_that_goes_during_an_update_costs_one_generation", |cx| {
            Box::pin(outage(cx))
        })
        .within(Duration::from_secs(240)),
        Scenario::new("slices_hold_over_minutes_deletions_a_silent_connection_and_a_rotated_token", |cx| {
            Box::pin(minutes(cx))
        })
        .within(Duration::from_secs(780)),
    ]
}

/// A publisher for the node, with a driver's rights.
pub(super) async fn rig(cx: &Context, case: &str) -> Result<Rig> {
    rig_with(cx, case, slice_client::driver().await?)
}

/// The same with a client of one's own.
pub(super) fn rig_with(cx: &Context, case: &str, driver_client: Client) -> Result<Rig> {
    let scope = Scope::node(driver(case)?, NodeName::new(node::NAME)?);
    Ok(Rig::start(&Start { driver_client, admin: cx.client.clone(), scope }))
}

/// The wish for the node's pool.
pub(super) fn wish(pool: Pool) -> Result<DriverResources> {
    Ok(DriverResources::new().pool(pool_name(&NodeName::new(node::NAME)?), pool))
}

async fn real(cx: &Context) -> Result<Suite> {
    Ok(Suite {
        admin: cx.client.clone(),
        driver: slice_client::driver().await?,
        node: NodeName::new(node::NAME)?,
        server: Server::ask(&cx.client).await?,
    })
}

async fn suite(cx: &Context) -> Result<()> {
    let suite = real(cx).await?;
    let start = Instant::now();
    let cases = slice_suite::run(&suite).await?;
    println!("    {cases} cases in {:.1} s on {}", start.elapsed().as_secs_f64(), suite.server);
    Ok(())
}

async fn limits(cx: &Context) -> Result<()> {
    let suite = real(cx).await?;
    let judged = slice_suite::run_limits(&suite).await?;
    println!(
        "    {} contents judged by the API server and by us, {} by us alone (their gates are off)",
        judged.by_both, judged.locally
    );
    Ok(())
}

/// Ten thousand devices with a few attributes each; one of them has another value.
fn many(value: i64) -> Result<DriverResources> {
    let devices = devices(10_000)?.into_iter().enumerate().map(|(index, device)| {
        let value = if index == 5_000 { value } else { 0 };
        let device = device.try_attribute("model", "LATEST-GPU-MODEL")?.try_attribute("index", value)?;
        Ok(device.try_attribute("uuid", format!("gpu-18db0e85-99e9-c746-8531-{index:012}"))?)
    });
    wish(Pool::new(devices.collect::<Result<Vec<_>>>()?))
}

async fn ten_thousand(cx: &Context) -> Result<()> {
    const SLICES: usize = 10_000_usize.div_ceil(128);
    let rig = rig(cx, "many").await?;
    let mut figures = Vec::new();
    for (what, value, writes, generation) in
        [("10,000 devices", 0, vec!["POST"; SLICES], 1), ("one attribute of one", 1, vec!["PUT"], 1)]
    {
        let start = Instant::now();
        let published = rig.publish(many(value)?).await.context(what)?;
        let took = start.elapsed();
        let bytes: u64 = rig.recorder.writes().iter().map(|sent| sent.bytes).sum();
        rig.expect_writes(what, &writes)?;
        ensure!(published.generation == generation, "{what}: generation {}", published.generation);
        println!("    {what}: {} writes, {bytes} bytes, {:.2} s", writes.len(), took.as_secs_f64());
        figures.push(bytes);
    }
    // A list of devices can only be replaced whole, so a change costs one slice of 79 and no more.
    ensure!(figures[1] <= 2 * figures[0] / 79, "the change took {} bytes", figures[1]);
    rig.finish().await
}

async fn outage(cx: &Context) -> Result<()> {
    let outage = if cx.tier == Tier::Full { OUTAGE_FULL } else { OUTAGE };
    let rig = rig(cx, "outage").await?;
    rig.publish(wish(slices_of_one(6, 0)?)?).await?;
    rig.recorder.clear();
    rig.recorder.before_update(3, async {
        // If it is not gone, the check below sees no failed write.
        let _ = node::component("kill", "apiserver").await;
    });
    let mut ticket = rig.publisher.publish(wish(slices_of_one(6, 1)?)?);
    tokio::time::sleep(outage).await;
    let early = tokio::time::timeout(Duration::ZERO, ticket.published()).await.is_ok();
    // In any case: the scenarios after this one need it.
    node::component("start", "apiserver").await?;
    ensure!(!early, "it was published without an API server");
    let start = Instant::now();
    let published = tokio::time::timeout(Duration::from_secs(90), ticket.published())
        .await
        .context("not published after the API server was back")??;
    println!("    published {:.1} s after the API server was back", start.elapsed().as_secs_f64());
    ensure!(published.generation == 2, "the generation is {}", published.generation);
    let methods = rig.recorder.methods();
    ensure!(methods.len() > 6 && methods.iter().all(|method| method == "PUT"), "wrote {methods:?}");
    let slices = rig.slices().await?;
    ensure!(slices.len() == 6, "{} slices", slices.len());
    ensure!(slices.iter().all(|slice| slice.spec.pool.generation == 2), "generations differ");
    rig.finish().await
}

/// What has to be waited for, all at once.
async fn minutes(cx: &Context) -> Result<()> {
    let delays = [200, 2_000, 20_000].map(Duration::from_millis);
    let deleted = futures::future::try_join_all(delays.map(|delay| deleted(cx, delay)));
    let (token, silence) = (slice_client::rotated_token(cx), slice_client::silent_connections(cx));
    let ((), back, reloaded, [noticed, by_ours]) = tokio::try_join!(steady(cx), deleted, token, silence)?;
    let slowest = back.into_iter().max().unwrap_or_default();
    println!("    deleted slices are back after {:.2} s at most", slowest.as_secs_f64());
    println!("    published {:.1} s after the token was rotated", reloaded.as_secs_f64());
    println!(
        "    noticed {:.1} s after the connection fell silent, by our client {:.1} s",
        noticed.as_secs_f64(),
        by_ours.as_secs_f64()
    );
    Ok(())
}

async fn steady(cx: &Context) -> Result<()> {
    let time = if cx.tier == Tier::Full { STEADY_FULL } else { STEADY };
    let rig = rig(cx, "steady").await?;
    rig.publish(wish(slices_of_one(3, 0)?)?).await?;
    rig.recorder.clear();
    tokio::time::sleep(time).await;
    rig.expect_writes("steady state", &[])?;
    rig.finish().await
}

/// Deletes a slice some time after its creation and after an update; gives the longest time until one was back.
async fn deleted(cx: &Context, delay: Duration) -> Result<Duration> {
    let rig = rig(cx, &format!("deleted-{}", delay.as_millis())).await?;
    let mut slowest = Duration::ZERO;
    for value in [0, 1] {
        rig.publish(wish(slices_of_one(3, value)?)?).await?;
        tokio::time::sleep(delay).await;
        let victim = rig.slices().await?.remove(1);
        rig.delete(&victim).await?;
        let start = Instant::now();
        let same_name = |slice: &&_| slice_name(slice) == slice_name(&victim);
        rig.wait_slices("the deleted slice", BACK_WITHIN, |slices| slices.iter().find(same_name).is_some())
            .await
            .with_context(|| format!("deleted {delay:?} after the write of value {value}"))?;
        slowest = slowest.max(start.elapsed());
    }
    rig.finish().await?;
    Ok(slowest)
}

fn slice_name(slice: &k8s_openapi::api::resource::v1::ResourceSlice) -> Option<&str> {
    slice.metadata.name.as_deref()
}
