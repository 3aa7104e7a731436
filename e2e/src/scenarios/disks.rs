//! Disks that are full or read-only: claims fail alone and say what to do, and all is well again without a restart.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use super::gpu::{self, DRIVER, SETTLED_WITHIN, run_pod};
use crate::{
    context::Context, eventually::eventually, node, node::ComponentLog, pod::ShellPod, read_only::ReadOnly,
    scenario::Scenario, small_disk::SmallDisk,
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const READ_ONLY: &str = "ead-only file system";
/// What the errors say that is to be done.
const MOUNT_PLUGINS: &str = "as writable hostPath volumes";
const MOUNT_CDI: &str = "the file system is read-only: mount it writable";

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("pods_end_on_a_full_disk_and_start_again_with_space", |cx| Box::pin(full_disk(cx)))
            .within(Duration::from_secs(300)),
        Scenario::new("read_only_plugin_folder_fails_claims_until_it_is_writable", |cx| {
            Box::pin(read_only(cx, data(), MOUNT_PLUGINS))
        })
        .within(Duration::from_secs(420)),
        Scenario::new("read_only_cdi_folder_fails_claims_until_it_is_writable", |cx| {
            Box::pin(read_only(cx, node::CDI.into(), MOUNT_CDI))
        })
        .within(Duration::from_secs(420)),
        Scenario::new("driver_says_which_read_only_folder_keeps_it_from_starting", |cx| {
            Box::pin(read_only_at_start(cx))
        }),
    ]
}

/// The driver's own folder.
fn data() -> PathBuf {
    Path::new(node::PLUGINS).join(DRIVER)
}

/// Eviction under disk pressure must be able to end pods.
async fn full_disk(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let disk = SmallDisk::mount(&data())?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "early", RUNS_WITHIN).await?;
    disk.fill();
    cx.create_pod(&ShellPod::print_env("late").template("one-gpu").build()).await?;
    cx.wait_event("late", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    let events = cx.events_of("late").await?;
    ensure!(events.iter().any(|event| event.contains("free space on the kubelet's disk")), "{events:?}");
    cx.delete_pod("early", RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    disk.free()?;
    cx.wait_running_again("late", SETTLED_WITHIN).await?;
    cx.delete_pod("late", RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    driver.terminate(Duration::from_secs(6)).await.map(drop)
}

/// A pod that came before cannot end, one that comes now cannot start; both can once the folder is writable again.
async fn read_only(cx: &Context, folder: PathBuf, advice: &str) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    run_pod(cx, "early", RUNS_WITHIN).await?;
    let read_only = ReadOnly::make(&folder)?;

    cx.create_pod(&ShellPod::print_env("late").template("one-gpu").build()).await?;
    cx.wait_event("late", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    let folder_name = folder.to_str().context("a folder with a plain name")?;
    let events = cx.events_of("late").await?;
    ensure!(
        events.iter().any(|event| event.contains(folder_name) && event.contains(advice)),
        "{folder_name} and {advice:?} are not in {events:?}"
    );
    let kubelet = ComponentLog::of("kubelet")?;
    cx.api::<Pod>().delete("early", &DeleteParams::default()).await?;
    eventually("the kubelet told why the pod cannot end", RUNS_WITHIN, || async {
        let log = kubelet.read()?;
        let told = |line: &str| line.contains("early") && line.contains(folder_name) && line.contains(advice);
        Ok(log.lines().any(told).then_some(()))
    })
    .await?;
    ensure!(cx.api::<Pod>().get_opt("early").await?.is_some(), "the pod ended without an unprepare");
    let files = gpu::files()?;
    ensure!(files.records.len() == 1 && files.cdi.len() == 1, "one claim is held, on disk are {files:?}");

    drop(read_only);
    cx.wait_gone("early", SETTLED_WITHIN).await?;
    cx.wait_running_again("late", SETTLED_WITHIN).await?;
    ensure!(driver.is_running().await?, "the driver has ended");
    cx.delete_pod("late", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

async fn read_only_at_start(cx: &Context) -> Result<()> {
    let folders = [
        (PathBuf::from(node::PLUGINS), MOUNT_PLUGINS),
        (data(), MOUNT_PLUGINS),
        (node::PLUGIN_REGISTRY.into(), MOUNT_PLUGINS),
        (node::CDI.into(), MOUNT_CDI),
    ];
    for (folder, advice) in folders {
        let name = folder.to_str().context("a folder with a plain name")?;
        let read_only = ReadOnly::make(&folder)?;
        let driver = cx.start_driver("mock-gpu-driver", &[])?;
        let status = driver.wait(Duration::from_secs(20)).await?;
        let log = driver.log()?;
        let errors: Vec<_> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        let [error] = errors[..] else { anyhow::bail!("{name}: not one error line: {log}") };
        ensure!(
            status.code().is_some_and(|code| code != 0)
                && error.contains(name)
                && error.contains(READ_ONLY)
                && error.contains(advice),
            "{name}: {status} with {error}"
        );
        println!("    {error}");
        ensure!(gpu::files()?.sockets.is_empty(), "{name}: a socket is left: {:?}", gpu::files()?);
        drop(read_only);
        let (driver, _) = gpu::start_registered(cx, &[]).await?;
        driver.terminate(Duration::from_secs(6)).await?;
    }
    Ok(())
}
