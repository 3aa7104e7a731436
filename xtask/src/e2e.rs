//! `cargo xtask e2e`: builds the drivers and the tests, starts real Kubernetes, runs the tests in it, and stops it.
//!
//! What a scenario does is in the `e2e` crate; this decides which run on which version, and brings them there.

mod output;
mod plan;
pub(crate) mod tools;
mod two_providers;

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
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
use output::Output;
use plan::{Leg, SIDE_BY_SIDE, Suite, Tier};

/// What to run.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("chosen").multiple(true))]
pub(crate) struct Options {
    /// `gate` runs before every merge, `full` before an issue counts as resolved.
    #[arg(long, value_enum, default_value_t = Tier::Gate)]
    tier: Tier,
    /// Only on this version [default: those that the tier asks for].
    #[arg(long)]
    kubernetes: Option<Version>,
    /// Only scenarios with this text in their name.
    #[arg(long, group = "chosen")]
    only: Option<String>,
    /// Only this suite, whole, on the newest version and on the oldest.
    #[arg(long, value_enum, conflicts_with = "tier", group = "chosen")]
    suite: Option<Suite>,
    /// Feature gates for all components, in place of those that the tier asks for: `A=true,B=false`.
    #[arg(long)]
    feature_gates: Option<String>,
    /// Leave the cluster running if there is only one, for `cargo xtask cluster exec --dir target/e2e/cluster`.
    #[arg(long)]
    keep: bool,
    /// With drivers that are built without optimization, in seconds: to write a scenario. What a driver weighs or how
    /// fast it is says nothing then, so it goes with `--only`.
    #[arg(long, requires = "chosen")]
    unoptimized: bool,
    /// Write what commands print now into the documents that show something else, on the newest version unless another is
    /// named. Without it that is a failure.
    #[arg(long, requires = "suite")]
    update: bool,
    #[arg(skip)]
    soak: Option<SoakOptions>,
}

/// How to soak.
#[derive(Args, Clone, Copy)]
pub(crate) struct SoakOptions {
    /// How long, without the waits for a quiet node.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// What the events are drawn with; an earlier run has printed it [default: another one each time].
    #[arg(long)]
    seed: Option<u64>,
    /// On which version.
    #[arg(long, default_value_t = Version::NEWEST)]
    kubernetes: Version,
}

impl From<SoakOptions> for Options {
    fn from(soak: SoakOptions) -> Self {
        Self {
            tier: Tier::Full,
            kubernetes: Some(soak.kubernetes),
            only: Some("soak_".to_owned()),
            suite: None,
            feature_gates: None,
            keep: false,
            unoptimized: false,
            update: false,
            soak: Some(soak),
        }
    }
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
        options.suite,
        // Two versions would write the same documents.
        options.kubernetes.or_else(|| options.update.then_some(Version::NEWEST)),
        options.only.is_some(),
        options.feature_gates.as_deref(),
    );
    for leg in &legs {
        cluster::check_needs(root, leg.kubernetes)?;
    }
    // The whole of the full tier has figures too.
    let whole = options.kubernetes.is_none() && options.only.is_none() && options.suite.is_none();
    let measures = options.tier == Tier::Full && whole && !options.keep;
    if measures {
        bench::check_strace()?;
        two_providers::check(root)?;
    }
    let drivers = if options.unoptimized { tools::Drivers::Unoptimized } else { tools::Drivers::Shipped };
    let tools = tools::build(root, drivers)?;
    if options.tier == Tier::Full {
        tools::build_older_containerd(root, &tools)?;
    }
    for leg in &legs {
        build::ensure(root, leg.kubernetes)?;
    }
    let run = Run { root, tools: &tools, options, keep: options.keep && legs.len() == 1 };
    let total = run.side_by_side(legs)?;
    if measures {
        bench::run(root, &bench::Options { quick: true, only: Vec::new() })?;
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    ensure!(total.failed == 0, "{} of the scenarios failed, see above", total.failed);
    ensure!(total.passed > 0, "no scenario was run: `--only` matches none of the tier");
    Ok(())
}

/// What all legs of a run have in common.
struct Run<'a> {
    root: &'a Path,
    tools: &'a tools::Tools,
    options: &'a Options,
    /// Whether the cluster is left running.
    keep: bool,
}

