//! `cargo xtask e2e`: builds the drivers and the tests, starts real Kubernetes, runs the tests in it, and stops it.
//!
//! What a scenario does is in the `e2e` crate; this decides which run on which version, and brings them there.

mod count;
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
use count::{Count, Summary};
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
    let tools = tools::build(root, options.tier, drivers)?;
    for leg in &legs {
        build::ensure(root, leg.kubernetes)?;
    }
    let run = Run { root, tools: &tools, options, keep: options.keep && legs.len() == 1 };
    let total = run.side_by_side(legs)?;
    if measures {
        bench::run(root, &bench::Options { quick: true, only: Vec::new() })?;
    }
    println!("{total}");
    ensure!(total.failed == 0, "{} of the scenarios failed, see above", total.failed);
    ensure!(total.passed > 0, "no scenario was run: `--only` matches none of the tier");
    Ok(())
}

/// Which builds to make ahead of a run.
#[derive(Args)]
pub(crate) struct PrepareOptions {
    /// The tier that is to be run.
    #[arg(long, value_enum, default_value_t = Tier::Gate)]
    tier: Tier,
}

/// Builds what a run of all scenarios takes longest to build: Kubernetes, the Go helpers, and the drivers as they are
/// shipped. No other `cargo` in the workspace waits for it, as long as that names no target.
///
/// # Errors
/// A build fails.
pub(crate) fn prepare(root: &Path, options: &PrepareOptions) -> Result<()> {
    let legs = plan::legs(options.tier, None, None, false, None);
    // The one waits for downloads, and the other's linkers use one core each.
    thread::scope(|scope| {
        let drivers = scope.spawn(|| tools::drivers(root, tools::Drivers::Shipped).map(drop));
        let helpers = tools::helpers(root, options.tier).map(drop);
        let kubernetes = || legs.iter().try_for_each(|leg| build::ensure(root, leg.kubernetes).map(drop));
        let built = helpers.and_then(|()| kubernetes());
        drivers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(built)
    })
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
    /// Which scenarios of each leg are taken.
    queues: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn new(root: &Path, number: usize) -> Self {
        let folder = root.join("target/e2e");
        let name = |of: &str| if number == 1 { of.to_owned() } else { format!("{of}-{number}") };
        Self {
            cluster: Cluster::in_dir(folder.join(name("cluster"))),
            scratch: folder.join(name("scratch")),
            queues: queues(root),
            logs: folder.join("logs"),
        }
    }
}

impl Run<'_> {
    /// Runs the legs, the first ones first, in a few clusters at once.
    fn side_by_side(&self, legs: Vec<Leg>) -> Result<Count> {
        let clusters = legs.len().min(SIDE_BY_SIDE);
        for leg in &legs {
            empty(&queues(self.root).join(leg.whole()))?;
        }
        let (waiting, output) = (Mutex::new(VecDeque::from(legs)), Output::default());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let work = |number| -> Result<Vec<_>> {
            let (place, mut summaries) = (Place::new(self.root, number), Vec::new());
            while let Some(leg) = next() {
                summaries.push((leg.whole(), self.leg(&place, &leg, &output)?));
            }
            Ok(summaries)
        };
        let of_clusters: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (1..=clusters).map(|number| scope.spawn(move || work(number))).collect();
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let summaries = of_clusters.into_iter().collect::<Result<Vec<_>>>()?;
        count::total(&summaries.concat())
    }

    fn leg(&self, place: &Place, leg: &Leg, output: &Output) -> Result<Summary> {
        let programs = build::ensure(self.root, leg.kubernetes)?;
        let cluster = &place.cluster;
        cluster.down()?;
        println!("\n{leg}");
        let start =
            Start { programs: &programs, feature_gates: &leg.feature_gates, ends_with_us: !self.keep };
        if let Err(error) = cluster.up(self.root, &start) {
            return Err(error.context(save_logs(place, leg)?));
        }
        let summary = self.scenarios(place, leg, output);
        let failed = summary.as_ref().map_or(true, |summary| summary.count.failed > 0);
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
        summary
    }

    fn scenarios(&self, place: &Place, leg: &Leg, output: &Output) -> Result<Summary> {
        let scratch = &place.scratch;
        empty(scratch)?;
        let summary = scratch.join("summary");
        let mut command: Vec<OsString> = vec![self.tools.scenarios.clone().into()];
        for (option, value) in [
            ("--tier", leg.tier.to_string().into()),
            ("--kubernetes", leg.kubernetes.to_string().into()),
            ("--binaries", self.tools.binaries.clone().into_os_string()),
            ("--helpers", self.tools.helpers.clone().into_os_string()),
            ("--scratch", scratch.as_os_str().to_owned()),
            ("--summary", summary.clone().into_os_string()),
        ] {
            command.extend([option.into(), value]);
        }
        if leg.share.of > 1 {
            command.extend(["--queue".into(), place.queues.join(leg.whole()).into_os_string()]);
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
        let summary = Summary::read(&summary)
            .with_context(|| format!("the scenarios of {leg} broke off ({status})"))?;
        ensure!(
            status.success() || summary.count.failed > 0,
            "the scenarios of {leg} ended with {status}, yet none is said to have failed"
        );
        Ok(summary)
    }
}

/// The folder of what the clusters of each leg have taken.
fn queues(root: &Path) -> PathBuf {
    root.join("target/e2e/queues")
}

/// Makes a folder that holds nothing.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("emptying {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
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
