//! A record that cannot be read is one claim's trouble: the other pods of the node start and end as before.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::{DeleteParams, ListParams};
use nix::{sys::stat::Mode, unistd::mkfifo};

use super::gpu::{self, run_pod};
use crate::{context::Context, driver::Driver, scenario::Scenario};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The kubelet tries an unprepare again after 10 to 15 s.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// The pods whose claims have good records, and the one whose claim has not.
const GOOD: [&str; 4] = ["a", "b", "c", "d"];
const BAD: &str = "e";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("record_that_is_a_folder_after_a_restart_holds_up_no_other_pod", |cx| {
            Box::pin(after_a_restart(cx))
        })
        .within(Duration::from_secs(240)),
        Scenario::new("record_that_is_a_fifo_beside_another_instance_holds_up_no_other_pod", |cx| {
            Box::pin(beside_another_instance(cx))
        })
        .within(Duration::from_secs(240)),
    ]
}

async fn after_a_restart(cx: &Context) -> Result<()> {
    let (driver, gpus) = run_five(cx, &[]).await?;
    driver.kill().await?;
    let record = take_record(cx).await?;
    fs::create_dir(&record).with_context(|| format!("making folder {}", record.display()))?;
    gpu::start_registered(cx, &[]).await?;
    all_go_on(cx, gpus).await
}

/// Two instances read the records from disk for each call, as neither knows what the other has written. The first of these
/// two has read the record while it was good.
async fn beside_another_instance(cx: &Context) -> Result<()> {
    let uid = |digit: u32| format!("00000000-0000-4000-8000-00000000000{digit}");
    let (first, gpus) = run_five(cx, &["--pod-uid", &uid(1)]).await?;
    let record = take_record(cx).await?;
    mkfifo(&record, Mode::S_IRWXU).with_context(|| format!("making FIFO {}", record.display()))?;
    let (second, _) = gpu::start_registered(cx, &["--pod-uid", &uid(2)]).await?;
    all_go_on(cx, gpus).await?;
    for driver in [first, second] {
        ensure!(driver.is_running().await?, "a driver has ended: {}", driver.log()?);
    }
    Ok(())
}

/// Starts the driver and five pods; gives their GPUs.
async fn run_five(cx: &Context, arguments: &[&str]) -> Result<(Driver, BTreeSet<String>)> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, arguments).await?;
    let mut gpus = BTreeSet::new();
    for name in GOOD.into_iter().chain([BAD]) {
        gpus.extend(run_pod(cx, name, RUNS_WITHIN).await?);
    }
    ensure!(gpus.len() == 5, "five pods see {gpus:?}");
    Ok((driver, gpus))
}

/// Removes the record of the fifth pod's claim, and gives its path.
async fn take_record(cx: &Context) -> Result<PathBuf> {
    let claims = cx.api::<ResourceClaim>().list(&ListParams::default()).await.context("listing claims")?;
    let names = |claim: &&ResourceClaim| {
        claim.metadata.name.as_deref().is_some_and(|name| name.starts_with(&format!("{BAD}-")))
    };
    let uid = claims.items.iter().find(names).and_then(|claim| claim.metadata.uid.as_deref());
    let uid = uid.with_context(|| format!("pod {BAD} has no claim"))?;
    let records = gpu::files()?.records;
    let is_of_claim = |path: &&PathBuf| path.file_stem() == Path::new(uid).file_name();
    let record = records.iter().find(is_of_claim).with_context(|| format!("no {uid} in {records:?}"))?;
    fs::remove_file(record).with_context(|| format!("removing {}", record.display()))?;
    Ok(record.clone())
}

/// A new pod runs, with a GPU that no other pod has; the others end, and the one with the bad record too.
async fn all_go_on(cx: &Context, gpus: BTreeSet<String>) -> Result<()> {
    let new = run_pod(cx, "new", RUNS_WITHIN).await?;
    ensure!(new.len() == 1 && gpus.is_disjoint(&new.iter().cloned().collect()), "{gpus:?} and {new:?}");
    for names in [&GOOD[..], &[BAD, "new"]] {
        for name in names {
            let deleted = cx.api::<Pod>().delete(name, &DeleteParams::default()).await;
            deleted.with_context(|| format!("deleting pod {name}"))?;
        }
        for name in names {
            cx.wait_gone(name, GONE_WITHIN).await?;
        }
    }
    gpu::nothing_left().await
}
