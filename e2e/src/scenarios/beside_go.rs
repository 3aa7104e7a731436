//! A driver on the Go helper and one on the SDK side by side, as during a rolling update from one to the other. The Go
//! helper holds the whole of `serialize.lock` while it prepares; ours holds parts of it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use dra_kubeletplugin::wire::dra_v1::Claim;
use futures::future::try_join_all;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{context::Context, dra_socket::DraSocket, driver::Driver, node, scenario::Scenario};

pub(super) const OUR_POD: &str = "00000000-0000-4000-8000-000000000001";
pub(super) const GO_POD: &str = "00000000-0000-4000-8000-000000000002";

/// How long the Go helper holds the lock.
const GO_TAKES: &str = "3s";
/// Far more than a prepare takes that need not wait, and far less than is left of that when ours is asked.
const WAITED: Duration = Duration::from_secs(1);

/// Callers of ours, each with some claims that it prepares in one call and unprepares again.
const CALLERS: usize = 8;
const CLAIMS_OF_CALLER: usize = 7;
/// The least that a call of ours holds its locks; the callers' calls overlap, so there is always one.
const OURS_TAKES: &str = "100";
const STREAM: Duration = Duration::from_secs(15);
const GO_TURN_WITHIN: Duration = Duration::from_secs(12);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("prepare_waits_while_a_go_helper_beside_it_prepares", |cx| Box::pin(waits(cx))),
        Scenario::new("go_helper_gets_its_turn_beside_a_stream_of_prepares", |cx| Box::pin(turn(cx))),
    ]
}

async fn waits(cx: &Context) -> Result<()> {
    let pair = Pair::start(cx, &[], &["--prepare-delay", GO_TAKES]).await?;
    let (for_go, for_ours) = (claim(cx, 0).await?, claim(cx, 1).await?);
    let go_prepares = pair.go.prepare(std::slice::from_ref(&for_go));
    let ours_prepares = async {
        pair.go_driver.wait_log("\"preparing\"", Duration::from_secs(10)).await?;
        let start = Instant::now();
        pair.ours.prepare(std::slice::from_ref(&for_ours)).await?;
        Ok(start.elapsed())
    };
    let ((), took) = tokio::try_join!(go_prepares, ours_prepares)?;
    ensure!(took >= WAITED, "ours took {took:?} while the Go helper held the lock");
    println!("    prepared after {} ms of the Go helper's {GO_TAKES}", took.as_millis());
    pair.ours.unprepare(&[for_ours]).await?;
    pair.go.unprepare(&[for_go]).await?;
    gpu::nothing_left().await
}

async fn turn(cx: &Context) -> Result<()> {
    let claims = CALLERS * CLAIMS_OF_CALLER;
    let devices = (claims + 1).to_string();
    let ours = ["--num-devices", &devices, "--prepare-delay", OURS_TAKES];
    let pair = Pair::start(cx, &ours, &["--num-devices", &devices]).await?;
    let for_ours: Vec<_> = try_join_all((0..claims).map(|device| claim(cx, device))).await?;
    let for_go = claim(cx, claims).await?;

    let (stop, stopped) = watch::channel(false);
    let callers =
        for_ours.chunks(CLAIMS_OF_CALLER).map(|claims| again_and_again(&pair.ours, claims, &stopped));
    let stream = try_join_all(callers);
    let go_call = async {
        // The stream is in full flow by then.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let start = Instant::now();
        let call = tokio::time::timeout(GO_TURN_WITHIN, pair.go.prepare(std::slice::from_ref(&for_go))).await;
        let took = start.elapsed();
        tokio::time::sleep_until((start + STREAM).into()).await;
        stop.send_replace(true);
        call.with_context(|| format!("the Go helper had no turn in {GO_TURN_WITHIN:?}"))??;
        Ok(took)
    };
    let (prepared, took) = tokio::try_join!(stream, go_call)?;
    let prepared: usize = prepared.iter().sum();
    ensure!(prepared >= claims, "only {prepared} claims were prepared beside the Go helper");
    println!("    the Go helper had its turn after {} ms, beside {prepared} prepares", took.as_millis());
    pair.go.unprepare(&[for_go]).await?;
    gpu::nothing_left().await
}

/// Prepares and unprepares the claims until it is told to stop; gives how many were prepared.
async fn again_and_again(
    driver: &DraSocket,
    claims: &[Claim],
    stop: &watch::Receiver<bool>,
) -> Result<usize> {
    let mut prepared = 0;
    while !*stop.borrow() {
        driver.prepare(claims).await?;
        prepared += claims.len();
        driver.unprepare(claims).await?;
    }
    Ok(prepared)
}

/// Both drivers, with the same devices and the same folder.
struct Pair {
    ours: DraSocket,
    go: DraSocket,
    go_driver: Driver,
}

impl Pair {
    async fn start(cx: &Context, ours: &[&str], go: &[&str]) -> Result<Self> {
        let go = [&["--pod-uid", GO_POD, "--qps=1000", "--burst=1000"], go].concat();
        let go_driver = go_driver::start_registered(cx, go_driver::NEWEST, &go).await?;
        gpu::start_registered(cx, &[&["--pod-uid", OUR_POD], ours].concat()).await?;
        let go = Path::new(node::PLUGINS).join(DRIVER).join(format!("dra-{GO_POD}.sock"));
        Ok(Self {
            ours: DraSocket::connect(&gpu::our_socket()?).await?,
            go: DraSocket::connect(&go).await?,
            go_driver,
        })
    }
}

/// Makes a claim to which a GPU is allocated, as the scheduler would do it.
pub(super) async fn claim(cx: &Context, device: usize) -> Result<Claim> {
    let name = format!("gpu-{device}");
    let claims = cx.api::<ResourceClaim>();
    let wanted: ResourceClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": DRIVER } },
        ] } },
    }))?;
    let made = claims.create(&PostParams::default(), &wanted).await.context("making a claim")?;
    let allocation = json!({ "status": { "allocation": { "devices": { "results": [
        { "request": "gpu", "driver": DRIVER, "pool": node::NAME, "device": name },
    ] } } } });
    let allocated = claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(allocation)).await;
    allocated.with_context(|| format!("allocating {name}"))?;
    Ok(Claim { namespace: cx.namespace.clone(), uid: made.uid().context("a claim without a UID")?, name })
}
