//! The mock driver's chart on a real cluster: installed, upgraded under pods that come and go, and uninstalled.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::DeviceClass};
use kube::{Api, ResourceExt as _, api::DynamicObject};
use serde::Deserialize as _;

use super::gpu::{self, DRIVER};
use crate::{
    chart::MOCK,
    context::Context,
    eventually::eventually,
    node,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(15);
/// The kubelet waits half a minute for another instance before it deletes a driver's slices.
const SLICES_GONE_WITHIN: Duration = Duration::from_secs(120);
/// What a driver leaves in its folder: they are empty or hold a counter, and the next install uses them again.
const LOCKS: [&str; 4] = ["instances.lock", "publish.lock", "publish.next", "serialize.lock"];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("helm_installs_the_driver_and_a_pod_has_a_gpu_before_and_after_an_upgrade", |cx| {
            Box::pin(upgrade(cx))
        })
        .within(Duration::from_secs(240)),
        Scenario::new("helm_uninstalls_all_that_it_has_installed", |cx| Box::pin(uninstall(cx)))
            .tier(Tier::Full)
            .within(Duration::from_secs(300)),
    ]
}

async fn upgrade(cx: &Context) -> Result<()> {
    MOCK.install(cx, &WITHOUT_WEBHOOK).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    gpu::apply_template(cx).await?;
    ensure!(gpu::run_pod(cx, "before", RUNS_WITHIN).await?.len() == 1, "not one GPU in the pod before");
    let [old] = &driver_pods(cx).await?[..] else { bail!("not one pod of the driver") };
    let uid = old.uid().context("a pod without a UID")?;

    // Pods are prepared by whichever instance is there, and none waits for the next try of the kubelet.
    let updated = async {
        let updated = MOCK.install(cx, &[&WITHOUT_WEBHOOK[..], &["image.tag=v2"]].concat()).await;
        updated.context("upgrading")
    };
    let meanwhile = async {
        for number in 0..PODS {
            let name = format!("while-{number}");
            let gpus = gpu::run_pod(cx, &name, RUNS_WITHIN).await.context("during the upgrade")?;
            ensure!(gpus.len() == 1, "pod {name} has {gpus:?}");
            cx.delete_pod(&name, RUNS_WITHIN).await.context("during the upgrade")?;
        }
        Ok(())
    };
    tokio::try_join!(updated, meanwhile)?;
    let [new] = &driver_pods(cx).await?[..] else { bail!("not one pod of the driver") };
    ensure!(new.uid() != Some(uid), "the driver's pod is the one from before the upgrade");
    for number in 0..PODS {
        let events = cx.events_of(&format!("while-{number}")).await?;
        let failed: Vec<_> = events.iter().filter(|event| event.starts_with("Failed")).collect();
        ensure!(failed.is_empty(), "a prepare failed during the upgrade: {failed:?}");
    }

    // What the old instance has prepared, the new one takes down.
    cx.delete_pod("before", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// So many fit into an upgrade.
const PODS: usize = 3;
/// The webhook has scenarios of its own.
const WITHOUT_WEBHOOK: [&str; 1] = ["webhook.enabled=false"];

/// The driver's pods that are not on their way out.
async fn driver_pods(cx: &Context) -> Result<Vec<Pod>> {
    let what = "pods of the driver that are no longer needed are gone";
    eventually(what, RUNS_WITHIN, || async {
        let pods = MOCK.pods(cx).await?;
        Ok(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()).then_some(pods))
    })
    .await
}

async fn uninstall(cx: &Context) -> Result<()> {
    MOCK.install(cx, &WITHOUT_WEBHOOK).await?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    gpu::apply_template(cx).await?;
    gpu::run_pod(cx, "p", RUNS_WITHIN).await?;
    let objects = MOCK.helm(cx, &["get", "manifest", MOCK.release]).await?;

    // In the order that the notes of the chart give.
    cx.delete_pod("p", RUNS_WITHIN).await?;
    ensure!(MOCK.uninstall(cx).await?, "there is no release");
    let mut count = 0;
    for document in serde_yaml_ng::Deserializer::from_str(&objects) {
        let Ok(object) = DynamicObject::deserialize(document) else { continue };
        let found = cx.get(&object).await?;
        ensure!(found.is_none(), "it is still there: {found:?}");
        count += 1;
    }
    ensure!(count > 10, "the release had only {count} objects: {objects}");
    let classes: Api<DeviceClass> = Api::all(cx.client.clone());
    ensure!(classes.get_opt(DRIVER).await?.is_none(), "the device class is still there");
    let slices = || async { Ok(cx.slices(DRIVER).await?.is_empty().then_some(())) };
    eventually("no slices of a driver that is gone", SLICES_GONE_WITHIN, slices).await?;
    gpu::wait_only_instances(0, SOON).await?;
    let left = names_in(&Path::new(node::PLUGINS).join(DRIVER))?;
    let known: BTreeSet<_> = LOCKS.map(str::to_owned).into();
    ensure!(left.is_subset(&known), "{left:?} is left on the node");
    println!("    {count} objects are gone; left on the node: {left:?}");
    Ok(())
}

/// The files in a folder, and the folders that are not empty.
fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && holds_no_file(&entry.path())? {
            continue;
        }
        names.insert(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn holds_no_file(folder: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || !holds_no_file(&entry.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}
