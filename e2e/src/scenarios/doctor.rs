//! `dra-doctor`: each failure that it knows is brought about, and it names it; on a healthy cluster it is silent.

mod claims;
mod node;
mod second;

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

use super::gpu;
use crate::{
    account::{Account, DRIVER_ROLE},
    context::Context,
    node::NAME,
    scenario::{Scenario, Tier},
};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
const HEALTHY: i32 = 0;
const FOUND: i32 = 1;
const COULD_NOT_LOOK: i32 = 2;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("doctor_is_silent_on_a_healthy_cluster", |cx| Box::pin(healthy(cx))),
        Scenario::new("doctor_names_what_is_wrong_with_sockets", |cx| Box::pin(node::sockets(cx))),
        Scenario::new("doctor_names_a_driver_that_is_not_registered", |cx| Box::pin(node::registration(cx)))
            .tier(Tier::Full),
        Scenario::new("doctor_names_a_runtime_that_does_not_read_cdi_files", |cx| {
            Box::pin(node::runtime(cx))
        })
        .tier(Tier::Full),
        Scenario::new("doctor_names_why_each_device_is_kept_from_a_claim", |cx| {
            Box::pin(claims::pending(cx))
        }),
        Scenario::new("doctor_names_who_holds_a_claim_or_a_device", |cx| Box::pin(claims::held(cx))),
        Scenario::new("doctor_names_why_devices_cannot_be_prepared", |cx| Box::pin(claims::unprepared(cx))),
        Scenario::new("doctor_names_what_does_not_exist_or_is_not_whole", |cx| Box::pin(claims::missing(cx))),
        Scenario::new("doctor_names_missing_permissions", |cx| Box::pin(permissions(cx))),
        Scenario::new("doctor_names_an_api_server_that_drops_fields_or_the_whole_group", |cx| {
            Box::pin(second::api_server(cx))
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
    for check in said.checks()? {
        ensure!(check["verdict"]["result"] == "looked", "{check} was not made");
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
        said.names("permissions", verb)?;
    }
    let binding = account.bind(DRIVER_ROLE).await?;
    let bound = Doctor::run(cx, &arguments).await;
    binding.remove().await?;
    bound?.is_silent()
}

/// What the doctor has said.
struct Doctor {
    arguments: String,
    code: i32,
    report: serde_json::Value,
}

impl Doctor {
    /// Runs it as a cluster administrator on the node.
    async fn run(cx: &Context, arguments: &[&str]) -> Result<Self> {
        Self::run_with(cx, arguments, &[]).await
    }

    async fn run_with(cx: &Context, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args(arguments).arg("--json").env("NODE_NAME", NAME);
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        let output = command.output().await.context("running dra-doctor")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_str(&text).with_context(|| format!("reading {text:?}; {errors}"))?;
        let code = output.status.code().with_context(|| format!("dra-doctor ended by {}", output.status))?;
        let log = cx.scratch.join("doctor.log");
        let entry = format!("$ dra-doctor {}\n{text}\n", arguments.join(" "));
        let before = std::fs::read_to_string(&log).unwrap_or_default();
        std::fs::write(&log, before + &entry).with_context(|| format!("writing {}", log.display()))?;
        Ok(Self { arguments: arguments.join(" "), code, report })
    }

    fn is_silent(&self) -> Result<()> {
        ensure!(
            self.code == HEALTHY,
            "dra-doctor {}: exit code {}, {:#}",
            self.arguments,
            self.code,
            self.report
        );
        Ok(())
    }

    /// It has found something, and this check says these words.
    fn names(&self, check: &str, words: &str) -> Result<()> {
        ensure!(
            self.code == FOUND,
            "dra-doctor {}: exit code {}, {:#}",
            self.arguments,
            self.code,
            self.report
        );
        self.says(check, words)
    }

    /// This check says these words.
    fn says(&self, check: &str, words: &str) -> Result<()> {
        let verdict = self.checks()?.iter().find(|examined| examined["check"] == check);
        let verdict = verdict.with_context(|| format!("there is no check {check}"))?;
        // Quotes within texts are escaped in JSON.
        if !verdict.to_string().replace("\\\"", "\"").contains(words) {
            bail!("dra-doctor {}: {check} does not say {words:?}: {:#}", self.arguments, self.report);
        }
        println!("    {check}: {words}");
        Ok(())
    }

    fn checks(&self) -> Result<&Vec<serde_json::Value>> {
        self.report["checks"].as_array().context("a report without checks")
    }
}

/// It is built as this program is, and lies beside it: nothing of it is measured.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    Ok(own.with_file_name("dra-doctor"))
}
