//! The NVIDIA driver as users have it, installed by helm, on hardware that a stand-in for NVML plays.
//!
//! Scenarios share the release and a machine ([`hardware`]), so each takes GPUs of its own. What the driver does in all
//! the cases that need no cluster is tested beside it.

mod hardware;
mod health;
mod matching;
mod mig;
mod sharing;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use serde_json::{Value, json};

use self::hardware::Hardware;
use crate::{context::Context, eventually::eventually, scenario::Scenario};

const DRIVER: &str = "gpu.nvidia.com";
const GPUS: &str = "gpu.nvidia.com";
const MIG_DEVICES: &str = "mig.nvidia.com";
const RUNNING_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn scenarios() -> Vec<Scenario> {
    let lists = [
        sharing::scenarios(),
        mig::that_exist(),
        matching::scenarios(),
        health::scenarios(),
        mig::that_are_made(),
    ];
    lists.into_iter().flatten().collect()
}

/// Makes a claim with these fields of `spec.devices`.
async fn claim(cx: &Context, name: &str, devices: &Value) -> Result<()> {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    });
    cx.apply(&claim.to_string()).await.map(drop)
}

/// A request for so many devices of a class that this is true of.
fn request(class: &str, count: u32, cel: &str) -> Value {
    let selectors = json!([{"cel": {"expression": cel}}]);
    json!({"name": "gpu", "exactly": {"deviceClassName": class, "count": count, "selectors": selectors}})
}

/// CEL for the GPU with this number in the machine of [`hardware`].
fn is_gpu(number: u32) -> String {
    format!("device.attributes['resource.kubernetes.io'].pciBusID == '{}'", hardware::pci_address(number))
}

/// The names of the devices that a claim has, sorted.
async fn devices_of(cx: &Context, claim: &str) -> Result<Vec<String>> {
    let claim: ResourceClaim = cx.api().get(claim).await.with_context(|| format!("reading claim {claim}"))?;
    let allocation = claim.status.and_then(|status| status.allocation).context("a claim without devices")?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    let mut names: Vec<_> = results.into_iter().map(|result| result.device).collect();
    names.sort();
    Ok(names)
}

/// All that a container has to say: its script ends by saying so.
async fn log_of(cx: &Context, pod: &str, container: &str) -> Result<String> {
    let options = kube::api::LogParams { container: Some(container.to_owned()), ..Default::default() };
    eventually(&format!("the whole log of {pod}/{container}"), RUNNING_WITHIN, || async {
        let log =
            cx.api::<Pod>().logs(pod, &options).await.with_context(|| format!("the log of pod {pod}"))?;
        Ok(log.contains(END).then_some(log))
    })
    .await
}

const END: &str = "(end)";

/// What a container has to see of NVIDIA's driver, and then sleeps.
fn look_around() -> String {
    format!(
        "env; ls /dev /dev/nvidia-caps; cat /usr/lib64/libcuda.so.1; test -x /usr/bin/nvidia-smi && echo nvidia-smi; \
         echo '{END}'; exec sleep 3600"
    )
}

/// Passes if a container that has looked around sees all of the driver and, of GPUs, these nodes and no others.
fn ensure_sees(log: &str, nodes: &[&str]) -> Result<()> {
    for expected in ["NVIDIA_VISIBLE_DEVICES=void", "nvidiactl", hardware::A_LIBRARY, "nvidia-smi"] {
        ensure!(log.lines().any(|line| line == expected), "the container misses {expected:?}:\n{log}");
    }
    let is_gpu = |line: &&str| {
        let number = line.strip_prefix("nvidia").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let seen: Vec<_> = log.lines().filter(is_gpu).collect();
    ensure!(seen == nodes, "the container sees {seen:?} in place of {nodes:?}:\n{log}");
    Ok(())
}
