//! The mock driver's webhook, called by the real API server.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        resource::v1::{ResourceClaim, ResourceClaimTemplate},
    },
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::gpu::DRIVER;
use crate::{context::Context, driver::Driver, eventually::eventually, scenario::Scenario};

const SOON: Duration = Duration::from_secs(30);
const GROUP: &str = "resource.k8s.io";
/// Those that the webhook knows; a cluster has the first, and the others if it is told to.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1beta2"];

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new("mistakes_in_a_claims_configuration_are_refused_by_the_webhook", |cx| {
        Box::pin(reviewed(cx))
    })]
}

async fn reviewed(cx: &Context) -> Result<()> {
    // Older than the webhook, which must not keep it from being deleted.
    cx.apply(&claim("v1", "old", "Endless").to_string()).await?;
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let (crt, key) = (cx.scratch.join("tls.crt"), cx.scratch.join("tls.key"));
    fs::write(&crt, issued.cert.pem())?;
    fs::write(&key, issued.signing_key.serialize_pem())?;
    let [crt, key] = [&crt, &key].map(|path| path.to_string_lossy().into_owned());
    let arguments = ["webhook", "--address", "127.0.0.1:0", "--tls-cert", &crt, "--tls-key", &key];
    let webhook = cx.start_driver("mock-gpu-driver", &arguments)?;
    let address = eventually("the webhook's address", SOON, || async { address(&webhook) }).await?;

    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(cx.client.clone());
    let name = register(cx, &address, issued.cert.pem()).await?;
    let outcome = refuses_and_lets_pass(cx).await;
    // Before the webhook ends: whatever it is asked for would fail.
    webhooks.delete(&name, &DeleteParams::default()).await.context("removing the webhook")?;
    outcome
}

/// Where it serves, by what it has printed.
fn address(webhook: &Driver) -> Result<Option<String>> {
    let log = webhook.log()?;
    let line = log.split_once("/readyz on ").and_then(|(_, rest)| rest.split_once('\n'));
    Ok(line.map(|(address, _)| address.to_owned()))
}

/// Has the API server ask it, for the scenario's namespace alone.
async fn register(cx: &Context, address: &str, ca_bundle: String) -> Result<String> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": DRIVER},
        "webhooks": [{
            "name": format!("config.{DRIVER}"),
            "clientConfig": {
                "url": format!("https://{address}/validate-resource-claim-parameters"),
                "caBundle": ByteString(ca_bundle.into_bytes()),
            },
            "rules": [{
                "apiGroups": [GROUP],
                "apiVersions": VERSIONS,
                "operations": ["CREATE", "UPDATE"],
                "resources": ["resourceclaims", "resourceclaimtemplates"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cx.namespace}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    cx.apply(&configuration.to_string()).await?;
    Ok(DRIVER.to_owned())
}

async fn refuses_and_lets_pass(cx: &Context) -> Result<()> {
    let served = served(cx).await?;
    ensure!(served.contains(&"v1"), "the cluster serves {served:?} of {GROUP}");
    for version in &served {
        for (object, path) in [
            (claim(version, "bad", "Endless"), "spec.devices.config[0]"),
            (template(version, "bad", "Endless"), "spec.spec.devices.config[0]"),
        ] {
            // It takes a moment until the API server knows of the webhook.
            let refused = || async {
                match cx.apply(&object.to_string()).await {
                    Err(error) => Ok(Some(format!("{error:#}"))),
                    Ok(_) => remove(cx, &object).await.map(|()| None),
                }
            };
            let error = eventually(&format!("a refusal of {object}"), SOON, refused).await?;
            let field = format!("{path}.opaque.parameters.sharing.timeSlicingConfig.interval: ");
            ensure!(error.contains(&field) && error.contains("\"Endless\""), "refused by {error}");
        }
        for object in [claim(version, "good", "Long"), template(version, "good", "Long")] {
            cx.apply(&object.to_string()).await.context("what is right is let pass")?;
        }
    }
    println!("    versions of {GROUP}: {}", served.join(", "));

    let claims: Api<ResourceClaim> = cx.api();
    let label =
        Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}, "finalizers": ["example.com/wait"]}}));
    claims
        .patch("old", &PatchParams::default(), &label)
        .await
        .context("a claim that is older can be changed")?;
    claims.delete("old", &DeleteParams::default()).await?;
    let done = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("old", &PatchParams::default(), &done).await.context("its finalizer can be removed")?;
    let gone = || async { Ok(claims.get_opt("old").await?.is_none().then_some(())) };
    eventually("the older claim gone", SOON, gone).await
}

/// The versions of the group that the cluster has.
async fn served(cx: &Context) -> Result<Vec<&'static str>> {
    let groups = cx.client.list_api_groups().await.context("listing API groups")?.groups;
    let Some(group) = groups.into_iter().find(|group| group.name == GROUP) else { bail!("no group {GROUP}") };
    let has = |version: &&str| group.versions.iter().any(|served| served.version == *version);
    Ok(VERSIONS.into_iter().filter(has).collect())
}

/// It was made before the API server knew of the webhook.
async fn remove(cx: &Context, object: &Value) -> Result<()> {
    let now = DeleteParams::default();
    match object["kind"].as_str() {
        Some("ResourceClaim") => cx.api::<ResourceClaim>().delete("bad", &now).await.map(drop)?,
        _ => cx.api::<ResourceClaimTemplate>().delete("bad", &now).await.map(drop)?,
    }
    Ok(())
}

fn claim(version: &str, name: &str, interval: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec(version, interval),
    })
}

fn template(version: &str, name: &str, interval: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec(version, interval)},
    })
}

fn spec(version: &str, interval: &str) -> Value {
    let request = match version {
        "v1beta1" => json!({"name": "gpu", "deviceClassName": DRIVER}),
        _ => json!({"name": "gpu", "exactly": {"deviceClassName": DRIVER}}),
    };
    let parameters = json!({
        "apiVersion": "gpu.resource.example.com/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}},
    });
    json!({"devices": {
        "requests": [request],
        "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
    }})
}
