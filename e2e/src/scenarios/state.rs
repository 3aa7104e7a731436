//! `state show` of the mock driver on a real node.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use dra_kubeletplugin::state::{CdiOwner, FindingKind, LockedBy, RecordPhase, Report};
use tokio::process::Command;

use super::gpu::{self, DRIVER, run_pod};
use crate::{context::Context, eventually::eventually, scenario::Scenario};

const RUNS_WITHIN: Duration = Duration::from_secs(30);
/// Sockets of dead instances are looked for each minute.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("state_of_a_node_is_shown_beside_a_driver_and_after_its_death", |cx| {
            Box::pin(shown(cx))
        })
        .within(Duration::from_secs(240)),
    ]
}

async fn shown(cx: &Context) -> Result<()> {
    gpu::apply_class_and_template(cx).await?;
    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    let gpus = run_pod(cx, "one", RUNS_WITHIN).await?;
    let well = consistent(cx).await?;
    let [record] = &well.snapshot.records[..] else { bail!("one pod runs, and there is {well}") };
    let devices: Vec<_> = record.devices.iter().map(|held| held.device.device.to_string()).collect();
    ensure!(record.phase == RecordPhase::Prepared && devices == gpus, "the pod sees {gpus:?}: {well}");
    let [file] = &well.snapshot.cdi_files[..] else { bail!("one pod runs, and there is {well}") };
    ensure!(file.owner == CdiOwner::Claim(record.uid.clone()), "{well}");
    let of_instances = |report: &Report| {
        let held = report.snapshot.locks.iter().find(|lock| lock.by == LockedBy::Instances);
        held.map(|lock| lock.pids.clone()).unwrap_or_default()
    };
    ensure!(of_instances(&well) == [driver.pid()], "driver {} runs: {well}", driver.pid());

    driver.kill().await?;
    for path in gpu::files()?.cdi {
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    let (code, broken) = show(cx).await?;
    let kinds: Vec<_> = broken.findings.iter().map(|finding| finding.kind).collect();
    let expected = [
        FindingKind::CdiFileMissing,
        FindingKind::DeadSocket,
        FindingKind::DeadSocket,
        FindingKind::NobodyServes,
    ];
    ensure!(code == 1 && kinds == expected, "exit code {code}: {broken}");

    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    let healed = consistent(cx).await?;
    ensure!(of_instances(&healed) == [driver.pid()], "driver {} runs: {healed}", driver.pid());
    cx.delete_pod("one", RUNS_WITHIN).await?;
    gpu::nothing_left().await
}

/// Waits until nothing is inconsistent, and gives what is shown then.
async fn consistent(cx: &Context) -> Result<Report> {
    let look = || async {
        let (code, report) = show(cx).await?;
        ensure!((code == 0) == report.findings.is_empty(), "exit code {code} with {report}");
        Ok((code == 0).then_some(report))
    };
    eventually("a consistent node", SETTLED_WITHIN, look).await
}

async fn show(cx: &Context) -> Result<(i32, Report)> {
    let mut command = Command::new(cx.binary("mock-gpu-driver"));
    let output = command.args(["state", "show", "--json", "--driver-name", DRIVER]).output();
    let output = output.await.context("running state show")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    Ok((output.status.code().context("a signal")?, report.with_context(|| errors.into_owned())?))
}
