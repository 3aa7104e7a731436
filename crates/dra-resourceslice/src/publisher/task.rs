//! The publisher's task: waits for news, then brings up to date what they touch.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch as channel},
    time::{Instant, sleep_until},
};

use super::{
    Gate, OnError, SliceStatus, SliceWrites, Wish,
    api::SliceApi,
    cache::Cache,
    learned::Learned,
    owner::Owner,
    pool_task::PoolTask,
    relist::Relist,
    taints::tainted,
    watch::{self, Event},
};
use crate::{PoolName, PublishError};

/// How long news are collected before they are acted on: slices are often deleted several at a time.
const COLLECT: Duration = Duration::from_millis(100);
/// After this time without a registration the reason for waiting is told.
const TELL_NOT_REGISTERED: Duration = Duration::from_secs(30);
/// A year: longer than any wait.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) struct Task {
    pub(super) api: SliceApi,
    pub(super) gate: channel::Receiver<Gate>,
    pub(super) wishes: channel::Receiver<Wish>,
    pub(super) cache: Cache,
    pub(super) owner: Owner,
    /// What the API server is known to drop.
    pub(super) learned: Learned,
    pub(super) pools: BTreeMap<PoolName, PoolTask>,
    /// The number of the wish in force.
    pub(super) wish: u64,
    /// The revision of the taints beside it.
    taints: u64,
    /// The gate as it was taken note of, which is only done between two writes.
    pub(super) gate_in_force: Gate,
    standby_since: Option<std::time::Instant>,
    pub(super) relist: Relist,
    /// Since when slices wait for the gate.
    pub(super) waiting: Option<Instant>,
    told_not_registered: bool,
    epoch: Option<u64>,
    last_error: Option<PublishError>,
    pub(super) writes: SliceWrites,
    status: channel::Sender<SliceStatus>,
    on_error: OnError,
}

impl Task {
    pub(super) fn new(
        api: SliceApi,
        gate: channel::Receiver<Gate>,
        wishes: channel::Receiver<Wish>,
        status: channel::Sender<SliceStatus>,
        on_error: OnError,
    ) -> Self {
        let cache = Cache::new(api.scope().clone());
        Self {
            api,
            gate,
            wishes,
            cache,
            owner: Owner::default(),
            learned: Learned::default(),
            pools: BTreeMap::new(),
            wish: 0,
            taints: 0,
            gate_in_force: Gate::Closed,
            standby_since: None,
            relist: Relist::default(),
            waiting: None,
            told_not_registered: false,
            epoch: None,
            last_error: None,
            writes: SliceWrites::default(),
            status,
            on_error,
        }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let (sender, events) = mpsc::channel(64);
        let watch = watch::run(self.api.clone(), sender);
        // Both in one task: dropping it stops both.
        tokio::join!(watch, self.follow(events));
    }

    async fn follow(mut self, mut events: mpsc::Receiver<Event>) {
        let (mut gates, mut wishes) = (self.gate.clone(), self.wishes.clone());
        let mut gate_lives = true;
        self.accept_gate();
        self.accept_wish();
        loop {
            self.sync_due().await;
            if !self.pools.values().any(|pool| pool.gated) {
                self.waiting = None;
            }
            self.status.send_modify(|status| self.fill(status));
            let wake = self.next_wake();
            tokio::select! {
                changed = wishes.changed() => match changed {
                    Ok(()) => self.accept_wish(),
                    Err(_) => return,
                },
                changed = gates.changed(), if gate_lives => {
                    gate_lives = changed.is_ok();
                    self.accept_gate();
                }
                event = events.recv() => {
                    let Some(event) = event else { return };
                    self.see(event);
                    while let Ok(event) = events.try_recv() {
                        self.see(event);
                    }
                }
                () = sleep_until(wake) => self.wake(),
            }
        }
    }

    /// Whether the plan in progress may no longer be carried out.
    pub(super) fn interrupted(&self) -> bool {
        self.gate.has_changed().unwrap_or(false)
    }

    /// Hands an error to the driver.
    pub(super) fn report(&self, error: &PublishError) {
        tracing::debug!(driver = %self.api.scope().driver(), %error, "publishing slices");
        (self.on_error)(error);
    }

    fn accept_wish(&mut self) {
        let Wish { number, revision, resources, taints } = self.wishes.borrow_and_update().clone();
        if (number, revision) == (self.wish, self.taints) {
            return;
        }
        (self.wish, self.taints) = (number, revision);
        let resources =
            if taints.is_empty() { resources } else { Arc::new(tainted((*resources).clone(), &taints)) };
        let now = Instant::now();
        let mut names: Vec<_> = self.pools.keys().cloned().collect();
        names.extend(resources.pools.keys().filter(|name| !self.pools.contains_key(*name)).cloned());
        let mut problems = Vec::new();
        for name in names {
            let pool = self.pools.entry(name.clone()).or_insert_with(PoolTask::new);
            problems.extend(pool.accept(self.api.scope(), &name, Some(&resources), now));
        }
        for problem in problems {
            self.report(&PublishError::Invalid(problem));
        }
        self.find_unwished();
        self.tell();
    }

