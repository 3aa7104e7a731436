//! GPUs of the mock driver that fall ill and get well, and what the pods that have them show of it.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::{context::Context, eventually::eventually, slice_suite::Server};

/// The API takes no more devices in a slice.
const IN_ONE_SLICE: usize = 128;

/// An inventory file. The driver looks at it twice a second.
pub(super) struct Gpus {
    path: PathBuf,
    devices: Vec<Value>,
}

impl Gpus {
    /// `count` plain GPUs, all healthy.
    pub(super) fn new(cx: &Context, count: usize) -> Result<Self> {
        Self::of(cx, (0..count).map(|index| json!({"name": format!("gpu-{index}")})).collect())
    }

    /// These devices, all healthy.
    pub(super) fn of(cx: &Context, devices: Vec<Value>) -> Result<Self> {
        let gpus = Self { path: cx.scratch.join("inventory.json"), devices };
        gpus.are(&json!({}))?;
        Ok(gpus)
    }

    /// The file's path, for `--inventory`.
    pub(super) fn file(&self) -> Result<&str> {
        self.path.to_str().context("a scratch folder that is not UTF-8")
    }

    /// Says how the devices are that are not healthy: `{"gpu-1": {"status": "Unhealthy", "message": "hot"}}`.
    pub(super) fn are(&self, health: &Value) -> Result<()> {
        let slices = self.devices.chunks(IN_ONE_SLICE).map(|devices| slice(devices, health));
        let text = slices.collect::<Value>();
        let new = self.path.with_extension("new");
        fs::write(&new, text.to_string()).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &self.path).with_context(|| format!("replacing {}", self.path.display()))
    }

    /// Says that one device does not work, and the others do.
    pub(super) fn is_unhealthy(&self, device: &str, message: &str) -> Result<()> {
        self.are(&json!({ device: {"status": "Unhealthy", "message": message} }))
    }
}

/// An entry of the file.
fn slice(devices: &[Value], health: &Value) -> Value {
    let names = devices.iter().filter_map(|device| device["name"].as_str());
    let health = names.filter_map(|name| Some((name.to_owned(), health.get(name)?.clone())));
    json!({"devices": devices, "health": health.collect::<Map<_, _>>()})
}

/// Whether this cluster's pods show the health of their devices (the gate is on since 1.36); if not, a line says so.
pub(super) async fn is_shown(cx: &Context) -> Result<bool> {
    is_on(cx, "ResourceHealthStatus").await
}

/// Whether a feature gate is on; if not, a line says so.
pub(super) async fn is_on(cx: &Context, gate: &str) -> Result<bool> {
    let on = Server::ask(&cx.client).await?.has_gate(gate);
    if !on {
        println!("    note: {gate} is off here, so only what is left without it is tested");
    }
    Ok(on)
}

/// Health and message of each device of a pod's container, by the device's name in CDI.
pub(super) type Shown = BTreeMap<String, (String, String)>;

/// What the pod shows now.
pub(super) async fn shown(cx: &Context, pod: &str) -> Result<Shown> {
    let status = cx.api::<Pod>().get(pod).await.with_context(|| format!("reading pod {pod}"))?.status;
    let containers = status.and_then(|status| status.container_statuses).into_iter().flatten();
    let resources =
        containers.flat_map(|container| container.allocated_resources_status.into_iter().flatten());
    let devices = resources.flat_map(|resource| resource.resources.into_iter().flatten());
    Ok(devices
        .map(|device| {
            let said = (device.health.unwrap_or_default(), device.message.unwrap_or_default());
            (device.resource_id, said)
        })
        .collect())
}

/// Has the kubelet look at the pod now. By itself it notices within some 90 s that it knows nothing of a device any more.
pub(super) async fn nudge(cx: &Context, pod: &str) -> Result<()> {
    static NUDGES: AtomicU32 = AtomicU32::new(0);
    let number = NUDGES.fetch_add(1, Ordering::Relaxed).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"dra.test/nudge": number}}}));
    let nudged = cx.api::<Pod>().patch(pod, &PatchParams::default(), &patch).await;
    nudged.map(drop).with_context(|| format!("annotating pod {pod}"))
}

/// Waits until all devices of a pod, of which there is one at least, are shown in this health with this message.
pub(super) async fn wait_shown(
    cx: &Context,
    pod: &str,
    health: &str,
    message: &str,
    within: Duration,
) -> Result<Shown> {
    wait(cx, pod, health, message, within, false).await
}

/// The same while the kubelet is made to look.
pub(super) async fn wait_shown_nudged(
    cx: &Context,
    pod: &str,
    health: &str,
    within: Duration,
) -> Result<Shown> {
    wait(cx, pod, health, "", within, true).await
}

async fn wait(
    cx: &Context,
    pod: &str,
    health: &str,
    message: &str,
    within: Duration,
    nudging: bool,
) -> Result<Shown> {
    // Kubelets before 1.36 keep it to themselves.
    let messages = Server::ask(&cx.client).await?.has_gate("ResourceHealthStatusMessage");
    let message = if messages { message } else { "" };
    let what = format!("pod {pod} shows {health} {message:?}");
    let waited = eventually(&what, within, || async {
        if nudging {
            nudge(cx, pod).await?;
        }
        let shown = shown(cx, pod).await?;
        let is = |said: &(String, String)| said.0 == health && said.1 == message;
        Ok((!shown.is_empty() && shown.values().all(is)).then_some(shown))
    });
    match waited.await {
        Ok(shown) => Ok(shown),
        Err(error) => Err(error.context(format!("pod {pod} shows {:?}", shown(cx, pod).await?))),
    }
}

/// Watches how long a pod's devices are shown as something else than healthy.
pub(super) struct HealthyWatch {
    longest: Duration,
    /// Since when they are not, if they are not.
    since: Option<Instant>,
    last: Instant,
}

impl HealthyWatch {
    pub(super) fn start() -> Self {
        Self { longest: Duration::ZERO, since: None, last: Instant::now() }
    }

    /// Looks until the pod was shown healthy for so long without a break, and `done` says that what was watched for has
    /// happened; gives the longest time that it was not healthy, up to the look that found it so again.
    pub(super) async fn run(
        mut self,
        cx: &Context,
        pod: &str,
        calm: Duration,
        done: impl Fn() -> bool,
    ) -> Result<Duration> {
        let mut calm_since = None;
        loop {
            nudge(cx, pod).await?;
            let shown = shown(cx, pod).await?;
            let healthy = !shown.is_empty() && shown.values().all(|(health, _)| health == "Healthy");
            let now = Instant::now();
            match (healthy, self.since) {
                (false, None) => self.since = Some(self.last),
                (false, Some(_)) => {}
                (true, since) => {
                    self.longest = self.longest.max(since.map_or(Duration::ZERO, |since| now - since));
                    self.since = None;
                }
            }
            self.last = now;
            let calm_now = healthy && done();
            calm_since = if calm_now { calm_since.or(Some(now)) } else { None };
            if calm_since.is_some_and(|since| now - since >= calm) {
                return Ok(self.longest);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
