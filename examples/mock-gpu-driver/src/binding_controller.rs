//! The controller that says of GPUs that they are ready, for pods that wait for that before they are bound to a node
//! (KEP-5007, `--binding-conditions`). One is enough for a cluster, and two do no harm.
//!
//! These GPUs are always ready. A controller for real devices looks at them here, or attaches them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use dra_kubeletplugin::{
    DriverName, client_from,
    k8s_openapi::{
        api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim},
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    },
    kube::{
        self, Api, ResourceExt as _,
        api::{Patch, PatchParams},
        runtime::{Controller, controller::Action, watcher},
    },
    signals,
};
use futures::StreamExt as _;
use serde_json::json;

use crate::{options::LogFormat, run::start_log};

/// Before a write that failed is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Which driver's devices, and how to reach the API server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControllerOptions {
    /// Kubeconfig file; without it the pod's service account, or what kubectl would use.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the driver.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.example.com")]
    driver_name: DriverName,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// Runs until the process is told to end.
///
/// # Errors
/// There is no way to the API server.
pub(crate) async fn run(options: ControllerOptions) -> anyhow::Result<()> {
    start_log(options.log_format);
    let stop = signals::terminate()?;
    let client = client_from(options.kubeconfig.as_deref()).await?;
    let writer = Arc::new(Writer { client: client.clone(), driver: options.driver_name });
    let controller = Controller::new(Api::<ResourceClaim>::all(client), watcher::Config::default());
    tracing::info!("watching claims");
    let done = controller.run(reconcile, |_, _, _| Action::requeue(PAUSE), writer).for_each(|done| {
        if let Err(error) = done {
            tracing::warn!(%error, "a claim's devices are not said to be ready");
        }
        std::future::ready(())
    });
    tokio::select! {
        () = done => anyhow::bail!("the watch of claims has ended"),
        () = stop => Ok(()),
    }
}

struct Writer {
    client: kube::Client,
    driver: DriverName,
}

/// Called for each claim when it changes, and at the start.
async fn reconcile(claim: Arc<ResourceClaim>, writer: Arc<Writer>) -> Result<Action, kube::Error> {
    let Some(devices) = ready(&claim, &writer.driver, Timestamp::now()) else {
        return Ok(Action::await_change());
    };
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let claims: Api<ResourceClaim> = Api::namespaced(writer.client.clone(), &namespace);
    // With its UID, so that another claim of the same name is left alone. As a manager of its own, so that what the driver
    // says of the devices stays.
    let patch = Patch::Apply(json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": claim.uid()},
        "status": {"devices": devices},
    }));
    let manager = PatchParams::apply(&format!("{}-binding-controller", writer.driver)).force();
    match claims.patch_status(&name, &manager, &patch).await {
        Ok(_) => tracing::info!(claim = format!("{namespace}/{name}"), "its devices are ready"),
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        Err(error) => return Err(error),
    }
    Ok(Action::await_change())
}

/// The status of all devices of a claim that wait for conditions, with these; none if each is true already.
fn ready(claim: &ResourceClaim, driver: &DriverName, now: Timestamp) -> Option<Vec<AllocatedDeviceStatus>> {
    let status = claim.status.as_ref()?;
    let results = status.allocation.as_ref()?.devices.as_ref()?.results.as_deref()?;
    let known = status.devices.as_deref().unwrap_or_default();
    let (mut entries, mut news) = (Vec::new(), false);
    for result in results.iter().filter(|result| result.driver == driver.as_str()) {
        let said =
            known.iter().find(|entry| is_of(entry, result)).and_then(|entry| entry.conditions.as_deref());
        let wanted = result.binding_conditions.as_deref().unwrap_or_default();
        let conditions: Vec<_> = wanted
            .iter()
            .map(|kind| {
                let is_true = |had: &&Condition| had.type_ == *kind && had.status == "True";
                said.and_then(|said| said.iter().find(is_true)).cloned().unwrap_or_else(|| {
                    news = true;
                    condition(kind, now)
                })
            })
            .collect();
        if !conditions.is_empty() {
            entries.push(AllocatedDeviceStatus {
                conditions: Some(conditions),
                device: result.device.clone(),
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                share_id: result.share_id.clone(),
                ..AllocatedDeviceStatus::default()
            });
        }
    }
    news.then_some(entries)
}

fn is_of(entry: &AllocatedDeviceStatus, result: &DeviceRequestAllocationResult) -> bool {
    entry.driver == result.driver
        && entry.pool == result.pool
        && entry.device == result.device
        && entry.share_id == result.share_id
}

fn condition(kind: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: "Ready".to_owned(),
        message: "Device is ready".to_owned(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const SHARES: [&str; 2] =
        ["4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a", "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0b"];

    /// A claim with two shares of one device, and a device of another driver; `devices` is what is said of them.
    fn claim(devices: &Value) -> ResourceClaim {
        let result = |driver: &str, share: &str| {
            json!({"request": "r", "driver": driver, "pool": "node-1", "device": "gpu-0", "shareID": share,
                   "bindingConditions": ["BindingConditions"], "bindingFailureConditions": ["BindingFailureConditions"]})
        };
        let results = [
            result("gpu.example.com", SHARES[0]),
            result("gpu.example.com", SHARES[1]),
            result("other", SHARES[0]),
        ];
        serde_json::from_value(json!({
            "metadata": {"name": "c"}, "spec": {},
            "status": {"allocation": {"devices": {"results": results}}, "devices": devices},
        }))
        .unwrap()
    }

    fn said(claim: &ResourceClaim) -> Option<Value> {
        let ready = ready(claim, &"gpu.example.com".parse().unwrap(), Timestamp::UNIX_EPOCH)?;
        Some(serde_json::to_value(ready).unwrap())
    }

    fn entry(share: &str, status: &str, since: &str) -> Value {
        json!({"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "shareID": share, "conditions": [
            {"type": "BindingConditions", "status": status, "reason": "Ready", "message": "Device is ready",
             "lastTransitionTime": since},
        ]})
    }

    #[test]
    fn each_share_of_a_device_gets_its_conditions_and_keeps_those_that_are_true() {
        const LONG_AGO: &str = "1970-01-01T00:00:00Z";
        const BEFORE: &str = "2026-01-02T03:04:05Z";
        let all = json!([entry(SHARES[0], "True", LONG_AGO), entry(SHARES[1], "True", LONG_AGO)]);
        assert_eq!(said(&claim(&json!(null))), Some(all));
        let one = claim(&json!([entry(SHARES[1], "True", BEFORE)]));
        let kept = json!([entry(SHARES[0], "True", LONG_AGO), entry(SHARES[1], "True", BEFORE)]);
        assert_eq!(said(&one), Some(kept));
        let not_yet = claim(&json!([entry(SHARES[0], "False", BEFORE), entry(SHARES[1], "True", BEFORE)]));
        assert!(said(&not_yet).is_some());
    }

    #[test]
    fn nothing_is_written_where_nothing_is_to_be_said() {
        const BEFORE: &str = "2026-01-02T03:04:05Z";
        let ready = claim(&json!([entry(SHARES[0], "True", BEFORE), entry(SHARES[1], "True", BEFORE)]));
        assert_eq!(said(&ready), None);
        let mut without = claim(&json!(null));
        without.status.as_mut().unwrap().allocation = None;
        assert_eq!(said(&without), None);
        assert_eq!(said(&ResourceClaim::default()), None);
    }
}
