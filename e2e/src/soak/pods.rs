//! Pods that come and go. Each request is repeated while components are away.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};

use super::{Part, Soak};
use crate::{
    context::{Context, phase},
    dice::Dice,
    pod::ShellPod,
    scenarios::gpu,
};

/// A prepare that has failed is tried again after 60 to 90 s, and may fail again.
const RUNS_WITHIN: Duration = Duration::from_secs(300);
const GONE_WITHIN: Duration = Duration::from_secs(180);
/// For one that is refused while a component is away.
const REQUEST_WITHIN: Duration = Duration::from_secs(120);
/// The longest that one request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Which pod runs with which GPU.
#[derive(Debug, Default)]
pub(super) struct InUse(BTreeMap<String, String>);

impl InUse {
    /// # Errors
    /// Another pod runs with one of the GPUs.
    fn take(&mut self, pod: &str, gpus: &[String]) -> Result<()> {
        for gpu in gpus {
            if let Some(other) = self.0.insert(gpu.clone(), pod.to_owned()) {
                return Err(anyhow!("{gpu} is in pod {pod} and in pod {other}, both of which run"));
            }
        }
        Ok(())
    }

    fn give_back(&mut self, pod: &str) {
        self.0.retain(|_, user| user != pod);
    }
}

/// Makes a pod, looks at its GPUs, deletes it, until the time is over. The last one is deleted whether it runs or not.
pub(super) async fn come_and_go(
    soak: &Soak<'_>,
    part: Part,
    worker: u64,
    mut dice: Dice,
    until: Instant,
) -> Result<()> {
    let claims = if worker.is_multiple_of(3) { 2 } else { 1 };
    for number in 0.. {
        if soak.failed.get() || Instant::now() >= until {
            break;
        }
        let name = format!("{part:?}-{worker}-{number}").to_lowercase();
        let lives = Duration::from_millis(dice.between(0, 3_000));
        let ran = one_pod(soak, &name, claims, lives, until).await.with_context(|| format!("pod {name}"))?;
        soak.pods.set(soak.pods.get() + u64::from(ran));
    }
    Ok(())
}

/// Whether it ran before the time was over.
async fn one_pod(
    soak: &Soak<'_>,
    name: &str,
    claims: usize,
    lives: Duration,
    until: Instant,
) -> Result<bool> {
    let cx = soak.cx;
    create(cx, name, claims).await?;
    let runs = wait_running(soak, name, until).await?;
    if runs {
        let gpus = repeated("its log", || gpu::gpus_of(cx, name)).await?;
        ensure!(gpus.len() == claims, "it has {claims} claims and sees {gpus:?}");
        soak.in_use.borrow_mut().take(name, &gpus)?;
        tokio::time::sleep(lives).await;
        soak.in_use.borrow_mut().give_back(name);
    }
    delete(cx, name).await?;
    wait_gone(cx, name).await?;
    Ok(runs)
}

async fn create(cx: &Context, name: &str, claims: usize) -> Result<()> {
    // A kubelet that dies while the runtime makes the container takes that with it.
    let pod = ShellPod::print_env(name).restarting();
    let pod = (0..claims).fold(pod, |pod, _| pod.template("one-gpu")).build();
    let pods = cx.api::<Pod>();
    repeated("making it", async || match pods.create(&PostParams::default(), &pod).await {
        // The answer to an earlier request was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => Ok(made.map(drop)?),
    })
    .await
}

/// False if the time is over before it runs.
async fn wait_running(soak: &Soak<'_>, name: &str, until: Instant) -> Result<bool> {
    let pods = soak.cx.api::<Pod>();
    let start = Instant::now();
    loop {
        let pod = repeated("reading it", async || Ok(pods.get(name).await?)).await?;
        match phase(&pod) {
            "Running" => return Ok(true),
            "Failed" | "Succeeded" => return Err(anyhow!("it is {}: {:?}", phase(&pod), pod.status)),
            _ => {}
        }
        if soak.failed.get() || Instant::now() >= until {
            return Ok(false);
        }
        if start.elapsed() > RUNS_WITHIN {
            let events = soak.cx.events_of(name).await.unwrap_or_default();
            return Err(anyhow!("it does not run after {RUNS_WITHIN:?}: {:?}\n{events:#?}", pod.status));
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

async fn delete(cx: &Context, name: &str) -> Result<()> {
    let pods = cx.api::<Pod>();
    repeated("deleting it", async || match pods.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    })
    .await
}

async fn wait_gone(cx: &Context, name: &str) -> Result<()> {
    let pods = cx.api::<Pod>();
    let start = Instant::now();
    while let Some(pod) = repeated("looking for it", async || Ok(pods.get_opt(name).await?)).await? {
        if start.elapsed() > GONE_WITHIN {
            let events = cx.events_of(name).await.unwrap_or_default();
            return Err(anyhow!(
                "deleted, and still there after {GONE_WITHIN:?}: {:?}\n{events:#?}",
                pod.status
            ));
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    Ok(())
}

/// Asks until there is an answer.
async fn repeated<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        let error = match tokio::time::timeout(ANSWER_WITHIN, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("no answer in {ANSWER_WITHIN:?}"),
        };
        if start.elapsed() > REQUEST_WITHIN {
            return Err(error.context(format!("{what}, for {REQUEST_WITHIN:?}")));
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_in_two_running_pods_is_noticed() {
        let gpus = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut in_use = InUse::default();
        in_use.take("a", &gpus(&["gpu-0", "gpu-1"])).unwrap();
        in_use.take("b", &gpus(&["gpu-2"])).unwrap();
        in_use.give_back("a");
        in_use.take("c", &gpus(&["gpu-0"])).unwrap();
        let error = in_use.take("d", &gpus(&["gpu-2"])).unwrap_err().to_string();
        assert!(error.contains("pod d") && error.contains("pod b"), "{error}");
    }
}