/// Where one of the clusters that run at once has its files.
struct Place {
    cluster: Cluster,
    scratch: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn new(root: &Path, number: usize) -> Self {
        let folder = root.join("target/e2e");
        let name = |of: &str| if number == 1 { of.to_owned() } else { format!("{of}-{number}") };
        Self {
            cluster: Cluster::in_dir(folder.join(name("cluster"))),
            scratch: folder.join(name("scratch")),
            logs: folder.join("logs"),
        }
    }
}

impl Run<'_> {
    /// Runs the legs, the first ones first, in a few clusters at once.
    fn side_by_side(&self, legs: Vec<Leg>) -> Result<Count> {
        let clusters = legs.len().min(SIDE_BY_SIDE);
        let (waiting, output) = (Mutex::new(VecDeque::from(legs)), Output::default());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let work = |number| -> Result<Count> {
            let (place, mut count) = (Place::new(self.root, number), Count::default());
            while let Some(leg) = next() {
                let of_leg = self.leg(&place, &leg, &output)?;
                count.passed += of_leg.passed;
                count.failed += of_leg.failed;
            }
            Ok(count)
        };
        let counts: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (1..=clusters).map(|number| scope.spawn(move || work(number))).collect();
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut total = Count::default();
        for count in counts {
            let count = count?;
            total.passed += count.passed;
            total.failed += count.failed;
        }
        Ok(total)
    }

    fn leg(&self, place: &Place, leg: &Leg, output: &Output) -> Result<Count> {
        let programs = build::ensure(self.root, leg.kubernetes)?;
        let cluster = &place.cluster;
        cluster.down()?;
        println!("\n{leg}");
        let start =
            Start { programs: &programs, feature_gates: &leg.feature_gates, ends_with_us: !self.keep };
        if let Err(error) = cluster.up(self.root, &start) {
            return Err(error.context(save_logs(place, leg)?));
        }
        let count = self.scenarios(place, leg, output);
        let failed = count.as_ref().map_or(true, |count| count.failed > 0);
        let saved = if failed { Some(save_logs(place, leg)?) } else { None };
        if self.keep {
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

    fn scenarios(&self, place: &Place, leg: &Leg, output: &Output) -> Result<Count> {
        let scratch = &place.scratch;
        if scratch.exists() {
            fs::remove_dir_all(scratch).with_context(|| format!("emptying {}", scratch.display()))?;
        }
        fs::create_dir_all(scratch).with_context(|| format!("creating {}", scratch.display()))?;
        let summary = scratch.join("summary");
        let mut command: Vec<OsString> = vec![self.tools.scenarios.clone().into()];
        for (option, value) in [
            ("--tier", leg.tier.to_string().into()),
            ("--share", leg.share.to_string().into()),
            ("--kubernetes", leg.kubernetes.to_string().into()),
            ("--binaries", self.tools.binaries.clone().into_os_string()),
            ("--helpers", self.tools.helpers.clone().into_os_string()),
            ("--scratch", scratch.as_os_str().to_owned()),
            ("--summary", summary.clone().into_os_string()),
        ] {
            command.extend([option.into(), value]);
        }
        let soak = self.options.soak;
        for (option, value) in [
            ("--only", self.options.only.clone()),
            ("--suite", self.options.suite.map(|suite| suite.to_string())),
            ("--soak-minutes", soak.map(|soak| soak.minutes.to_string())),
            ("--soak-seed", soak.and_then(|soak| soak.seed).map(|seed| seed.to_string())),
        ] {
            command.extend(value.into_iter().flat_map(|value| [option.into(), value.into()]));
        }
        if self.options.update {
            command.push("--update".into());
        }
        let status = output.show(place.cluster.inside(&command)?, leg)?;
        let count =
            read_summary(&summary).with_context(|| format!("the scenarios of {leg} broke off ({status})"))?;
        ensure!(
            status.success() || count.failed > 0,
            "the scenarios of {leg} ended with {status}, yet none is said to have failed"
        );
        Ok(count)
    }
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
fn save_logs(place: &Place, leg: &Leg) -> Result<String> {
    let (cluster, target) = (&place.cluster, place.logs.join(leg.name()));
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("emptying {}", target.display()))?;
    }
    copy_files(&cluster.dir().join("log"), &target)?;
    copy_files(&place.scratch, &target.join("scenarios"))?;
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
