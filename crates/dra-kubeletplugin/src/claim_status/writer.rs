//! Writes the statuses of claims, one after the other and some at once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_resourceslice::DriverName;
use futures::future::join_all;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use super::queue::{Job, Outcome, Queue};
use crate::{
    background::TellError, claim::ClaimRef, error::BackgroundError, mutex::locked, names::ClaimUid,
    pace::Chance, plugin::ErrorChain,
};

/// How many are written at once.
const AT_ONCE: usize = 4;

/// How long one write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Longer than any wait.
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// Takes wishes for the status of claims. Clones are the same.
#[derive(Clone)]
pub(crate) struct StatusWriter {
    queue: Arc<Mutex<Queue>>,
    news: Arc<Notify>,
}

/// What a writer is made of.
pub(crate) struct WriterConfig {
    pub(crate) client: kube::Client,
    pub(crate) driver: DriverName,
    pub(crate) tell: TellError,
}

impl StatusWriter {
    pub(crate) fn new() -> Self {
        Self { queue: Arc::default(), news: Arc::default() }
    }

    /// The claim's status is to have these entries of our devices.
    pub(crate) fn set(&self, claim: &ClaimRef, devices: Value) {
        self.queue().set(claim.clone(), devices, Instant::now());
        self.news.notify_one();
    }

    /// The claim's status is to have none any more.
    pub(crate) fn clear(&self, claim: &ClaimUid) {
        self.queue().clear(claim, Instant::now());
        self.news.notify_one();
    }

    /// Writes what is wished for, without end.
    pub(crate) async fn run(self, config: WriterConfig) {
        loop {
            let jobs = self.queue().due(Instant::now(), AT_ONCE);
            if jobs.is_empty() {
                let next = self.queue().next_due().unwrap_or_else(|| Instant::now() + A_DAY);
                tokio::select! {
                    () = self.news.notified() => {}
                    () = sleep_until(next) => {}
                }
                continue;
            }
            let written = jobs.iter().map(|job| config.write(job));
            for (job, written) in jobs.iter().zip(join_all(written).await) {
                let outcome = written.as_ref().map_or_else(|(outcome, _)| *outcome, |()| Outcome::Written);
                let worth_telling = self.queue().finish(job, outcome, Instant::now(), Chance::random());
                if let (Err((_, message)), true) = (written, worth_telling) {
                    (config.tell)(BackgroundError::ClaimStatus { claim: job.claim.clone(), message });
                }
            }
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        locked(&self.queue)
    }
}

impl WriterConfig {
    async fn write(&self, job: &Job) -> Result<(), (Outcome, String)> {
        let claims = Api::<ResourceClaim>::namespaced(self.client.clone(), &job.claim.namespace);
        // With its UID, so that another claim of the same name is left alone.
        let patch = Patch::Apply(json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": job.claim.name, "namespace": job.claim.namespace, "uid": job.claim.uid},
            "status": {"devices": job.devices},
        }));
        let params = PatchParams::apply(self.driver.as_str()).force();
        let write = claims.patch_status(&job.claim.name, &params, &patch);
        match timeout(WRITE_LIMIT, write).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err((judge(&error), text(&error))),
            Err(_) => Err((Outcome::Failed(None), format!("no answer within {} s", WRITE_LIMIT.as_secs()))),
        }
    }
}

fn judge(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 409 => Outcome::Gone,
            408 | 429 | 500.. => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Outcome::Failed((seconds > 0).then(|| Duration::from_secs(seconds.into())))
            }
            // Whatever the code: rights are given, webhooks and policies change.
            _ => Outcome::Refused,
        },
        _ => Outcome::Failed(None),
    }
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "{} (the driver's service account needs patch on resourceclaims/status, and since Kubernetes 1.36 \
             associated-node:patch on resourceclaims/driver)",
            status.message
        ),
        error => ErrorChain(error).to_string(),
    }
}
