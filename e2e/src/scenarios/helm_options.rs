//! What the chart has off by default, or in another way, turned on by values: it is installed, and it works.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Pod, Secret},
        resource::v1::ResourceClaim,
    },
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    demos::wait_webhook,
    gpu::{self, DRIVER},
    gpu_health,
};
use crate::{
    chart,
    context::Context,
    eventually::eventually,
    pod::ShellPod,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("helm_installs_webhook_binding_controller_and_health_by_annotations", |cx| {
            Box::pin(all_of_it(cx))
        })
        .since(36)
        .within(Duration::from_secs(240)),
        Scenario::new("helm_installs_the_webhook_with_a_certificate_that_is_there", |cx| {
            Box::pin(given_certificate(cx))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(240)),
    ]
}

async fn all_of_it(cx: &Context) -> Result<()> {
    for gate in ["DRADeviceBindingConditions", "ResourceHealthStatus"] {
        if !gpu_health::is_on(cx, gate).await? {
            return Ok(());
        }
    }
    chart::MOCK
        .install(cx, &["gpu.bindingConditions=true", "healthAnnotations=true", "numDevices=1"])
        .await?;
    cx.wait_devices(DRIVER, 1, SOON).await?;
    wait_webhook(cx, RUNS_WITHIN).await?;
    refuses_mistakes(cx).await?;

    cx.apply(&claim("p", "Long").to_string()).await.context("what is right is let pass by the webhook")?;
    cx.create_pod(&ShellPod::print_env("p").claim("p").build()).await?;
    // The scheduler does not bind it before the controller has said that the GPU is ready.
    cx.wait_running("p", RUNS_WITHIN).await?;
    let said = cx.api::<ResourceClaim>().get("p").await?.status.unwrap_or_default().devices;
    let said = serde_json::to_value(said).context("writing the claim's status")?;
    let conditions = said[0]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = |condition: &Value| condition["type"] == "BindingConditions" && condition["status"] == "True";
    ensure!(conditions.iter().any(ready), "the controller has not said that the GPU is ready: {said}");

    gpu_health::wait_shown(cx, "p", "Healthy", "", SOON).await?;
    let pod = annotate(cx).await?;
    let message =
        format!("so says annotation health.example.com/gpu-0 of pod {}/{pod}", chart::MOCK.namespace);
    gpu_health::wait_shown(cx, "p", "Unhealthy", &message, SOON).await?;
    cx.delete_pod("p", SOON).await?;
    gpu::nothing_left().await
}

/// Has the driver's pod say that its GPU does not work; gives the pod's name.
async fn annotate(cx: &Context) -> Result<String> {
    let of_driver =
        |pod: &Pod| pod.labels().get("app.kubernetes.io/component").is_some_and(|of| of == "driver");
    let pods: Vec<_> = chart::MOCK.pods(cx).await?.into_iter().filter(of_driver).collect();
    let [pod] = &pods[..] else { bail!("{} pods of the driver", pods.len()) };
    let patch = json!({"metadata": {"annotations": {"health.example.com/gpu-0": "unhealthy"}}});
    let api: Api<Pod> = Api::namespaced(cx.client.clone(), chart::MOCK.namespace);
    let name = pod.name_any();
    let annotated = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    annotated.with_context(|| format!("annotating pod {name}"))?;
    Ok(name)
}

async fn given_certificate(cx: &Context) -> Result<()> {
    const NAME: &str = "given";
    let host = format!("{}-webhook.{}.svc", chart::MOCK.name, chart::MOCK.namespace);
    let issued = rcgen::generate_simple_self_signed([host])?;
    let (crt, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let bundle =
        serde_json::to_value(ByteString(crt.clone().into_bytes())).context("encoding the certificate")?;
    let bundle = format!("webhook.certificate.caBundle={}", bundle.as_str().unwrap_or_default());
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart::MOCK.namespace}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": NAME, "namespace": chart::MOCK.namespace},
        "stringData": {"tls.crt": crt, "tls.key": key},
    });
    for object in [namespace, secret] {
        cx.apply(&object.to_string()).await?;
    }
    let name = format!("webhook.certificate.secretName={NAME}");
    chart::MOCK.install(cx, &["webhook.certificate.source=secret", &name, &bundle]).await?;
    let outcome = async {
        wait_webhook(cx, RUNS_WITHIN).await?;
        refuses_mistakes(cx).await?;
        cx.apply(&claim("good", "Long").to_string()).await.context("what is right is let pass").map(drop)
    };
    let outcome = outcome.await;
    // Helm did not make it.
    let secrets: Api<Secret> = Api::namespaced(cx.client.clone(), chart::MOCK.namespace);
    secrets.delete(NAME, &DeleteParams::default()).await.context("removing the certificate")?;
    outcome
}

/// Waits until the API server asks the webhook: first it does not know of it, and then it may not reach it yet.
async fn refuses_mistakes(cx: &Context) -> Result<()> {
    let mistake = claim("bad", "Endless");
    let refused = || async {
        if let Err(error) = cx.apply(&mistake.to_string()).await {
            return Ok(Some(format!("{error:#}")).filter(|error| error.contains("denied the request")));
        }
        cx.api::<ResourceClaim>().delete("bad", &DeleteParams::default()).await?;
        Ok(None)
    };
    let error = eventually("a refusal by the webhook", SOON, refused).await?;
    let field = "spec.devices.config[0].opaque.parameters.sharing.timeSlicingConfig.interval: ";
    ensure!(error.contains(field) && error.contains("\"Endless\""), "refused by {error}");
    Ok(())
}

/// A claim for a GPU with settings.
fn claim(name: &str, interval: &str) -> Value {
    let parameters = json!({
        "apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}},
    });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}],
            "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
        }},
    })
}
