//! What drivers say of their devices in the status of a claim, with the rights that a deployment gives them: a service
//! account whose token is that of a pod on the node.

mod limits;

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use dra_kubeletplugin::wire::dra_v1::Claim;
use k8s_openapi::api::{
    rbac::v1::ClusterRole,
    resource::v1::{AllocatedDeviceStatus, ResourceClaim},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::gpu::{self, DRIVER};
use crate::{
    account::{Account, DRIVER_ROLE},
    context::Context,
    dra_socket::DraSocket,
    eventually::eventually,
    node,
    pod::ShellPod,
    scenario::Scenario,
};

const OTHER_DRIVER: &str = "other.example.com";
const SOON: Duration = Duration::from_secs(15);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The pauses between tries are at most a minute.
const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(90);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("claim_status_tells_of_a_gpu_while_it_is_prepared", |cx| Box::pin(shown(cx))),
        Scenario::new("driver_that_may_not_write_claim_status_prepares_and_says_what_it_lacks", |cx| {
            Box::pin(no_rights(cx))
        })
        .within(Duration::from_secs(180)),
        Scenario::new("limits_of_claim_status_are_those_of_the_real_api_server", |cx| {
            Box::pin(limits::limits(cx))
        }),
    ]
}

async fn shown(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let account = Account::create(cx, "driver").await?;
    let binding = account.bind(DRIVER_ROLE).await?;
    let kubeconfig = kubeconfig_on_the_node(cx, &account).await?;
    gpu::start_registered(cx, &["--kubeconfig", &kubeconfig]).await?;

    gpu::apply_claim(cx, "of-a-pod").await?;
    cx.create_pod(&ShellPod::print_env("p").claim("of-a-pod").build()).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    let entry = wait_entry(cx, "of-a-pod", DRIVER).await?;
    ensure!((entry.pool.as_str(), entry.driver.as_str()) == (node::NAME, DRIVER), "{entry:?}");
    let conditions = entry.conditions.clone().unwrap_or_default();
    let [ready] = &conditions[..] else { bail!("not one condition: {entry:?}") };
    ensure!((ready.type_.as_str(), ready.status.as_str()) == ("Ready", "True"), "{ready:?}");
    let data = entry.data.context("no data")?.0;
    ensure!(data["driverVersion"] == "1.0.0", "{data}");
    ensure!(data["uuid"] == published(cx, &entry.device, "uuid").await?, "{data}");
    cx.delete_pod("p", RUNS_WITHIN).await?;
    wait_entries(cx, "of-a-pod", &[]).await?;

    beside_another_driver(cx).await?;
    gpu::nothing_left().await?;
    binding.remove().await
}

/// A claim that stays allocated, with a device of another driver that has said something, too.
async fn beside_another_driver(cx: &Context) -> Result<()> {
    let claim = allocated_claim(cx, "of-two-drivers", 1).await?;
    write_as_other_driver(cx, &claim.name).await?;
    let driver = DraSocket::connect(&gpu::our_socket()?).await?;
    driver.prepare(std::slice::from_ref(&claim)).await?;
    wait_entries(cx, &claim.name, &[DRIVER, OTHER_DRIVER]).await?;
    driver.prepare(std::slice::from_ref(&claim)).await?;
    driver.unprepare(std::slice::from_ref(&claim)).await?;
    wait_entries(cx, &claim.name, &[OTHER_DRIVER]).await?;
    let kept = wait_entry(cx, &claim.name, OTHER_DRIVER).await?;
    ensure!(kept.data.is_some_and(|data| data.0 == json!({"kept": true})), "the other driver's data is gone");
    let status = cx.api::<ResourceClaim>().get(&claim.name).await?.status;
    ensure!(status.is_some_and(|status| status.allocation.is_some()), "the claim is not allocated any more");
    Ok(())
}

async fn no_rights(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let account = Account::create(cx, "mute-driver").await?;
    let role = RoleWithoutStatus::create(cx).await?;
    let binding = account.bind(&role.name).await?;
    let kubeconfig = kubeconfig_on_the_node(cx, &account).await?;
    let (driver, _) = gpu::start_registered(cx, &["--kubeconfig", &kubeconfig]).await?;
    gpu::apply_claim(cx, "c").await?;
    cx.create_pod(&ShellPod::print_env("p").claim("c").build()).await?;
    cx.wait_running("p", RUNS_WITHIN).await?;
    driver.wait_log("needs patch on resourceclaims/status", SOON).await?;
    ensure!(entries(cx, "c").await?.is_empty(), "a driver without rights has written");
    let log = driver.log()?;
    let told = log.lines().find(|line| line.contains("needs patch on")).unwrap_or_default();
    ensure!(told.contains(&format!("{}/c", cx.namespace)), "the claim is not named: {told}");
    println!("    {told}");

    let all = account.bind(DRIVER_ROLE).await?;
    let what = "an entry once the driver has the rights";
    let written = || async { Ok((!entries(cx, "c").await?.is_empty()).then_some(())) };
    eventually(what, TRIED_AGAIN_WITHIN, written).await?;
    cx.delete_pod("p", RUNS_WITHIN).await?;
    gpu::nothing_left().await?;
    all.remove().await?;
    binding.remove().await?;
    role.remove().await
}

/// What the driver's own role has, less what status takes.
struct RoleWithoutStatus {
    roles: Api<ClusterRole>,
    name: String,
}