    fn accept_gate(&mut self) {
        let gate = *self.gate.borrow_and_update();
        let before = std::mem::replace(&mut self.gate_in_force, gate);
        match gate {
            Gate::Standby => self.stand_by(),
            _ if before.is_standby() => self.take_over(),
            _ => {}
        }
        let Gate::Open { epoch } = gate else { return };
        let now = Instant::now();
        self.waiting = None;
        self.told_not_registered = false;
        if self.epoch.replace(epoch) == Some(epoch) {
            self.pools.values_mut().for_each(|pool| pool.touch(now));
        } else {
            self.owner.suspect();
            self.doubt();
            self.pools.values_mut().for_each(|pool| pool.registered(now));
        }
        self.tell();
    }

    /// Leaves the writing to another publisher.
    fn stand_by(&mut self) {
        self.standby_since.get_or_insert_with(std::time::Instant::now);
        self.waiting = None;
        let now = Instant::now();
        self.pools.values_mut().for_each(|pool| pool.touch(now));
        // What has closed the gate waits for this.
        self.tell();
    }

    /// Goes on where another publisher has left off.
    fn take_over(&mut self) {
        let now = Instant::now();
        self.standby_since = None;
        self.relist.due = Some(now);
        self.pools.values_mut().for_each(|pool| pool.registered(now));
    }

    fn see(&mut self, event: Event) {
        match event {
            Event::Listed(listed) => {
                self.cache.replace(listed);
                self.owner.suspect();
                self.doubt();
                self.last_error = None;
                let now = Instant::now();
                self.pools.values_mut().for_each(|pool| pool.touch(now));
                self.find_unwished();
            }
            Event::Applied(slice) => {
                let pool = self.cache.insert(*slice);
                self.touch(pool);
            }
            Event::Deleted { name, uid } => {
                let pool = self.cache.remove(&name, uid.as_deref(), 0);
                if pool.is_some() {
                    // The garbage collector deletes our slices when the node is gone.
                    self.owner.suspect();
                }
                self.touch(pool);
            }
            Event::Watching { after_break } => {
                self.last_error = None;
                if after_break {
                    self.doubt();
                }
            }
            Event::Failed(error) => {
                self.report(&error);
                self.last_error = Some(error);
            }
        }
    }

    fn touch(&mut self, pool: Option<String>) {
        if let Some(name) = pool.and_then(|name| PoolName::new(name).ok()) {
            self.seen(name, Instant::now() + COLLECT);
        }
    }

    fn next_wake(&self) -> Instant {
        let pools = self.pools.values().filter_map(PoolTask::due).filter(|_| self.cache.is_listed());
        let gate =
            self.waiting.filter(|_| !self.told_not_registered).map(|since| since + TELL_NOT_REGISTERED);
        let list = self.relist.due.filter(|_| self.wish > 0 && self.cache.is_listed());
        let wakes = pools.filter(|_| list.is_none()).chain(list).chain(gate).chain(self.owner.ask_again());
        wakes.min().unwrap_or_else(|| Instant::now() + NEVER)
    }

    fn wake(&mut self) {
        let now = Instant::now();
        if self.owner.ask_again().is_some_and(|at| at <= now) {
            self.owner.suspect();
            self.pools.values_mut().for_each(|pool| pool.touch(now));
        }
        let waited = self.waiting.map(|since| now.duration_since(since)).unwrap_or_default();
        if waited >= TELL_NOT_REGISTERED && !self.told_not_registered {
            self.told_not_registered = true;
            let error = PublishError::NotRegistered { waited };
            self.report(&error);
            for pool in self.pools.values_mut().filter(|pool| pool.gated) {
                pool.status.last_error = Some(error.clone());
            }
            self.tell();
        }
    }

    /// Publishes the status of all pools.
    pub(super) fn tell(&self) {
        let pools = self.pools.iter().filter(|(_, pool)| pool.is_shown());
        let pools = pools.map(|(name, pool)| (name.clone(), pool.status.clone())).collect();
        self.status.send_modify(|status| {
            status.pools = pools;
            self.fill(status);
        });
    }

    /// Publishes the status of one pool. A controller has thousands.
    pub(super) fn tell_of(&self, name: &PoolName) {
        let shown = self.pools.get(name).filter(|pool| pool.is_shown());
        self.status.send_modify(|status| {
            match shown {
                Some(pool) => status.pools.insert(name.clone(), pool.status.clone()),
                None => status.pools.remove(name),
            };
            self.fill(status);
        });
    }

    fn fill(&self, status: &mut SliceStatus) {
        status.wish = self.wish;
        status.listed = self.cache.is_listed() && self.relist.due.is_none();
        status.gate_open = self.gate_in_force.is_open();
        status.standby_since = self.standby_since;
        status.writes = self.writes;
        status.last_error = self.relist.error.as_ref().or(self.last_error.as_ref()).cloned();
    }
}
