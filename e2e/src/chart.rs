//! The mock driver as users have it: installed by helm, in pods, from its image.
//!
//! There is one release, in a namespace of its own. Scenarios that say with which values they want it
//! ([`Scenario::on_chart`](crate::scenario::Scenario::on_chart)) find it installed, and share it while the values are the same.

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

/// The release's name; all its objects have it as the label `app.kubernetes.io/instance`.
pub(crate) const RELEASE: &str = "mock";
/// Where the release is.
pub(crate) const NAMESPACE: &str = "mock-gpu-driver";
/// What the release's objects are called, or begin with: the driver's `DaemonSet`, account and role among them.
pub(crate) const NAME: &str = "mock-gpu-driver";
/// The chart, as it is given to users.
pub(crate) const FOLDER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mock-gpu-driver/deploy/helm/mock-gpu-driver");

/// The image that `cargo xtask e2e` has made, under two tags: as if there were two versions.
const IMAGE: &str = "dra.test/mock-gpu-driver";
const TAGS: [&str; 2] = ["v1", "v2"];
/// The only node pulls nothing, and of each pod one will do.
const VALUES: [&str; 5] = [
    "fullnameOverride=mock-gpu-driver",
    "image.repository=dra.test/mock-gpu-driver",
    "image.tag=v1",
    "image.pullPolicy=Never",
    "webhook.replicas=1",
];
/// Pods of the driver start in a few seconds, and of two instances the second waits for the first one's end.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Installs the release, or upgrades it, and waits until the driver is ready. Values are as in `--set`.
///
/// # Errors
/// helm fails, or the driver is not ready in time; the error says what its pods do.
pub(crate) async fn install(cx: &Context, values: &[&str]) -> Result<()> {
    import_image(cx).await?;
    apply(cx, values).await?;
    let ready = async {
        let what = format!("all pods of DaemonSet {NAME} new and ready");
        eventually(&what, READY_WITHIN, || async { Ok(is_ready(&daemon_set(cx).await?).then_some(())) }).await
    };
    match ready.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(story(cx).await)),
    }
}

/// Installs the release, or upgrades it, and waits for nothing.
pub(crate) async fn apply(cx: &Context, values: &[&str]) -> Result<()> {
    let mut arguments = vec!["upgrade", "--install", RELEASE, FOLDER, "--create-namespace"];
    for value in VALUES.iter().chain(values) {
        arguments.extend(["--set", value]);
    }
    helm(cx, &arguments).await.map(drop)
}

/// Uninstalls the release if there is one, and waits until its pods are gone. Tells whether there was one.
pub(crate) async fn uninstall(cx: &Context) -> Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(cx.client.clone(), NAMESPACE);
    let of_release = ListParams::default().labels(&format!("owner=helm,name={RELEASE}"));
    if secrets.list_metadata(&of_release).await.context("looking for the release")?.items.is_empty() {
        return Ok(false);
    }
    helm(cx, &["uninstall", RELEASE]).await?;
    // Those of the release are on their way out; a scenario may have added others.
    let all: Api<Pod> = Api::namespaced(cx.client.clone(), NAMESPACE);
    all.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let what = format!("no pods in {NAMESPACE}");
    eventually(&what, READY_WITHIN, || async { Ok(pods(cx).await?.is_empty().then_some(())) }).await?;
    Ok(true)
}

/// Runs helm on the release's namespace; gives what it prints.
pub(crate) async fn helm(cx: &Context, arguments: &[&str]) -> Result<String> {
    let mut helm = Command::new(cx.helper("helm"));
    // Nothing of the user's own helm.
    helm.args(arguments).args(["--namespace", NAMESPACE]).env("HOME", &cx.scratch);
    let output = helm.output().await.with_context(|| format!("running {helm:?}"))?;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "helm {}: {} {}", arguments.join(" "), out.trim(), errors.trim());
    Ok(out.into_owned())
}

/// The release's pods.
pub(crate) async fn pods(cx: &Context) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cx.client.clone(), NAMESPACE);
    Ok(pods.list(&ListParams::default()).await.context("listing the release's pods")?.items)
}

async fn daemon_set(cx: &Context) -> Result<DaemonSet> {
    let sets: Api<DaemonSet> = Api::namespaced(cx.client.clone(), NAMESPACE);
    sets.get(NAME).await.context("reading the driver's DaemonSet")
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

/// Brings the image into containerd, once for each cluster.
async fn import_image(cx: &Context) -> Result<()> {
    let [one, two] = TAGS.map(|tag| format!("{IMAGE}:{tag}"));
    if node::ctr(&["images", "list", "--quiet"]).await?.lines().any(|image| image == two) {
        return Ok(());
    }
    let archive = cx.helper("mock-gpu-driver.tar");
    let archive = archive.to_str().context("an archive whose path is not UTF-8")?;
    node::ctr(&["images", "import", archive]).await?;
    node::ctr(&["images", "tag", &one, &two]).await.map(drop)
}

/// What the driver's pods say and do, for an error.
async fn story(cx: &Context) -> String {
    let api: Api<Pod> = Api::namespaced(cx.client.clone(), NAMESPACE);
    let mut story = String::new();
    for pod in pods(cx).await.unwrap_or_default() {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let last = LogParams { tail_lines: Some(10), ..LogParams::default() };
        let log = api.logs(&name, &last).await.unwrap_or_else(|error| error.to_string());
        let status = serde_json::to_string(&pod.status).unwrap_or_default();
        story.extend([format!("pod {name}: status {status}\nlog:\n{log}\n")]);
    }
    story
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_chart_is_there() {
        assert!(Path::new(FOLDER).join("Chart.yaml").is_file());
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
