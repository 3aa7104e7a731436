//! Drivers as users have them: installed by helm, in pods, from their images.
//!
//! Of each chart there is one release, in a namespace of its own. Scenarios that say which they want
//! ([`Scenario::on`](crate::scenario::Scenario::on)) find it installed, and share it while the values are the same.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, LogParams},
};
use tokio::process::Command;

use crate::{context::Context, eventually::eventually, node};

/// A driver's chart, and its release here.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chart {
    /// The release's name; all its objects have it as the label `app.kubernetes.io/instance`.
    pub(crate) release: &'static str,
    /// Where the release is.
    pub(crate) namespace: &'static str,
    /// What the release's objects are called, or begin with: the driver's `DaemonSet`, account and role among them. The
    /// image is called so, too.
    pub(crate) name: &'static str,
    /// The chart, as it is given to users.
    pub(crate) folder: &'static str,
    /// Of the image that `cargo xtask e2e` has made: as if there were several versions.
    tags: &'static [&'static str],
    /// For every release here. The only node pulls nothing.
    values: &'static [&'static str],
}

/// The mock driver's.
pub(crate) static MOCK: Chart = Chart {
    release: "mock",
    namespace: "mock-gpu-driver",
    name: "mock-gpu-driver",
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mock-gpu-driver/deploy/helm/mock-gpu-driver"),
    tags: &["v1", "v2"],
    // Of each pod one will do.
    values: &[
        "fullnameOverride=mock-gpu-driver",
        "image.repository=dra.test/mock-gpu-driver",
        "image.tag=v1",
        "image.pullPolicy=Never",
        "webhook.replicas=1",
    ],
};

/// The NVIDIA driver's, on what `scenarios/nvidia/hardware.rs` puts in place of hardware.
pub(crate) static NVIDIA: Chart = Chart {
    release: "nvidia",
    namespace: "nvidia-gpu-driver",
    name: "nvidia-gpu-driver",
    folder: concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/nvidia-gpu-driver/deploy/helm/nvidia-gpu-driver"
    ),
    tags: &["v1"],
    values: &[
        "fullnameOverride=nvidia-gpu-driver",
        "image.repository=dra.test/nvidia-gpu-driver",
        "image.tag=v1",
        "image.pullPolicy=Never",
        // Nobody labels the node.
        "affinity=null",
        "pollInterval=1",
        "nvidiaDriverRoot=/run/nvidia/driver",
        // The stand-in writes here, as the kernel would elsewhere.
        "volumes[0].name=fake",
        "volumes[0].hostPath.path=/run/nvidia/fake",
        "volumes[0].hostPath.type=DirectoryOrCreate",
        "volumeMounts[0].name=fake",
        "volumeMounts[0].mountPath=/run/nvidia/fake",
        "env[0].name=PROCFS",
        "env[0].value=/run/nvidia/fake/proc",
        "env[1].name=SYSFS",
        "env[1].value=/run/nvidia/fake/sys",
    ],
};

/// A chart with values, as in `--set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) chart: &'static Chart,
    pub(crate) values: &'static [&'static str],
}

/// Pods of the driver start in a few seconds, and of two instances the second waits for the first one's end.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Uninstalls all releases but the one of this chart. Tells whether there was one.
pub(crate) async fn uninstall_all_but(cx: &Context, kept: Option<&Chart>) -> Result<bool> {
    let mut uninstalled = false;
    for chart in [&MOCK, &NVIDIA].into_iter().filter(|chart| kept != Some(*chart)) {
        uninstalled |= chart.uninstall(cx).await?;
    }
    Ok(uninstalled)
}

