//! Rolling updates: two instances of the driver side by side, each in a pod of its own, as a `DaemonSet` with `maxSurge: 1`
//! runs them; and one after the other, as with `maxSurge: 0`. Pods are made and deleted in the middle of each.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams};

use super::{
    go_driver,
    gpu::{self, DRIVER},
};
use crate::{
    context::Context,
    driver::{Driver, Holdings},
    eventually::eventually,
    pod::ShellPod,
    scenario::{Scenario, Tier},
    slice_history::SliceWatch,
};

const SOON: Duration = Duration::from_secs(10);
const RUNS_WITHIN: Duration = Duration::from_secs(60);
const GONE_WITHIN: Duration = Duration::from_secs(60);
/// File threads live for 10 s after their work.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Connections to the API server that may be kept for later: of so many pods at a time.
const IDLE: usize = 6;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("rolling_updates_in_a_loop_lose_no_prepare_and_leave_nothing", |cx| {
            Box::pin(in_a_loop(cx))
        })
        .within(Duration::from_secs(1800)),
        Scenario::new("update_that_fails_at_its_start_leaves_the_old_instance_serving", |cx| {
            Box::pin(fails_at_start(cx))
        }),
        Scenario::new("updates_without_surge_write_no_slice_and_lose_no_pod", |cx| Box::pin(one_by_one(cx)))
            .within(Duration::from_secs(240)),
        Scenario::new("rolling_updates_from_a_go_helper_and_back_lose_no_prepare", |cx| {
            Box::pin(from_go_and_back(cx))
        })
        .within(Duration::from_secs(240)),
    ]
}

/// Starts an instance in a pod of its own.
pub(crate) async fn start_instance(cx: &Context, pod: u32) -> Result<Driver> {
    Ok(gpu::start_registered(cx, &["--pod-uid", &pod_uid(pod)]).await?.0)
}

pub(crate) fn pod_uid(pod: u32) -> String {
    format!("00000000-0000-4000-8000-{pod:012}")
}

/// Ends one that is to end well.
pub(crate) async fn end(instance: &Driver) -> Result<()> {
    let status = instance.terminate(SOON).await?;
    ensure!(status.success(), "ended with {status}: {}", instance.log()?);
    Ok(())
}

/// Asks for a pod with one GPU, and waits for nothing.
async fn ask_for(cx: &Context, name: &str) -> Result<()> {
    cx.create_pod(&ShellPod::print_env(name).template("one-gpu").build()).await.map(drop)
}

/// Deletes a pod, and waits for nothing.
async fn let_go(cx: &Context, name: &str) -> Result<()> {
    let deleted = cx.api::<Pod>().delete(name, &DeleteParams::default()).await;
    deleted.map(drop).with_context(|| format!("deleting pod {name}"))
}

/// What the kubelet has told of prepares in the scenario's namespace that failed.
pub(crate) async fn failed_prepares(cx: &Context) -> Result<Vec<String>> {
    let failed = ListParams::default().fields("reason=FailedPrepareDynamicResources");
    let failed = cx.api::<Event>().list(&failed).await.context("listing events")?.items;
    Ok(failed.into_iter().map(|event| event.message.unwrap_or_default()).collect())
}

/// # Errors
/// There is one.
pub(crate) async fn no_prepare_has_failed(cx: &Context) -> Result<()> {
    let failed = failed_prepares(cx).await?;
    ensure!(failed.is_empty(), "{} prepares failed: {failed:#?}", failed.len());
    Ok(())
}

