//! Pods of the scenario.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};

use super::Context;
use crate::{eventually::eventually, scenario::Tier};

impl Context {
    /// Makes a pod; `pod::shell` builds one.
    pub(crate) async fn create_pod(&self, pod: &Pod) -> Result<Pod> {
        self.api()
            .create(&PostParams::default(), pod)
            .await
            .with_context(|| format!("making pod {:?}", pod.metadata.name))
    }

    /// Waits until the pod runs.
    ///
    /// # Errors
    /// It has failed or ended, or does not run in time; the error has its state and its events.
    pub(crate) async fn wait_running(&self, name: &str, within: Duration) -> Result<Pod> {
        let pod = self.wait_phase(name, &["Running", "Failed", "Succeeded"], within).await?;
        if phase(&pod) != "Running" {
            bail!("pod {name} is {} instead of Running; {}", phase(&pod), self.story_of(name).await);
        }
        Ok(pod)
    }

    /// Waits until a pod runs whose prepare has failed. The kubelet would try again after 60 to 90 s, and does at once when
    /// the pod changes: an annotation is changed every few seconds.
    pub(crate) async fn wait_running_nudged(&self, name: &str, within: Duration) -> Result<Pod> {
        const EVERY: Duration = Duration::from_secs(3);
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let settled = self.wait_phase(name, &["Running", "Failed", "Succeeded"], left.min(EVERY)).await;
            if settled.is_ok() || left.is_zero() {
                return self.wait_running(name, Duration::ZERO).await;
            }
            self.nudge(name).await?;
        }
    }

    /// Waits until a pod runs whose prepare has failed. In the full tier nothing makes the kubelet hurry.
    pub(crate) async fn wait_running_again(&self, name: &str, within: Duration) -> Result<Pod> {
        match self.tier {
            Tier::Full => self.wait_running(name, within).await,
            Tier::Smoke | Tier::Gate => self.wait_running_nudged(name, within).await,
        }
    }

    /// Changes the pod, so that the kubelet looks at it at once.
    pub(crate) async fn nudge(&self, name: &str) -> Result<()> {
        static NUDGES: AtomicUsize = AtomicUsize::new(0);
        let number = NUDGES.fetch_add(1, Ordering::Relaxed).to_string();
        let change = serde_json::json!({"metadata": {"annotations": {"nudge": number}}});
        let changed = self.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        changed.with_context(|| format!("annotating pod {name}")).map(drop)
    }

    /// Waits until the pod's phase is one of `phases`.
    pub(crate) async fn wait_phase(&self, name: &str, phases: &[&str], within: Duration) -> Result<Pod> {
        let what = format!("pod {name} {}", phases.join(" or "));
        let waited = eventually(&what, within, || async {
            let pod = self.api::<Pod>().get(name).await.with_context(|| format!("reading pod {name}"))?;
            Ok(phases.contains(&phase(&pod)).then_some(pod))
        });
        match waited.await {
            Ok(pod) => Ok(pod),
            Err(error) => Err(error.context(self.story_of(name).await)),
        }
    }

    /// Waits until the scheduler has given the pod a node, and with it its devices.
    pub(crate) async fn wait_scheduled(&self, name: &str, within: Duration) -> Result<()> {
        let pods = self.api::<Pod>();
        let what = format!("pod {name} scheduled");
        eventually(&what, within, || async {
            let spec = pods.get(name).await.with_context(|| format!("reading pod {name}"))?.spec;
            Ok(spec.and_then(|spec| spec.node_name).map(drop))
        })
        .await
    }

    /// What the pod's only container has printed.
    pub(crate) async fn pod_log(&self, name: &str) -> Result<String> {
        let log = self.api::<Pod>().logs(name, &LogParams::default()).await;
        log.with_context(|| format!("reading the log of pod {name}"))
    }

    /// Waits until the pod's log has a line that starts with `prefix`, and returns the rest of that line.
    pub(crate) async fn wait_log_line(&self, name: &str, prefix: &str, within: Duration) -> Result<String> {
        let what = format!("{prefix:?} in the log of pod {name}");
        eventually(&what, within, || async {
            let log = self.pod_log(name).await?;
            Ok(log.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned))
        })
        .await
    }

    /// Deletes the pod and waits until the kubelet is done with it.
    pub(crate) async fn delete_pod(&self, name: &str, within: Duration) -> Result<()> {
        let pods = self.api::<Pod>();
        pods.delete(name, &DeleteParams::default()).await.with_context(|| format!("deleting pod {name}"))?;
        self.wait_gone(name, within).await
    }

    /// Waits until a deleted pod is gone.
    pub(crate) async fn wait_gone(&self, name: &str, within: Duration) -> Result<()> {
        let pods = self.api::<Pod>();
        let what = format!("pod {name} gone");
        let waited =
            eventually(&what, within, || async { Ok(pods.get_opt(name).await?.is_none().then_some(())) });
        match waited.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(self.story_of(name).await)),
        }
    }

    /// State and events of a pod, for an error.
    async fn story_of(&self, name: &str) -> String {
        let status = match self.api::<Pod>().get_opt(name).await {
            Ok(pod) => serde_json::to_string(&pod.and_then(|pod| pod.status)).unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        let events = self.events_of(name).await.unwrap_or_default();
        format!("pod {name}: status {status}\nevents:\n  {}", events.join("\n  "))
    }
}

/// The pod's phase; empty before it has one.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}
