//! `cargo xtask e2e`: builds the drivers and the tests, starts real Kubernetes, runs the tests in it, and stops it.
//!
//! What a scenario does is in the `e2e` crate; this decides which run on which version, and brings them there.

mod plan;
pub(crate) mod tools;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::{
    bench,
    cluster::{
        self, build,
        running::{Cluster, Start},
        version::Version,
    },
};
use plan::{Leg, Tier};

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// `gate` runs before every merge, `full` before an issue counts as resolved.
    #[arg(long, value_enum, default_value_t = Tier::Gate)]
    tier: Tier,
    /// Only on this version [default: those that the tier asks for].
    #[arg(long)]
    kubernetes: Option<Version>,
    /// Only scenarios with this text in their name.
    #[arg(long)]
    only: Option<String>,
    /// Feature gates for all components, in place of those that the tier asks for: `A=true,B=false`.
    #[arg(long)]
    feature_gates: Option<String>,
    /// Leave the last cluster running, for `cargo xtask cluster exec --dir target/e2e/cluster`.
    #[arg(long)]
    keep: bool,
}

/// What the scenarios of one or several versions came to.
#[derive(Clone, Copy, Default)]
struct Count {
    passed: u32,
    failed: u32,
}

/// Runs all legs and prints the count as the last line.
///
/// # Errors
/// Something could not be built or started, a scenario failed, or none was run.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let legs = plan::legs(
        options.tier,
        options.kubernetes,
        options.only.is_some(),
        options.feature_gates.as_deref(),
    );
    for leg in &legs {
        cluster::check_needs(root, leg.kubernetes)?;
    }
    // The whole of the full tier has figures too.
    let measures =
        options.tier == Tier::Full && options.kubernetes.is_none() && options.only.is_none() && !options.keep;
    if measures {
        bench::check_strace()?;
    }
    let tools = tools::build(root)?;
    let mut total = Count::default();
    for (index, leg) in legs.iter().enumerate() {
        let keep = options.keep && index + 1 == legs.len();
        let count = run_leg(root, &tools, leg, options.only.as_deref(), keep)?;
        total.passed += count.passed;
        total.failed += count.failed;
    }
    if measures {
        bench::run(root, bench::Options { quick: true })?;
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    ensure!(total.failed == 0, "{} of the scenarios failed, see above", total.failed);
    ensure!(total.passed > 0, "no scenario was run: `--only` matches none of the tier");
    Ok(())
}

fn run_leg(root: &Path, tools: &tools::Tools, leg: &Leg, only: Option<&str>, keep: bool) -> Result<Count> {
    let programs = build::ensure(root, leg.kubernetes)?;
    let place = root.join("target/e2e");
    let cluster = Cluster::in_dir(place.join("cluster"));
    cluster.down()?;
    println!("\n{leg}");
    let start = Start { programs: &programs, feature_gates: &leg.feature_gates, ends_with_us: !keep };
    if let Err(error) = cluster.up(root, &start) {
        return Err(error.context(save_logs(&cluster, &place, leg)?));
    }
    let scratch = place.join("scratch");
    let count = run_scenarios(&cluster, tools, leg, only, &scratch);
    let failed = count.as_ref().map_or(true, |count| count.failed > 0);
    let saved = if failed { Some(save_logs(&cluster, &place, leg)?) } else { None };
    if keep {
        println!(
            "the cluster still runs: `cargo xtask cluster exec --dir {} -- kubectl get pods -A`, `… down --dir …`",
            cluster.dir().display()
        );
    } else {
        cluster.down()?;
    }
    if let Some(saved) = saved {
        println!("{saved}");
    }
    count
}

fn run_scenarios(
    cluster: &Cluster,
    tools: &tools::Tools,
    leg: &Leg,
    only: Option<&str>,
    scratch: &Path,
) -> Result<Count> {
    if scratch.exists() {
        fs::remove_dir_all(scratch).with_context(|| format!("emptying {}", scratch.display()))?;
    }
    fs::create_dir_all(scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let summary = scratch.join("summary");
    let mut command: Vec<OsString> = vec![tools.scenarios.clone().into()];
    for (option, value) in [
        ("--tier", leg.tier.to_string().into()),
        ("--kubernetes", leg.kubernetes.to_string().into()),
        ("--binaries", tools.binaries.clone().into_os_string()),
        ("--helpers", tools.helpers.clone().into_os_string()),
        ("--scratch", scratch.as_os_str().to_owned()),
        ("--summary", summary.clone().into_os_string()),
    ] {
        command.extend([option.into(), value]);
    }
    if let Some(only) = only {
        command.extend(["--only".into(), only.into()]);
    }
    let mut command = cluster.inside(&command)?;
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    let count = read_summary(&summary).with_context(|| format!("the scenarios broke off ({status})"))?;
    ensure!(
        status.success() || count.failed > 0,
        "the scenarios ended with {status}, yet none is said to have failed"
    );
    Ok(count)
}

/// Reads `passed failed`, which the scenarios' runner leaves when it comes to its end.
fn read_summary(path: &Path) -> Result<Count> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let numbers: Vec<_> = text.split_whitespace().map(str::parse).collect();
    match numbers[..] {
        [Ok(passed), Ok(failed)] => Ok(Count { passed, failed }),
        _ => anyhow::bail!("{} holds {text:?} instead of two numbers", path.display()),
    }
}

/// Copies the logs of the cluster and of the scenarios' drivers to a place that the next run leaves alone.
fn save_logs(cluster: &Cluster, place: &Path, leg: &Leg) -> Result<String> {
    let target: PathBuf = place.join("logs").join(leg.name());
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("emptying {}", target.display()))?;
    }
    copy_files(&cluster.dir().join("log"), &target)?;
    copy_files(&place.join("scratch"), &target.join("scenarios"))?;
    fs::copy(cluster.dir().join("cluster.log"), target.join("cluster.log")).context("copying cluster.log")?;
    Ok(format!("logs are kept in {}", target.display()))
}

/// Copies regular files and folders; sockets and the like stay where they are.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_files(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).with_context(|| format!("copying {}", source.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_summary_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary");
        assert!(read_summary(&path).is_err());
        for broken in ["", "3", "3 x", "1 2 3"] {
            fs::write(&path, broken).unwrap();
            assert!(read_summary(&path).is_err(), "{broken}");
        }
        fs::write(&path, "3 1\n").unwrap();
        let count = read_summary(&path).unwrap();
        assert_eq!((count.passed, count.failed), (3, 1));
    }
}