/// First each update goes through: the old instance ends. Then each is taken back: the new one ends, and the old one, the
/// same each time, may not have more threads or descriptors than it had before.
async fn in_a_loop(cx: &Context) -> Result<()> {
    let rounds = if cx.tier == Tier::Full { 100 } else { 10 };
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let mut living = start_instance(cx, 0).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    let mut before = None;
    for round in 1..=rounds {
        let goes_through = round <= rounds / 2;
        if round > 1 {
            // The pods of the round before go while this one is under way.
            let_go(cx, &format!("early-{}", round - 1)).await?;
            let_go(cx, &format!("late-{}", round - 1)).await?;
        }
        let outcome = update(cx, round, &mut living, goes_through).await;
        outcome.with_context(|| format!("update {round} of {rounds}, goes through: {goes_through}"))?;
        if round == rounds / 2 {
            before = Some(living.holdings()?);
        }
    }
    for name in ["early", "late"] {
        cx.delete_pod(&format!("{name}-{rounds}"), GONE_WITHIN).await?;
    }
    no_prepare_has_failed(cx).await?;
    gpu::wait_only_instances(1, SETTLED_WITHIN).await?;
    let after = settled(&living, &before.context("no update went through")?).await?;
    let history = watch.history()?;
    ensure!(history.len() == 1, "slices were written after the first was created: {history:?}");
    println!(
        "    {rounds} updates, half of them taken back: no failed prepare, no slice write; at the end {} threads, {} \
         descriptors",
        after.threads,
        after.descriptors.values().sum::<usize>()
    );
    Ok(())
}

/// One update, with a pod that is made before it and one that is made while an instance ends. Both run at its end.
async fn update(cx: &Context, round: u32, living: &mut Driver, goes_through: bool) -> Result<()> {
    let (early, late) = (format!("early-{round}"), format!("late-{round}"));
    ask_for(cx, &early).await?;
    let new = start_instance(cx, round).await?;
    let (stays, ends) = if goes_through { (new, living.clone()) } else { (living.clone(), new) };
    ask_for(cx, &late).await?;
    end(&ends).await?;
    *living = stays;
    for pod in [early, late] {
        cx.wait_running(&pod, RUNS_WITHIN).await?;
        let gpus = gpu::gpus_of(cx, &pod).await?;
        ensure!(gpus.len() == 1, "pod {pod} sees {gpus:?}");
    }
    if round > 1 {
        for name in ["early", "late"] {
            cx.wait_gone(&format!("{name}-{}", round - 1), GONE_WITHIN).await?;
        }
    }
    gpu::wait_files("the sockets of one instance, the files of two pods", SOON, |files| {
        files.sockets.len() == 2 && files.records.len() == 2 && files.cdi.len() == 2 && files.temps.is_empty()
    })
    .await
    .map(drop)
}

/// Waits until a process holds no more than `before`.
pub(crate) async fn settled(driver: &Driver, before: &Holdings) -> Result<Holdings> {
    let look = || async { driver.holdings().map(|now| now.fits_in(before, IDLE).then_some(now)) };
    match eventually("no more threads and descriptors than before", SETTLED_WITHIN, look).await {
        Ok(now) => Ok(now),
        Err(error) => Err(error.context(format!("before: {before:?}\nnow: {:?}", driver.holdings()?))),
    }
}

/// A file that is not there, and an address that the old instance has, as happens in the node's network.
async fn fails_at_start(cx: &Context) -> Result<()> {
    const ADDRESS: [&str; 2] = ["--metrics-address", "127.0.0.1:9477"];
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let old = pod_uid(1);
    let arguments = [&["--pod-uid", &old][..], &ADDRESS].concat();
    let (old, _) = gpu::start_registered(cx, &arguments).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    ask_for(cx, "before").await?;
    cx.wait_running("before", RUNS_WITHIN).await?;

    let new = pod_uid(2);
    let no_file = ["--inventory", "/nonexistent/inventory.json"];
    for (number, (fault, told)) in
        [(&ADDRESS, "127.0.0.1:9477"), (&no_file, "/nonexistent/inventory.json")].into_iter().enumerate()
    {
        let meanwhile = format!("meanwhile-{number}");
        ask_for(cx, &meanwhile).await?;
        let failed = cx.start_driver("mock-gpu-driver", &[&["--pod-uid", &new][..], fault].concat())?;
        let status = failed.wait(RUNS_WITHIN).await?;
        let log = failed.log()?;
        ensure!(!status.success(), "the new instance ended with {status}: {log}");
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        ensure!(errors.len() == 1 && errors[0].contains(told), "it says {errors:?}, not a word of {told}");
        cx.wait_running(&meanwhile, RUNS_WITHIN).await?;
        cx.delete_pod(&meanwhile, GONE_WITHIN).await?;
    }
    cx.delete_pod("before", GONE_WITHIN).await?;
    ensure!(old.is_running().await?, "the old instance has ended");
    no_prepare_has_failed(cx).await?;
    gpu::wait_only_instances(1, SETTLED_WITHIN).await?;
    let history = watch.history()?;
    ensure!(history.len() == 1, "slices were written after the first was created: {history:?}");
    Ok(())
}

