//! One instance of the driver: a runtime with a clock of its own, so that it can be stopped and lost at any time.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Runtime, task::JoinHandle, time::Instant};

use super::{
    api::{DRIVER, NODE, client},
    books::{End, Kind},
    disk::Disk,
    driver::Driver,
    world::World,
};
use crate::{
    claim::ClaimRef,
    claim_status::StatusWriter,
    claims::{Claims, ClaimsConfig, Instance, Lookup, OpenError},
    file_threads::THREADS,
    mutex::locked,
};

/// How long starting may take.
const START: Duration = Duration::from_secs(60);

/// Dropping it is the crash: all that it does stops at the next await, and its locks are free.
pub(super) struct Process {
    pub(super) id: u64,
    world: Arc<World>,
    opened: Arc<OnceLock<Arc<Claims<Driver>>>>,
    /// Calls of the kubelet.
    tasks: Vec<JoinHandle<()>>,
    /// The start with its recovery, and looks for orphans: a stop ends these.
    background: Vec<JoinHandle<()>>,
    /// Counts registrations of the kubelet, and whether it is there.
    registrations: u64,
    registered: bool,
    runtime: Runtime,
}

/// How long a caller waits for its answer.
pub(super) struct Caller {
    /// Which deadline it names, from now; in the past if negative.
    pub(super) deadline_ms: i64,
    /// After how many polls of its call it vanishes.
    pub(super) polls: Option<u64>,
    /// Whether it vanishes at its deadline, as a gRPC client does.
    pub(super) leaves: bool,
}

impl Process {
    /// Starts an instance; without `shared` it has to be the only one.
    pub(super) fn start(world: &Arc<World>, id: u64, shared: bool) -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.max_blocking_threads(THREADS);
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let max_parallel = 1 + world.dice.index(4);
        let opened = Arc::new(OnceLock::new());
        let starting = runtime.spawn(start(Arc::clone(world), id, shared, max_parallel, Arc::clone(&opened)));
        let mut process = Self {
            id,
            world: Arc::clone(world),
            opened,
            tasks: Vec::new(),
            background: vec![starting],
            registrations: 0,
            registered: false,
            runtime,
        };
        process.kubelet(!world.dice.one_in(6));
        process
    }

    /// Its claims, once it has started.
    pub(super) fn claims(&self) -> Option<&Arc<Claims<Driver>>> {
        self.opened.get()
    }

    pub(super) fn now(&self) -> Instant {
        let _clock = self.runtime.enter();
        Instant::now()
    }

    /// Lets its time go on, for all that it does.
    pub(super) fn run_for(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Lets each task get to its next file operation but not through it.
    pub(super) fn step(&self, time: Duration) {
        let Some(claims) = self.claims() else { return self.run_for(time) };
        self.runtime.block_on(async {
            let all = u32::try_from(THREADS).unwrap();
            let _gate = claims.disk.gate.acquire_many(all).await.unwrap();
            tokio::time::sleep(time).await;
        });
    }

    /// The kubelet calls, if the instance has started.
    pub(super) fn call(&mut self, kind: Kind, claim: ClaimRef, caller: Caller) {
        let Some(claims) = self.claims().cloned() else { return };
        let (world, id) = (Arc::clone(&self.world), self.id);
        let number = world.state().books.issue(&claim.uid, kind, id);
        world.note(format!(
            "call {number}, process {id}: {kind:?} {claim}, deadline {} ms, polls {:?}, leaves {}",
            caller.deadline_ms, caller.polls, caller.leaves
        ));
        self.tasks.push(self.runtime.spawn(async move {
            let deadline = caller.deadline();
            let answer = match kind {
                Kind::Prepare => caller.wait(deadline, claims.prepare(claim.clone(), deadline)).await,
                Kind::Unprepare => {
                    let call = async { claims.unprepare(claim.clone(), deadline).await.map(|()| Vec::new()) };
                    caller.wait(deadline, call).await
                }
            };
            let (end, text) = match &answer {
                None => (End::Lost, "is lost".to_owned()),
                Some(Ok(_)) => (End::Done, "is done".to_owned()),
                Some(Err(error)) => (End::Failed, format!("fails: {error}")),
            };
            world.note(format!("call {number} {text}"));
            world.state().books.end(&claim.uid, number, end);
            if let Some(Ok(devices)) = answer {
                world.check_answer(&claim, kind, &devices);
            }
        }));
    }

    /// The kubelet registers the instance, or goes away.
    pub(super) fn kubelet(&mut self, registered: bool) {
        if registered != self.registered {
            self.registrations += u64::from(registered);
            self.registered = registered;
            self.world.note(format!("process {}: registered {registered}", self.id));
            self.world.state().books.registered(self.id, registered.then(|| self.now()));
            self.tell_registration();
        }
    }

    fn tell_registration(&self) {
        if let Some(claims) = self.claims() {
            locked(&claims.gone).registered(self.registered.then_some(self.registrations));
        }
    }

    /// Looks for orphans once.
    pub(super) fn sweep(&mut self) {
        let Some(claims) = self.claims().cloned() else { return };
        self.world.note(format!("process {}: sweep, registered {}", self.id, self.registered));
        self.world.state().books.swept();
        self.tell_registration();
        self.background.push(self.runtime.spawn(async move { claims.collect_round().await }));
    }

    /// Begins nothing new, as a stop does; work that has begun goes on.
    pub(super) fn stop(&mut self) {
        for task in self.background.drain(..) {
            task.abort();
        }
    }

    /// Whether its start has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.claims().is_none() && self.background.iter().all(JoinHandle::is_finished)
    }

    /// Whether it does nothing any more, not even for callers that are gone.
    pub(super) fn is_quiet(&mut self) -> bool {
        let ended = |tasks: &mut Vec<JoinHandle<()>>| -> Vec<_> {
            tasks.extract_if(.., |task| task.is_finished()).collect()
        };
        for task in ended(&mut self.tasks).into_iter().chain(ended(&mut self.background)) {
            if let Err(error) = self.runtime.block_on(task) {
                self.world.problem(format!("process {}: {error}", self.id));
            }
        }
        let idle = |claims: &Arc<Claims<Driver>>| claims.work().is_empty();
        self.tasks.is_empty() && self.background.is_empty() && self.claims().is_none_or(idle)
    }
}

