//! Runs `dra-doctor`, and asks what it has said.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail, ensure};
use dra_doctor::{Examined, Finding, FindingKind, ObstacleKind, Report, Verdict};
use serde::Serialize;
use tokio::process::Command;

use crate::{context::Context, node::NAME};

const HEALTHY: i32 = 0;
const FOUND: i32 = 1;
const COULD_NOT_LOOK: i32 = 2;

/// What the doctor has said.
pub(super) struct Doctor<'a> {
    cx: &'a Context,
    arguments: String,
    code: i32,
    report: Report,
}

impl<'a> Doctor<'a> {
    /// Runs it as a cluster administrator on the node.
    pub(super) async fn run(cx: &'a Context, arguments: &[&str]) -> Result<Self> {
        Self::run_with(cx, arguments, &[]).await
    }

    /// For one of the scenario's pods.
    pub(super) async fn of_pod(cx: &'a Context, name: &str) -> Result<Self> {
        Self::run(cx, &["pod", &format!("{}/{name}", cx.namespace)]).await
    }

    /// For one of the scenario's claims.
    pub(super) async fn of_claim(cx: &'a Context, name: &str) -> Result<Self> {
        Self::run(cx, &["claim", &format!("{}/{name}", cx.namespace)]).await
    }

    /// Runs it with these environment variables too.
    pub(super) async fn run_with(
        cx: &'a Context,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args(arguments).arg("--json").env("NODE_NAME", NAME);
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        let output = command.output().await.context("running dra-doctor")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_str(&text).with_context(|| format!("reading {text:?}; {errors}"))?;
        let code = output.status.code().with_context(|| format!("dra-doctor ended by {}", output.status))?;
        let said = Self { cx, arguments: arguments.join(" "), code, report };
        append(
            &cx.scratch.join("doctor.log"),
            &format!("$ dra-doctor {}\n{}\n", said.arguments, said.report),
        )?;
        Ok(said)
    }

    pub(super) fn checks(&self) -> &[Examined] {
        &self.report.checks
    }

    /// All is healthy.
    pub(super) fn is_silent(&self) -> Result<()> {
        self.ended_with(HEALTHY)
    }

    /// It could look, and of this kind it has found something that has these words.
    pub(super) fn names(&self, kind: FindingKind, words: &str) -> Result<()> {
        self.ended_with(FOUND)?;
        self.says(kind, words)
    }

    /// Of this kind it has found something that has these words.
    pub(super) fn says(&self, kind: FindingKind, words: &str) -> Result<()> {
        let of_kind =
            self.report.findings().map(|(_, finding)| finding).filter(|finding| finding.kind == kind);
        let mut texts = of_kind.map(text_of);
        ensure!(
            texts.any(|text| text.contains(words)),
            "dra-doctor {}: no {kind:?} says {words:?}: {}",
            self.arguments,
            self.report
        );
        self.named(kind, words)
    }

    /// This keeps a device from a claim, in these words.
    pub(super) fn keeps_away(&self, kind: ObstacleKind, words: &str) -> Result<()> {
        self.ended_with(FOUND)?;
        let devices = self.report.findings().flat_map(|(_, finding)| &finding.devices);
        let mut reasons = devices.flat_map(|device| &device.reasons);
        ensure!(
            reasons.any(|reason| reason.kind == kind && reason.text.contains(words)),
            "dra-doctor {}: no {kind:?} says {words:?}: {}",
            self.arguments,
            self.report
        );
        self.named(kind, words)
    }

    /// This check could not look, for a reason that has these words.
    pub(super) fn could_not(&self, check: &str, words: &str) -> Result<()> {
        self.ended_with(COULD_NOT_LOOK)?;
        let examined = self.checks().iter().find(|examined| examined.check == check);
        match examined.map(|examined| &examined.verdict) {
            Some(Verdict::CouldNot(why)) if why.contains(words) => Ok(()),
            other => bail!("dra-doctor {}: {check} does not say {words:?} but {other:?}", self.arguments),
        }
    }

    fn ended_with(&self, code: i32) -> Result<()> {
        ensure!(
            self.code == code,
            "dra-doctor {}: exit code {}, not {code}:\n{}",
            self.arguments,
            self.code,
            self.report
        );
        Ok(())
    }

    fn named(&self, kind: impl Serialize, words: &str) -> Result<()> {
        let kind = name_of(kind)?;
        println!("    {kind}: {words}");
        append(&named_file(self.cx), &format!("{kind}\n"))
    }
}

/// The kinds of findings and reasons that the scenario has found named so far.
pub(super) fn named(cx: &Context) -> Result<BTreeSet<String>> {
    let path = named_file(cx);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A kind as it is in JSON.
pub(super) fn name_of(kind: impl Serialize) -> Result<String> {
    let name = serde_json::to_value(kind).context("writing a kind")?;
    Ok(name.as_str().context("a kind is no text")?.to_owned())
}

fn named_file(cx: &Context) -> PathBuf {
    cx.scratch.join("doctor-named")
}

/// All that people read of a finding.
fn text_of(finding: &Finding) -> String {
    [&finding.subject, &finding.problem, &finding.advice]
        .into_iter()
        .chain(&finding.details)
        .fold(String::new(), |text, part| text + part + "\n")
}

fn append(path: &Path, text: &str) -> Result<()> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let added = file.and_then(|mut file| file.write_all(text.as_bytes()));
    added.with_context(|| format!("writing {}", path.display()))
}

/// It is built as this program is, and lies beside it: nothing of it is measured.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    Ok(own.with_file_name("dra-doctor"))
}
