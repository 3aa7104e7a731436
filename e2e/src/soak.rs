//! Pods come and go while the kubelet, the API server and the driver are stopped and started at random.
//!
//! Three parts, each of which ends with a quiet node: nothing happens but the pods, the kubelet and the API server come
//! and go beside a driver that lives, then the driver comes and goes too. What the driver holds at the end of the second
//! part is compared with what it held at the end of the first.

mod books;
mod events;
mod fleet;
mod pods;

use std::{
    cell::{Cell, RefCell},
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use futures::future::{join, join3, try_join_all};

use self::{events::Event, fleet::Fleet, pods::InUse};
use crate::{
    context::Context,
    dice::Dice,
    driver::{Driver, Holdings, Memory},
    node,
    scenarios::{gpu, updates},
};

/// Pods at a time; every third has two GPUs.
const WORKERS: u64 = 6;
/// What the control plane needs after the API server is back, besides twice the time that it was away.
const RECOVERY: Duration = Duration::from_secs(5);
/// The kubelet looks each minute for what pods that are gone have left.
const QUIET_WITHIN: Duration = Duration::from_secs(180);
/// More than all waits for a quiet node take together.
const WAITS: Duration = Duration::from_secs(30 * 60);

/// How long, and with which dice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The time of all parts together, without the waits for a quiet node.
    pub(crate) time: Duration,
    /// The same seed draws the same events, though not at the same moments of what else happens.
    pub(crate) seed: u64,
}

/// What may happen in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing.
    Calm,
    /// The kubelet and the API server come and go.
    DriverLives,
    /// The driver does, too.
    Everything,
}

/// What all that happens at once share.
struct Soak<'a> {
    cx: &'a Context,
    time: Duration,
    story: Story,
    in_use: RefCell<InUse>,
    /// Something has failed: all come to an end.
    failed: Cell<bool>,
    /// That have run.
    pods: Cell<u64>,
}

/// The events so far.
struct Story {
    start: Instant,
    told: RefCell<Vec<String>>,
}

/// What a driver takes.
struct Taken {
    memory: Memory,
    holdings: Holdings,
}

/// Runs all parts.
///
/// # Errors
/// A pod did not run or did not end, a device was given to two, something was left, or the driver took more at the end;
/// the error has the seed and the events.
pub(crate) async fn run(cx: &Context, settings: Settings) -> Result<()> {
    println!("    soak of {} s, seed {}", settings.time.as_secs(), settings.seed);
    let soak = Soak {
        cx,
        time: settings.time,
        story: Story { start: Instant::now(), told: RefCell::default() },
        in_use: RefCell::default(),
        failed: Cell::new(false),
        pods: Cell::new(0),
    };
    let outcome = match tokio::time::timeout(settings.time + WAITS, soak.run(settings)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow!("not done {WAITS:?} after its time")),
    };
    outcome.with_context(|| format!("seed {}; the events until then:\n{}", settings.seed, soak.story))
}