impl RoleWithoutStatus {
    async fn create(cx: &Context) -> Result<Self> {
        let roles: Api<ClusterRole> = Api::all(cx.client.clone());
        let mut role = roles.get(DRIVER_ROLE).await.context("reading the driver's role")?;
        let name = cx.namespace.clone();
        let allowed = |resources: &Vec<String>| !resources.iter().any(|resource| resource.contains('/'));
        let kept = role.rules.take().unwrap_or_default().into_iter();
        let kept = kept.filter(|rule| rule.resources.as_ref().is_none_or(allowed));
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": kept.collect::<Vec<_>>(),
        });
        cx.apply(&object.to_string()).await?;
        Ok(Self { roles, name })
    }

    async fn remove(self) -> Result<()> {
        self.roles.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// A kubeconfig for a process that is, to the API server, in a pod with this account on this node.
async fn kubeconfig_on_the_node(cx: &Context, account: &Account<'_>) -> Result<String> {
    let mut pod = ShellPod::new("seat", "exec sleep 3600").build();
    if let Some(spec) = &mut pod.spec {
        spec.service_account_name = Some(account.name().to_owned());
    }
    cx.create_pod(&pod).await?;
    let seat = cx.wait_running("seat", RUNS_WITHIN).await?;
    let token = account.token_with(&seat).await?;
    let [(_, path), _] = node::driver_environment();
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let mut config: Value = serde_yaml_ng::from_str(&text).with_context(|| format!("reading {path}"))?;
    *config.pointer_mut("/users/0/user").with_context(|| format!("no user in {path}"))? =
        json!({"token": token});
    let path = cx.scratch.join("kubeconfig");
    fs::write(&path, config.to_string()).with_context(|| format!("writing {}", path.display()))?;
    path.to_str().map(str::to_owned).context("a scratch folder that is not UTF-8")
}

/// Makes a claim with a GPU and a device of another driver on the node, as the scheduler would allocate them.
async fn allocated_claim(cx: &Context, name: &str, gpu: u32) -> Result<Claim> {
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": DRIVER}});
    let wanted: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request("gpu"), request("nic")]}},
    }))?;
    let claims = cx.api::<ResourceClaim>();
    let made = claims.create(&PostParams::default(), &wanted).await.context("making a claim")?;
    let on_the_node = json!({"key": "metadata.name", "operator": "In", "values": [node::NAME]});
    let allocation = json!({"status": {"allocation": {
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_the_node]}]},
        "devices": {"results": [
            {"request": "gpu", "driver": DRIVER, "pool": node::NAME, "device": format!("gpu-{gpu}")},
            {"request": "nic", "driver": OTHER_DRIVER, "pool": node::NAME, "device": "nic-0"},
        ]},
    }}});
    let allocated = claims.patch_status(name, &PatchParams::default(), &Patch::Merge(allocation)).await;
    allocated.with_context(|| format!("allocating {name}"))?;
    Ok(Claim {
        namespace: cx.namespace.clone(),
        uid: made.uid().context("a claim without a UID")?,
        name: name.to_owned(),
    })
}

async fn write_as_other_driver(cx: &Context, claim: &str) -> Result<()> {
    let written = write_status(cx, claim, OTHER_DRIVER, "nic-0", &json!({"data": {"kept": true}})).await;
    written.context("writing as another driver")
}

/// Writes the one entry of a driver, as the SDK does.
async fn write_status(
    cx: &Context,
    claim: &str,
    driver: &str,
    device: &str,
    content: &Value,
) -> Result<(), kube::Error> {
    let mut entry = json!({"driver": driver, "pool": node::NAME, "device": device});
    for (field, value) in content.as_object().into_iter().flatten() {
        entry[field] = value.clone();
    }
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": claim}, "status": {"devices": [entry]},
    });
    let claims = cx.api::<ResourceClaim>();
    claims.patch_status(claim, &PatchParams::apply(driver).force(), &Patch::Apply(patch)).await.map(drop)
}

async fn entries(cx: &Context, claim: &str) -> Result<Vec<AllocatedDeviceStatus>> {
    let found =
        cx.api::<ResourceClaim>().get(claim).await.with_context(|| format!("reading claim {claim}"))?;
    Ok(found.status.and_then(|status| status.devices).unwrap_or_default())
}

/// Waits until just these drivers have an entry, one each.
async fn wait_entries(cx: &Context, claim: &str, drivers: &[&str]) -> Result<()> {
    let what = format!("entries of {drivers:?} in the status of claim {claim}");
    let waited = eventually(&what, SOON, || async {
        let mut found: Vec<_> = entries(cx, claim).await?.into_iter().map(|entry| entry.driver).collect();
        found.sort();
        Ok((found == drivers).then_some(()))
    });
    match waited.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("it has {:?}", entries(cx, claim).await?))),
    }
}

async fn wait_entry(cx: &Context, claim: &str, driver: &str) -> Result<AllocatedDeviceStatus> {
    let what = format!("an entry of {driver} in the status of claim {claim}");
    eventually(&what, SOON, || async {
        Ok(entries(cx, claim).await?.into_iter().find(|entry| entry.driver == driver))
    })
    .await
}

/// An attribute of a GPU, a text, as it is published.
async fn published(cx: &Context, device: &str, attribute: &str) -> Result<String> {
    let slices = cx.slices(DRIVER).await?;
    let mut devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let device =
        devices.find(|found| found.name == device).with_context(|| format!("{device} is in no slice"))?;
    let value = device.attributes.as_ref().and_then(|attributes| attributes.get(attribute));
    value.and_then(|value| value.string.clone()).with_context(|| format!("no {attribute}"))
}
