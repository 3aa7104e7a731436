//! A run: what it works with, and how a driver is started for a measurement.

mod held;
mod kubelet;
mod rounds;
mod silence;
mod work;

pub(crate) use held::HELD;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::Client;

use crate::{
    claims::{self, Claim},
    load::Load,
    node::{self, KubeletLog},
    program::Program,
    samples::Samples,
    slices::{self, SliceWatch},
    variant::Variant,
};

/// The driver's name, whichever driver it is.
const DRIVER: &str = "gpu.example.com";

/// The claims of a round. All of its devices fit into one slice.
const CLAIMS: usize = 100;

/// Claims that are held in the measurement of many.
const MANY: usize = 1000;

/// The kubelet looks once a second, and a Go driver takes one to publish.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// How long a driver gets to come to rest before its memory is read.
const AT_REST: Duration = Duration::from_secs(1);

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Rounds,
    Held,
    Work,
    Restarts,
    Silence,
}

/// What a run works with.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) quick: bool,
    /// All parts if there are none.
    pub(crate) only: Vec<Part>,
    /// The folder of our drivers, and that of the Go programs.
    pub(crate) binaries: PathBuf,
    pub(crate) helpers: PathBuf,
    /// For logs and other files of this run.
    pub(crate) scratch: PathBuf,
}

/// A run in progress.
struct Run<'a> {
    bench: &'a Bench,
    load: Load,
    floor: Load,
    claims: Vec<Claim>,
    samples: Samples,
}

/// A driver that serves the kubelet, and whose slices are there.
struct Running {
    program: Program,
    socket: PathBuf,
    watch: SliceWatch,
    /// How many slices it has.
    slices: usize,
    registered: Instant,
    visible: Instant,
}

impl Bench {
    /// Measures everything.
    ///
    /// # Errors
    /// Something could not be measured. Figures that are bad are no error.
    pub(crate) async fn run(&self) -> Result<Samples> {
        node::put_plugins_on_disk(&self.scratch.join("plugins")).await?;
        let mut run = Run {
            bench: self,
            load: self.load("go-load", &self.helpers),
            floor: self.load("floor", &self.binaries),
            claims: Vec::new(),
            samples: Samples::default(),
        };
        say("making claims");
        run.claims = claims::make(&self.client, DRIVER, MANY + CLAIMS).await?;
        if self.wants(Part::Rounds) {
            run.rounds().await.context("rounds of calls")?;
        }
        if self.wants(Part::Held) {
            run.held().await.context("many claims")?;
        }
        if self.wants(Part::Work) {
            run.work().await.context("requests and syncs")?;
        }
        if self.wants(Part::Restarts) {
            run.kubelet_restarts().await.context("restarts of the kubelet")?;
        }
        if self.wants(Part::Silence) && !self.quick {
            run.silence().await.context("the first batch after silence")?;
        }
        claims::remove_all(&self.client).await?;
        Ok(run.samples)
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn load(&self, name: &str, folder: &Path) -> Load {
        Load { program: folder.join(name), claims: self.scratch.join("claims.json") }
    }

    /// A driver's program.
    fn program(&self, variant: Variant) -> Result<PathBuf> {
        if variant.is_ours() {
            return Ok(self.binaries.join("mock-gpu-driver"));
        }
        let entries = fs::read_dir(&self.helpers);
        let entries = entries.with_context(|| format!("reading {}", self.helpers.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("go-driver-0.37.") {
                return Ok(path);
            }
        }
        bail!("there is no go-driver-0.37.* in {}", self.helpers.display())
    }

    /// Removes what the driver before has left, also at the API server.
    async fn clean(&self) -> Result<()> {
        slices::remove_all(&self.client).await?;
        node::remove_leftovers()
    }

    /// Starts a driver with so many devices; waits until it is registered and its slices are there.
    async fn start(&self, variant: Variant, driver: &str, devices: usize) -> Result<Running> {
        /// The API server takes no more devices in one slice.
        const DEVICES_IN_SLICE: usize = 128;
        let slices = devices.div_ceil(DEVICES_IN_SLICE);
        let mut watch = SliceWatch::start(&self.client, driver).await?;
        let mut kubelet = KubeletLog::from_now()?;
        let (name, devices) = (format!("--driver-name={driver}"), format!("--num-devices={devices}"));
        let cdi = format!("--cdi-root={}", node::CDI);
        let arguments = [variant.arguments(), &[&name, &devices, &cdi]].concat();
        let log = self.scratch.join(format!("{driver}.log"));
        let program = Program::start(&self.program(variant)?, &arguments, &log)?;
        let (registered, visible) = tokio::try_join!(
            kubelet.wait_registered(driver, STARTS_WITHIN),
            watch.wait_there(slices, STARTS_WITHIN)
        )
        .with_context(|| format!("starting {}, whose log is {}", variant.title(), log.display()))?;
        let socket = node::dra_socket(driver)?;
        Ok(Running { program, socket, watch, slices, registered, visible })
    }
}

/// Tells who waits what is going on.
fn say(what: &str) {
    println!("  {what}");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