async fn start(
    world: Arc<World>,
    id: u64,
    shared: bool,
    max_parallel: usize,
    opened: Arc<OnceLock<Arc<Claims<Driver>>>>,
) {
    let (data, deadline) = (world.data(), Instant::now() + START);
    let pod = shared.then(|| format!("pod-{id}"));
    let instance = match Instance::join(&data, pod.as_deref(), deadline).await {
        Ok(instance) => Arc::new(instance),
        Err(error) => return world.problem(format!("process {id} cannot join: {error}")),
    };
    let noted = Arc::clone(&world);
    let recovering_since = Arc::new(OnceLock::new());
    let config = ClaimsConfig {
        plugin: Arc::new(Driver {
            world: Arc::clone(&world),
            process: id,
            recovering_since: Arc::clone(&recovering_since),
        }),
        tell: Arc::new(move |error| noted.note(format!("process {id}: {error}"))),
        driver: DRIVER.parse().unwrap(),
        lookup: Lookup::new(client(&world), DRIVER.parse().unwrap(), NODE.parse().unwrap()),
        records: Arc::new(Disk(Arc::clone(&world))),
        cdi: world.cdi.clone(),
        kind: world.cdi.kind().clone(),
        max_parallel,
        instance,
        status: StatusWriter::new(),
        go_helper: None,
    };
    let claims = match Claims::open(config, &data, &world.boot_id(), pod.as_deref(), deadline).await {
        Ok(claims) => Arc::new(claims),
        // The machine was short of something: the next start tries again.
        Err(OpenError::Store(error)) if !world.state().calm => {
            return world.note(format!("process {id} cannot start: {error}"));
        }
        Err(error) => return world.problem(format!("process {id} cannot start: {error}")),
    };
    world.note(format!("process {id} has started"));
    let _ = opened.set(Arc::clone(&claims));
    let _ = recovering_since.set(Instant::now());
    claims.recover().await;
}

impl Caller {
    fn deadline(&self) -> Instant {
        let distance = Duration::from_millis(self.deadline_ms.unsigned_abs());
        let now = Instant::now();
        if self.deadline_ms < 0 { now.checked_sub(distance).unwrap_or(now) } else { now + distance }
    }

    /// The answer, unless the caller has vanished before it came.
    async fn wait<T>(&self, deadline: Instant, call: impl Future<Output = T>) -> Option<T> {
        let mut call = pin!(call);
        let mut left = self.polls;
        let polled = poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == Some(0) => Poll::Ready(None),
            Poll::Pending => {
                left = left.map(|polls| polls - 1);
                Poll::Pending
            }
        });
        if self.leaves {
            tokio::time::timeout_at(deadline, polled).await.ok().flatten()
        } else {
            polled.await
        }
    }
}