impl Chart {
    /// Installs the release, or upgrades it, and waits until the driver is ready. Values are as in `--set`.
    ///
    /// # Errors
    /// helm fails, or the driver is not ready in time; the error says what its pods do.
    pub(crate) async fn install(&self, cx: &Context, values: &[&str]) -> Result<()> {
        self.import_image(cx).await?;
        self.apply(cx, values).await?;
        let ready = async {
            let what = format!("all pods of DaemonSet {} new and ready", self.name);
            let ready = || async { Ok(is_ready(&self.daemon_set(cx).await?).then_some(())) };
            eventually(&what, READY_WITHIN, ready).await
        };
        match ready.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.story(cx).await)),
        }
    }

    /// Installs the release, or upgrades it, and waits for nothing.
    pub(crate) async fn apply(&self, cx: &Context, values: &[&str]) -> Result<()> {
        let mut arguments = vec!["upgrade", "--install", self.release, self.folder, "--create-namespace"];
        for value in self.values.iter().chain(values) {
            arguments.extend(["--set", value]);
        }
        self.helm(cx, &arguments).await.map(drop)
    }

    /// Uninstalls the release if there is one, and waits until its pods are gone. Tells whether there was one.
    pub(crate) async fn uninstall(&self, cx: &Context) -> Result<bool> {
        let secrets: Api<Secret> = Api::namespaced(cx.client.clone(), self.namespace);
        let of_release = ListParams::default().labels(&format!("owner=helm,name={}", self.release));
        if secrets.list_metadata(&of_release).await.context("looking for the release")?.items.is_empty() {
            return Ok(false);
        }
        self.helm(cx, &["uninstall", self.release]).await?;
        // Those of the release are on their way out; a scenario may have added others.
        let all: Api<Pod> = Api::namespaced(cx.client.clone(), self.namespace);
        all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let what = format!("no pods in {}", self.namespace);
        eventually(&what, READY_WITHIN, || async { Ok(self.pods(cx).await?.is_empty().then_some(())) })
            .await?;
        Ok(true)
    }

    /// Runs helm on the release's namespace; gives what it prints.
    pub(crate) async fn helm(&self, cx: &Context, arguments: &[&str]) -> Result<String> {
        let mut helm = Command::new(cx.helper("helm"));
        // Nothing of the user's own helm.
        helm.args(arguments).args(["--namespace", self.namespace]).env("HOME", &cx.scratch);
        let output = helm.output().await.with_context(|| format!("running {helm:?}"))?;
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "helm {}: {} {}", arguments.join(" "), out.trim(), errors.trim());
        Ok(out.into_owned())
    }

    /// The release's pods.
    pub(crate) async fn pods(&self, cx: &Context) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(cx.client.clone(), self.namespace);
        Ok(pods.list(&ListParams::default()).await.context("listing the release's pods")?.items)
    }

    /// What the release's pods have printed: of each so many lines from the end, or all.
    pub(crate) async fn logs(&self, cx: &Context, lines: Option<i64>) -> Result<String> {
        let api: Api<Pod> = Api::namespaced(cx.client.clone(), self.namespace);
        let mut logs = String::new();
        for pod in self.pods(cx).await? {
            let name = pod.metadata.name.unwrap_or_default();
            let last = LogParams { tail_lines: lines, ..LogParams::default() };
            logs.push_str(&api.logs(&name, &last).await.with_context(|| format!("the log of {name}"))?);
        }
        Ok(logs)
    }

    async fn daemon_set(&self, cx: &Context) -> Result<DaemonSet> {
        let sets: Api<DaemonSet> = Api::namespaced(cx.client.clone(), self.namespace);
        sets.get(self.name).await.context("reading the driver's DaemonSet")
    }

    /// Brings the image into containerd, once for each cluster.
    async fn import_image(&self, cx: &Context) -> Result<()> {
        let images: Vec<_> = self.tags.iter().map(|tag| format!("dra.test/{}:{tag}", self.name)).collect();
        let there = node::ctr(&["images", "list", "--quiet"]).await?;
        if images.last().is_some_and(|last| there.lines().any(|image| image == last)) {
            return Ok(());
        }
        let archive = cx.helper(&format!("{}.tar", self.name));
        let archive = archive.to_str().context("an archive whose path is not UTF-8")?;
        node::ctr(&["images", "import", archive]).await?;
        for other in images.iter().skip(1) {
            node::ctr(&["images", "tag", &images[0], other]).await?;
        }
        Ok(())
    }

    /// What the driver's pods say and do, for an error.
    async fn story(&self, cx: &Context) -> String {
        let mut story = String::new();
        for pod in self.pods(cx).await.unwrap_or_default() {
            let name = pod.metadata.name.unwrap_or_default();
            let status = serde_json::to_string(&pod.status).unwrap_or_default();
            story.extend([format!("pod {name}: status {status}\n")]);
        }
        let log = self.logs(cx, Some(10)).await.unwrap_or_else(|error| format!("{error:#}"));
        story + "log:\n" + &log
    }
}

fn is_ready(set: &DaemonSet) -> bool {
    let Some(status) = &set.status else { return false };
    let wanted = status.desired_number_scheduled;
    set.metadata.generation.is_some_and(|generation| status.observed_generation == Some(generation))
        && wanted > 0
        && status.updated_number_scheduled == Some(wanted)
        && status.number_ready == wanted
        && status.number_available == Some(wanted)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_charts_are_there() {
        for chart in [&MOCK, &NVIDIA] {
            assert!(Path::new(chart.folder).join("Chart.yaml").is_file(), "{}", chart.folder);
        }
    }

    #[test]
    fn a_daemon_set_is_ready_once_all_its_pods_are_new_and_ready() {
        let set = |observed: i64, updated: i32, ready: i32| -> DaemonSet {
            serde_json::from_value(serde_json::json!({
                "metadata": {"generation": 2},
                "status": {
                    "observedGeneration": observed, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
                    "updatedNumberScheduled": updated, "numberReady": ready, "numberAvailable": ready,
                    "numberMisscheduled": 0,
                },
            }))
            .unwrap()
        };
        assert!(is_ready(&set(2, 1, 1)));
        assert!(!is_ready(&set(1, 1, 1)));
        assert!(!is_ready(&set(2, 0, 1)));
        assert!(!is_ready(&set(2, 1, 0)));
        assert!(!is_ready(&DaemonSet::default()));
    }
}
