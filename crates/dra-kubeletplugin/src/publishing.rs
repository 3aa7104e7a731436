//! Publishing by one of the instances of a driver on a node.
//!
//! During a rolling update two instances run, with wishes that may differ; if both published, each would undo what the
//! other does. So slices are written only by the one that holds the lock `publish.lock` in the driver's folder. One
//! that wants to take over locks, in `publish.next`, the byte at the number of its start; the holder looks once a second
//! and gives way between two writes. Locks end with the process, however that ends. `turn` decides.

mod files;
mod log;
mod told;
mod turn;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_resourceslice::{Gate, Publisher, Scope, SliceStatus};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub(crate) use files::Files;
use turn::{Seen, Step, decide};

use crate::{
    background::TellError, claims::Instance, error::BackgroundError, lock::LockError, mutex::locked,
    options::Options, registration::Registration, tasks::Tasks,
};

/// How often the holder looks whether another one waits, and how often trouble is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often one that waits tries to get the lock.
const TRY_EVERY: Duration = Duration::from_millis(200);

/// A write of the publisher has ended after that time, answered or not, and the publisher has said so.
const LONGEST_WRITE: Duration = Publisher::LONGEST_WRITE.saturating_add(Duration::from_secs(1));

/// Starts the publisher, and the task that gives it its turn. The task ends, and the locks are free, soon after `stop`.
pub(crate) fn start(
    tell: TellError,
    options: &Options,
    files: Files,
    instance: Arc<Instance>,
    registration: watch::Receiver<Registration>,
    (tasks, stop): (&Tasks, CancellationToken),
) -> (Publisher, JoinHandle<()>) {
    let (gate, gate_seen) = watch::channel(Gate::Standby);
    let scope = Scope::node(options.driver.clone(), options.node.clone());
    let (told, dropped) = (Arc::clone(&tell), Mutex::new(told::Dropped::default()));
    let publisher = Publisher::start(options.client.clone(), scope, gate_seen, move |error| {
        if locked(&dropped).is_news(error) {
            told(BackgroundError::Publish(error.clone()));
        }
    });
    let (watched, mut status) = (tasks.clone(), publisher.status());
    tasks.spawn("publisher", async move {
        while status.changed().await.is_ok() {}
        watched.ended("publisher");
    });
    let turns = Turns {
        files,
        instance,
        registration,
        status: publisher.status(),
        gate,
        tell,
        publishing: false,
        away_since: Instant::now(),
        announced: None,
        trouble: None,
    };
    let saying = log::say_published(publisher.status(), turns.registration.clone());
    tasks.spawn("publishing log", saying);
    (publisher, tasks.spawn_to_end("publishing turns", turns.run(stop)))
}

/// The task that takes turns with those of other instances.
struct Turns {
    files: Files,
    instance: Arc<Instance>,
    registration: watch::Receiver<Registration>,
    status: watch::Receiver<SliceStatus>,
    gate: watch::Sender<Gate>,
    tell: TellError,
    /// Whether this instance has the lock.
    publishing: bool,
    /// Since when it is not registered, if it is not.
    away_since: Instant,
    /// What the log says last: whether this instance publishes.
    announced: Option<bool>,
    /// What was reported last, until it works again.
    trouble: Option<String>,
}

impl Turns {
    async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.take_turns()).await;
        self.stop_writing().await;
        // Dropped, the files let go of all locks.
    }

    async fn take_turns(&mut self) {
        loop {
            let stepped = self.step().await;
            self.open_gate();
            let pause = match stepped {
                Ok(pause) => {
                    self.trouble = None;
                    pause
                }
                Err(error) => {
                    self.report(&error);
                    Some(LOOK_EVERY)
                }
            };
            let (registration, status) = (&mut self.registration, &mut self.status);
            let has_wish = status.borrow().wish > 0;
            tokio::select! {
                Ok(()) = registration.changed() => {}
                Ok(_) = status.wait_for(|status| status.wish > 0), if !has_wish => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                // The plugin has ended.
                else => return,
            }
        }
    }

    /// Does the next thing. Returns after what time to go on if nothing happens; `None` if something has to happen.
    async fn step(&mut self) -> Result<Option<Duration>, LockError> {
        let seen = self.look()?;
        let step = decide(&seen);
        match step {
            Step::StayOut | Step::Publish => self.files.leave_queue()?,
            Step::Wait => self.files.queue()?,
            Step::Take => {
                if seen.away_for.is_none() {
                    self.files.queue()?;
                }
                self.stands_by().await;
                self.publishing = self.files.take()?;
            }
            Step::Yield => {
                self.stop_writing().await;
                self.files.release()?;
                self.publishing = false;
            }
        }
        self.announce(seen.has_wish);
        Ok(match step {
            Step::StayOut => seen.has_wish.then_some(LOOK_EVERY),
            Step::Publish => Some(LOOK_EVERY),
            Step::Take if self.publishing => Some(Duration::ZERO),
            Step::Wait | Step::Take => Some(TRY_EVERY),
            Step::Yield => Some(Duration::ZERO),
        })
    }

    fn look(&mut self) -> Result<Seen, LockError> {
        let registered = self.registration.borrow_and_update().is_registered();
        let now = Instant::now();
        if registered {
            self.away_since = now;
        }
        Ok(Seen {
            publishing: self.publishing,
            has_wish: self.status.borrow().wish > 0,
            alone: self.instance.is_alone()?,
            away_for: (!registered).then(|| now.duration_since(self.away_since)),
            waiting: self.files.waiting()?,
        })
    }

    /// Lets the publisher write as far as it may: slices are made only while the kubelet can call.
    fn open_gate(&self) {
        let gate = match &*self.registration.borrow() {
            _ if !self.publishing => Gate::Standby,
            Registration::Registered { epoch } => Gate::open(*epoch),
            _ => Gate::Closed,
        };
        self.gate.send_if_modified(|old| std::mem::replace(old, gate) != gate);
    }

    /// Returns once no write is under way and none will begin.
    async fn stop_writing(&mut self) {
        self.gate.send_replace(Gate::Standby);
        if timeout(LONGEST_WRITE, self.stands_by()).await.is_err() {
            tracing::warn!("the publisher is slow to stop; its writes have ended by their deadline");
        }
    }

    /// Waits until the publisher has noticed that it has to stand by, or is gone.
    async fn stands_by(&mut self) {
        let _ = self.status.wait_for(|status| status.standby_since.is_some()).await;
    }

    fn announce(&mut self, has_wish: bool) {
        if !has_wish || self.announced.replace(self.publishing) == Some(self.publishing) {
            return;
        }
        if self.publishing {
            tracing::info!("this instance of the driver publishes the node's slices");
        } else {
            let other = self.files.other_holder();
            tracing::info!(other, "another instance of the driver publishes the node's slices");
        }
    }

    fn report(&mut self, error: &LockError) {
        let message = error.to_string();
        if self.trouble.as_ref() != Some(&message) {
            (self.tell)(BackgroundError::PublishLock { message: message.clone() });
            self.trouble = Some(message);
        }
    }
}