impl Soak<'_> {
    async fn run(&self, settings: Settings) -> Result<()> {
        let mut dice = Dice::new(settings.seed);
        gpu::apply_class_and_template(self.cx).await?;
        let mut fleet = Fleet::start(self.cx).await?;
        self.part(Part::Calm, settings.time / 10, &mut dice, &mut fleet).await?;
        let lives = fleet.living().clone();
        let before = Taken::by(&lives)?;
        self.part(Part::DriverLives, settings.time / 2, &mut dice, &mut fleet).await?;
        let after =
            self.compare(&lives, &before).await.context("what the driver takes that was not restarted")?;
        self.part(Part::Everything, settings.time * 2 / 5, &mut dice, &mut fleet).await?;
        updates::end(fleet.living()).await?;
        fleet.check_logs()?;
        gpu::wait_only_instances(0, QUIET_WITHIN).await?;
        let (pods, events) = (self.pods.get(), self.story.told.borrow().len());
        ensure!(pods > WORKERS, "only {pods} pods have run");
        println!(
            "    {pods} pods have run, {events} events, {} prepares that the kubelet had to repeat; the driver that lived through half of it: \
             {before} before, {after} after",
            updates::failed_prepares(self.cx).await?.len(),
        );
        Ok(())
    }

    async fn part(&self, part: Part, time: Duration, dice: &mut Dice, fleet: &mut Fleet<'_>) -> Result<()> {
        let until = Instant::now() + time;
        let workers: Vec<_> = (0..WORKERS).map(|worker| (worker, dice.fork())).collect();
        let pods = self.guard(try_join_all(
            workers.into_iter().map(|(worker, dice)| pods::come_and_go(self, part, worker, dice, until)),
        ));
        let busy = Cell::new(true);
        let pods_to_their_end = async {
            let outcome = pods.await;
            busy.set(false);
            outcome
        };
        let (pods, events, books) = join3(
            pods_to_their_end,
            self.guard(self.events(part, until, dice, fleet)),
            self.guard(books::keep_watch(self, &busy)),
        )
        .await;
        // The first to fail has most to tell, but any of them may have been the first.
        let errors: Vec<_> = [pods.err(), events.err(), books.err()]
            .into_iter()
            .flatten()
            .map(|error| format!("{error:#}"))
            .collect();
        ensure!(errors.is_empty(), "in the part {part:?}: {}", errors.join("\nand: "));
        let quiet = gpu::wait_only_instances(1, QUIET_WITHIN).await;
        quiet.with_context(|| format!("at the end of the part {part:?}"))
    }

    /// Notes a failure, so that the others end. They are not broken off: the API server has to be started again.
    async fn guard<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let outcome = work.await;
        if outcome.is_err() {
            self.failed.set(true);
        }
        outcome
    }

    async fn events(&self, part: Part, until: Instant, dice: &mut Dice, fleet: &mut Fleet<'_>) -> Result<()> {
        // 20 s in a soak of half an hour; a short one is not to pass with waiting.
        let longest = (self.time / 60).clamp(Duration::from_secs(3), Duration::from_secs(20));
        loop {
            tokio::time::sleep(Duration::from_millis(dice.between(1_000, 6_000))).await;
            if self.failed.get() || Instant::now() >= until {
                return Ok(());
            }
            let Some(event) = Event::draw(part, longest, dice) else { continue };
            self.story.tell(&event);
            self.perform(event, fleet).await.with_context(|| format!("{event}"))?;
        }
    }

    async fn perform(&self, event: Event, fleet: &mut Fleet<'_>) -> Result<()> {
        match event {
            Event::KubeletRestarts => node::component("restart", "kubelet").await,
            Event::KubeletDies { away } => {
                node::component("kill", "kubelet").await?;
                tokio::time::sleep(away).await;
                node::component("start", "kubelet").await
            }
            Event::ApiServerIsAway { time, meanwhile } => {
                node::component("stop", "apiserver").await?;
                let driver = async {
                    match meanwhile {
                        Some(change) => fleet.change(change).await,
                        None => Ok(()),
                    }
                };
                let (driver, ()) = join(driver, tokio::time::sleep(time)).await;
                // In any case: everything else needs it.
                node::component("start", "apiserver").await?;
                // Scheduler and controllers wait for up to half a minute before they try again, and a server that is often
                // away would keep them from all work.
                tokio::time::sleep(RECOVERY + 2 * time).await;
                driver
            }
            Event::Driver(change) => fleet.change(change).await,
        }
    }

    /// Memory may grow by a tenth and 2 MB; threads and descriptors not at all.
    async fn compare(&self, driver: &Driver, before: &Taken) -> Result<Taken> {
        let holdings = updates::settled(driver, &before.holdings).await?;
        let after = Taken { memory: driver.memory()?, holdings };
        let most = before.memory.now + before.memory.now / 10 + 2_000_000;
        ensure!(after.memory.now <= most, "it had {before} and has {after}");
        Ok(after)
    }
}

impl Taken {
    fn by(driver: &Driver) -> Result<Self> {
        Ok(Self { memory: driver.memory()?, holdings: driver.holdings()? })
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let descriptors: usize = self.holdings.descriptors.values().sum();
        let (now, threads) = (self.memory.now / 1000, self.holdings.threads);
        write!(f, "RSS {now} kB, {threads} threads, {descriptors} descriptors")
    }
}

impl Story {
    fn tell(&self, event: &Event) {
        self.told.borrow_mut().push(format!("after {} s: {event}", self.start.elapsed().as_secs()));
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told.borrow().join("\n"))
    }
}