/// Pods outlive the instance that has prepared them, and are ended by the next.
async fn one_by_one(cx: &Context) -> Result<()> {
    const INSTANCES: u32 = 4;
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let mut longest = Duration::ZERO;
    let mut ended = None;
    for number in 1..=INSTANCES {
        let instance = start_instance(cx, number).await?;
        longest = longest.max(ended.map(|at: Instant| at.elapsed()).unwrap_or_default());
        cx.wait_devices(DRIVER, 8, SOON).await?;
        ask_for(cx, &format!("pod-{number}")).await?;
        cx.wait_running(&format!("pod-{number}"), RUNS_WITHIN).await?;
        if number > 1 {
            cx.delete_pod(&format!("pod-{}", number - 1), GONE_WITHIN).await?;
        }
        if number < INSTANCES {
            ended = Some(Instant::now());
            end(&instance).await?;
            let files = gpu::files()?;
            ensure!(files.sockets.is_empty() && files.temps.is_empty(), "an instance has left {files:?}");
        }
    }
    cx.delete_pod(&format!("pod-{INSTANCES}"), GONE_WITHIN).await?;
    no_prepare_has_failed(cx).await?;
    gpu::wait_only_instances(1, SETTLED_WITHIN).await?;
    let history = watch.history()?;
    ensure!(history.len() == 1, "slices were written after the first was created: {history:?}");
    println!("    the longest gap between two instances was {} ms", longest.as_millis());
    Ok(())
}

/// Each pod is ended by the instance that has prepared it; what becomes of those that the other has prepared is for
/// `adopt` to say.
async fn from_go_and_back(cx: &Context) -> Result<()> {
    let start_go = async |pod: u32| {
        go_driver::start_registered(cx, go_driver::NEWEST, &["--pod-uid", &pod_uid(pod)]).await
    };
    gpu::apply_class_and_template(cx).await?;
    let watch = SliceWatch::start(&cx.client, DRIVER).await?;
    let old = start_go(1).await?;
    cx.wait_devices(DRIVER, 8, Duration::from_secs(30)).await?;
    through(cx, "go-alone").await?;

    let ours = start_instance(cx, 2).await?;
    ours.wait_log("this instance of the driver publishes", SOON).await?;
    through(cx, "ours-beside-go").await?;
    ask_for(cx, "ours").await?;
    go_driver::stop(&old).await?;
    cx.wait_running("ours", RUNS_WITHIN).await?;
    cx.delete_pod("ours", GONE_WITHIN).await?;
    gpu::wait_only_instances(1, SETTLED_WITHIN).await?;

    let new = start_go(3).await?;
    through(cx, "go-beside-ours").await?;
    ask_for(cx, "go").await?;
    end(&ours).await?;
    cx.wait_running("go", RUNS_WITHIN).await?;
    cx.delete_pod("go", GONE_WITHIN).await?;
    gpu::wait_only_instances(1, SETTLED_WITHIN).await?;

    no_prepare_has_failed(cx).await?;
    let history = watch.history()?;
    ensure!(history.len() == 1, "slices were written after the first was created: {history:?}");
    go_driver::stop(&new).await
}

/// Runs a pod from its beginning to its end.
async fn through(cx: &Context, name: &str) -> Result<()> {
    run_pod(cx, name, RUNS_WITHIN).await?;
    cx.delete_pod(name, GONE_WITHIN).await
}

/// Runs a pod with one GPU.
pub(crate) async fn run_pod(cx: &Context, name: &str, within: Duration) -> Result<()> {
    let gpus = gpu::run_pod(cx, name, within).await?;
    ensure!(gpus.len() == 1, "pod {name} sees {gpus:?}");
    Ok(())
}
