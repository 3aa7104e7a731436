//! Calls of the kubelet that fail or come too early: the registration's, prepares and unprepares. A proxy between kubelet
//! and driver loses the answers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;

use super::{
    behind_proxy::BehindProxy,
    gpu::{self, DRIVER, SETTLED_WITHIN, run_pod},
};
use crate::{
    context::Context, eventually::eventually, pod::ShellPod, scenario::Scenario, socket_proxy::Rule,
};

const SOON: Duration = Duration::from_secs(30);
const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The kubelet's pauses between its dials grow to 2 min; here they have begun to grow at most.
const RECONNECTED_WITHIN: Duration = Duration::from_secs(60);

/// The driver waits 10 s for the word, and the kubelet's pauses between its tries grow.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// The first version that drops a driver that could not be told of its registration, and registers it anew.
const DROPS_UNTOLD: u32 = 36;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("driver_is_registered_once_get_info_and_notify_no_longer_fail", |cx| {
            Box::pin(registration_fails(cx))
        })
        .within(Duration::from_secs(240)),
        Scenario::new("driver_that_never_hears_of_its_registration_publishes_and_prepares", |cx| {
            Box::pin(notification_never_comes(cx))
        })
        .within(Duration::from_secs(240)),
        Scenario::new("dra_socket_that_listens_only_after_the_registration_is_found_again_when_lost", |cx| {
            Box::pin(late_socket(cx))
        })
        .within(Duration::from_secs(300)),
        Scenario::new("prepare_and_unprepare_whose_answers_are_lost_are_answered_again", |cx| {
            Box::pin(lost_answers(cx))
        })
        .within(Duration::from_secs(300)),
    ]
}

/// By the second of the two calls the driver has heard that it is registered.
async fn registration_fails(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let behind = BehindProxy::start(cx, DRIVER, Rule::AnswersUpTo(0)).await?;
    let _dra = behind.serve()?;
    wait_lost(&behind, 1).await.context("GetInfo")?;
    ensure!(cx.slices(DRIVER).await?.is_empty(), "slices are published before the registration");
    let lost = behind.registration.lost();
    behind.registration.set(Rule::AnswersUpTo(1));
    wait_lost(&behind, lost + 1).await.context("NotifyRegistrationStatus")?;
    behind.registration.set(Rule::Forward);

    // Older kubelets keep the driver although it could not be told.
    if cx.minor()? >= DROPS_UNTOLD {
        behind.wait_told(SOON).await?;
    }
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    cx.wait_running_nudged("p", SETTLED_WITHIN).await?;
    cx.delete_pod("p", SOON).await?;
    behind.nothing_left().await
}

/// The call itself is lost, and not its answer. A kubelet of 1.34 or 1.35 keeps the driver and does not say so again.
async fn notification_never_comes(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let behind = BehindProxy::start(cx, DRIVER, Rule::CallsUpTo(1)).await?;
    let _dra = behind.serve()?;
    wait_lost(&behind, 1).await.context("NotifyRegistrationStatus")?;
    if cx.minor()? >= DROPS_UNTOLD {
        ensure!(cx.slices(DRIVER).await?.is_empty(), "slices of a driver that the kubelet has dropped");
        behind.registration.set(Rule::Forward);
    }
    cx.wait_devices(DRIVER, 8, KNOWN_WITHIN).await?;
    run_pod(cx, "p", RUNS_WITHIN).await?;
    cx.delete_pod("p", SOON).await?;
    behind.nothing_left().await
}

async fn wait_lost(behind: &BehindProxy, answers: usize) -> Result<()> {
    let lost = || async { Ok((behind.registration.lost() >= answers).then_some(())) };
    eventually(&format!("{answers} lost answers"), SOON, lost).await
}

async fn late_socket(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let behind = BehindProxy::start(cx, DRIVER, Rule::Forward).await?;
    behind.wait_told(SOON).await?;
    cx.create_pod(&ShellPod::print_env("early").template("one-gpu").build()).await?;
    cx.wait_event("early", "FailedScheduling", SOON).await?;
    let slices = cx.slices(DRIVER).await?;
    ensure!(slices.is_empty(), "{} slices of a driver that cannot be called", slices.len());

    let dra = behind.serve()?;
    cx.wait_running("early", RECONNECTED_WITHIN).await?;
    let events = cx.events_of("early").await?;
    let failed = events.iter().find(|event| event.contains("FailedPrepareDynamicResources"));
    ensure!(failed.is_none(), "{failed:?}; all events: {events:?}");
    run_pod(cx, "next", RUNS_WITHIN).await?;
    cx.delete_pod("early", SOON).await?;
    ensure!(dra.connections() == 1, "{} connections for two prepares and an unprepare", dra.connections());

    let published = cx.slices(DRIVER).await?;
    dra.cut();
    let again = || async { Ok((dra.connections() == 2).then_some(())) };
    eventually("a second connection", RECONNECTED_WITHIN, again).await?;
    cx.create_pod(&ShellPod::print_env("last").template("one-gpu").build()).await?;
    cx.wait_running_nudged("last", SETTLED_WITHIN).await?;
    for pod in ["next", "last"] {
        cx.delete_pod(pod, SOON).await?;
    }
    ensure!(dra.connections() == 2, "{} connections after one was cut", dra.connections());
    let still = cx.slices(DRIVER).await?;
    ensure!(published == still, "slices were written: {published:?} became {still:?}");
    behind.nothing_left().await
}

/// The driver has done what it was asked, and is asked again.
async fn lost_answers(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let behind = BehindProxy::start(cx, DRIVER, Rule::Forward).await?;
    let dra = behind.serve()?;
    cx.wait_devices(DRIVER, 8, SOON).await?;
    dra.set(Rule::AnswersUpTo(0));
    cx.create_pod(&ShellPod::print_env("p").template("one-gpu").build()).await?;
    wait_answered(&behind, "NodePrepareResources").await?;
    cx.wait_event("p", "FailedPrepareDynamicResources", RUNS_WITHIN).await?;
    dra.set(Rule::Forward);
    cx.wait_running_nudged("p", SETTLED_WITHIN).await?;
    let gpus = gpu::gpus_of(cx, "p").await?;
    ensure!(gpus.len() == 1, "the pod sees {gpus:?}");
    let prepares = behind.driver.answers("NodePrepareResources", "p-")?;
    ensure!(prepares >= 2, "the driver has answered {prepares} prepares");

    dra.set(Rule::AnswersUpTo(0));
    cx.api::<Pod>().delete("p", &DeleteParams::default()).await?;
    wait_answered(&behind, "NodeUnprepareResources").await?;
    ensure!(cx.api::<Pod>().get_opt("p").await?.is_some(), "the pod ended without an answer");
    dra.set(Rule::Forward);
    cx.wait_gone("p", SETTLED_WITHIN).await?;
    let unprepares = behind.driver.answers("NodeUnprepareResources", "p-")?;
    ensure!(unprepares >= 2, "the driver has answered {unprepares} unprepares");
    behind.nothing_left().await
}

/// Waits until the driver has answered a call, which is not to say that the kubelet has the answer.
async fn wait_answered(behind: &BehindProxy, method: &str) -> Result<()> {
    let answered = || async { Ok((behind.driver.answers(method, "p-")? > 0).then_some(())) };
    eventually(&format!("an answer to {method}"), SETTLED_WITHIN, answered).await
}
