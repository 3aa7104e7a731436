//! `dra-doctor`: each failure that it knows is brought about, and it names it; on a healthy cluster it is silent.

mod cdi_off;
mod claims;
mod fake_plugin;
mod node;
mod objects;
mod pending;
mod provoked;
mod run;
mod second;

use std::time::Duration;

use anyhow::{Result, ensure};
use dra_doctor::{FindingKind, Verdict};

use self::{provoked::provoking, run::Doctor};
use super::gpu;
use crate::{
    account::{Account, DRIVER_ROLE},
    context::Context,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// The version that has on what most reasons depend on: taints, counters, shares of capacity, places of devices.
const GATES_ON_SINCE: u32 = 36;

/// The version that has DeviceTaintRules and extended resources on.
const RULES_SINCE: u32 = 37;

/// Which kinds of findings each brings about stands in [`provoked`].
pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("doctor_is_silent_on_a_healthy_cluster", |cx| Box::pin(healthy(cx))),
        Scenario::new("doctor_names_what_is_wrong_with_sockets", |cx| {
            Box::pin(provoking(cx, node::sockets(cx)))
        }),
        Scenario::new("doctor_names_plugins_that_no_kubelet_takes", |cx| {
            Box::pin(provoking(cx, node::unacceptable(cx)))
        }),
        Scenario::new("doctor_names_a_driver_that_is_not_registered", |cx| {
            Box::pin(provoking(cx, node::registration(cx)))
        })
        .tier(Tier::Full),
        Scenario::new("doctor_names_a_runtime_that_does_not_read_cdi_files", |cx| {
            Box::pin(provoking(cx, node::runtime(cx)))
        })
        .tier(Tier::Full),
        Scenario::new("doctor_names_a_runtime_with_cdi_off_whose_pods_do_not_start", |cx| {
            Box::pin(provoking(cx, cdi_off::cdi_off(cx)))
        })
        .tier(Tier::Full)
        .within(Duration::from_secs(300)),
        Scenario::new("doctor_names_why_a_pod_waits_for_devices", |cx| {
            Box::pin(provoking(cx, pending::waiting(cx)))
        }),
        Scenario::new("doctor_names_why_each_device_is_kept_from_a_claim", |cx| {
            Box::pin(provoking(cx, pending::kept_away(cx)))
        })
        .since(GATES_ON_SINCE),
        Scenario::new("doctor_names_the_rule_that_taints_devices_also_for_extended_resources", |cx| {
            Box::pin(pending::ruled(cx))
        })
        .tier(Tier::Full)
        .since(RULES_SINCE),
        Scenario::new("doctor_names_who_holds_a_claim_or_a_device", |cx| {
            Box::pin(provoking(cx, claims::held(cx)))
        }),
        Scenario::new("doctor_names_what_keeps_a_claim_from_being_used", |cx| {
            Box::pin(provoking(cx, claims::unusable(cx)))
        }),
        Scenario::new("doctor_names_why_devices_cannot_be_prepared", |cx| {
            Box::pin(provoking(cx, claims::unprepared(cx)))
        }),
        Scenario::new("doctor_names_what_does_not_exist_or_is_not_whole", |cx| {
            Box::pin(provoking(cx, objects::missing(cx)))
        }),
        Scenario::new("doctor_names_missing_permissions", |cx| Box::pin(provoking(cx, permissions(cx)))),
        Scenario::new("doctor_names_an_api_server_that_drops_fields_or_the_whole_group", |cx| {
            Box::pin(provoking(cx, second::api_server(cx)))
        })
        .tier(Tier::Full),
    ]
}

async fn healthy(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    gpu::start_registered(cx, &[]).await?;
    gpu::run_pod(cx, "one", RUNS_WITHIN).await?;
    let said = Doctor::run(cx, &["--driver", gpu::DRIVER, "--account", "driver", "--claim-status"]).await?;
    said.is_silent()?;
    for examined in said.checks() {
        ensure!(matches!(examined.verdict, Verdict::Looked(_)), "{examined:?} was not made");
    }
    for arguments in [vec![], vec!["node"], vec!["cluster"], vec!["pod", &format!("{}/one", cx.namespace)]] {
        Doctor::run(cx, &arguments).await?.is_silent()?;
    }
    Ok(())
}

async fn permissions(cx: &Context) -> Result<()> {
    let account = Account::create(cx, "gpu-driver").await?;
    let name = format!("{}/{}", cx.namespace, account.name());
    let arguments = ["cluster", "--account", &name, "--claim-status"];
    let said = Doctor::run(cx, &arguments).await?;
    let verbs = [
        "may not get resourceclaims",
        "may not patch resourceslices",
        "may not associated-node:patch resourceclaims/driver",
    ];
    for verb in verbs {
        said.names(FindingKind::NotPermitted, verb)?;
    }
    let binding = account.bind(DRIVER_ROLE).await?;
    let bound = Doctor::run(cx, &arguments).await;
    binding.remove().await?;
    bound?.is_silent()
}
