//! What the publisher keeps in mind about one pool.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::time::Instant;

use super::{
    PoolState, PoolStatus,
    backoff::Backoff,
    budget::{Allowance, Budget, SLOW},
    is_permanent,
};
use crate::{
    Consequence, DriverResources, PoolName, PoolWish, Problem, PublishError, Scope, Write,
    equal::ContentDigest, features::Features, observed::ObservedSlice, plan::Draft,
};

/// One pool: wished for, or still to be deleted.
#[derive(Debug, Default)]
pub(super) struct PoolTask {
    /// The wish that names the pool; `None` if there is none.
    pub(super) pool: Option<Arc<DriverResources>>,
    /// What of it can be published; `None` if it is refused or not wished for.
    pub(super) wish: Option<PoolWish>,
    /// When to look at it next; `None` if there is nothing to do.
    pub(super) due: Option<Instant>,
    /// Whether there are slices to create, which has to wait for the gate.
    pub(super) gated: bool,
    /// Whether the API server is still to be asked which fields it drops.
    pub(super) probe: bool,
    pub(super) status: PoolStatus,
    /// The features of this wish that were reported as dropped.
    pub(super) reported: Features,
    /// Contents that the API server stores differently in a way that no feature explains.
    tolerated: Vec<(ContentDigest, ContentDigest)>,
    backoff: Backoff,
    conflicts: u32,
    vanished: Budget,
    changed: Budget,
    allowance: Allowance,
    /// The next plan needs no budget: the wish or the registration is new.
    free: bool,
    held_until: Option<Instant>,
    /// Until when the status says that others break the pool, even if it is whole for the moment.
    troubled_until: Option<Instant>,
    /// The highest generation seen.
    floor: i64,
    salt: u32,
}

/// How many conflicts in a row are resolved at once, before it is waited in between.
const CONFLICTS_AT_ONCE: u32 = 5;
/// How many times a whole pool comes back at once.
const WHOLE_POOLS: usize = 3;

impl PoolTask {
    /// Takes over a new wish for the pool. Returns the problems that are new.
    pub(super) fn accept(
        &mut self,
        scope: &Scope,
        name: &PoolName,
        resources: Option<&Arc<DriverResources>>,
        now: Instant,
    ) -> Vec<Problem> {
        let resources = resources.filter(|resources| resources.pools.contains_key(name));
        let pool = resources.and_then(|resources| resources.pools.get(name));
        let known = self.pool.as_ref().and_then(|resources| resources.pools.get(name));
        let unchanged = known == pool;
        self.due = Some(now);
        // Kept also if nothing has changed, so that only one wish takes memory.
        self.pool = resources.cloned();
        if unchanged && self.status.state != PoolState::Refused {
            return Vec::new();
        }
        let (wish, problems) = pool.map_or((None, Vec::new()), |pool| PoolWish::new(scope, name, pool));
        self.wish = wish;
        self.tolerated.clear();
        self.reported.clear();
        self.status.dropped.clear();
        self.status.published = false;
        self.start_over(now);
        if self.pool.is_none() {
            self.status.state = PoolState::Removing;
        }
        if let Some(fatal) = problems.iter().find(|problem| problem.consequence == Consequence::PoolRefused) {
            self.refuse(PublishError::Invalid(fatal.clone()));
        }
        let old = std::mem::replace(&mut self.status.problems, problems);
        self.status.problems.iter().filter(|problem| !old.contains(problem)).cloned().collect()
    }

    /// Tries again whatever was given up, with full budgets.
    pub(super) fn registered(&mut self, now: Instant) {
        self.vanished.refill();
        self.changed.refill();
        if self.wish.is_some() || self.pool.is_none() {
            self.start_over(now);
        }
    }

    fn start_over(&mut self, now: Instant) {
        self.due = Some(now);
        self.probe = true;
        self.free = true;
        self.held_until = None;
        self.troubled_until = None;
        self.conflicts = 0;
        self.backoff.reset();
        self.status.last_error = None;
        self.status.state = if self.pool.is_some() { PoolState::Pending } else { PoolState::Removing };
    }

    /// Something about the pool has been seen.
    pub(super) fn touch(&mut self, at: Instant) {
        if self.status.state != PoolState::Refused {
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    /// Takes note of the slices that there are.
    pub(super) fn observe<'a>(&mut self, observed: impl Iterator<Item = &'a ObservedSlice>) {
        let generations: Vec<i64> = observed.map(|slice| slice.generation).collect();
        let current = generations.iter().copied().max().unwrap_or(0);
        self.status.generation = current;
        self.status.slices = generations.iter().filter(|generation| **generation == current).count();
        self.floor = self.floor.max(current);
    }

    /// The wish with everything that has been learned.
    pub(super) fn full_wish(&self, owner: Option<OwnerReference>, dropped: &Features) -> Option<PoolWish> {
        let mut wish = self.wish.clone()?;
        wish.owner = owner;
        wish.min_generation = wish.min_generation.max(self.floor);
        wish.dropped.clone_from(dropped);
        wish.tolerated.clone_from(&self.tolerated);
        wish.salt = self.salt;
        Some(wish)
    }

    /// The API server stores this content differently, and no feature explains it.
    pub(super) fn tolerate(&mut self, sent: ContentDigest, stored: ContentDigest) {
        self.tolerated.retain(|(known, _)| *known != sent);
        self.tolerated.push((sent, stored));
    }

    /// Another name has to be found for new slices.
    pub(super) fn next_salt(&mut self) {
        self.salt = self.salt.saturating_add(1);
    }

    /// Whether the plan may be carried out now. If others keep breaking the pool it has to wait; then this tells
    /// why, once.
    ///
    /// # Errors
    /// What to report, if it is to be reported.
    pub(super) fn permit(
        &mut self,
        name: &PoolName,
        plan: &Draft,
        now: Instant,
    ) -> Result<(), Option<Box<PublishError>>> {
        self.gated = false;
        let needed = needed(plan);
        if self.free || self.allowance.covers(needed) {
            self.allowance = if self.free { needed } else { self.allowance };
            self.free = false;
            return Ok(());
        }
        let missing = needed.creates.saturating_sub(self.allowance.creates);
        let paid = if missing > 0 {
            self.vanished.pay(missing, WHOLE_POOLS * plan.slices, now)
        } else {
            self.changed.pay(1, 1, now)
        };
        let Err(next) = paid else {
            self.allowance = needed;
            self.held_until = None;
            return Ok(());
        };
        let pool = name.clone();
        let every = SLOW;
        let error = if missing > 0 {
            PublishError::DeletedByOthers { pool, every }
        } else {
            PublishError::ChangedByOthers { pool, every }
        };
        let news = self.held_until != Some(next);
        self.held_until = Some(next);
        self.troubled_until = Some(next + SLOW);
        self.due = Some(next);
        self.status.state = self.open_state();
        self.status.last_error = Some(error.clone());
        Err(news.then(|| Box::new(error)))
    }

    /// A write of the plan was done.
    pub(super) fn spend(&mut self, write: &Write) {
        let left = match write {
            Write::Create(_) => &mut self.allowance.creates,
            Write::Update(_) | Write::Delete { .. } => &mut self.allowance.changes,
        };
        *left = left.saturating_sub(1);
    }

    /// Nothing is left to write.
    pub(super) fn settle(&mut self, now: Instant) {
        self.gated = false;
        self.troubled_until.take_if(|until| *until <= now);
        self.due = self.troubled_until;
        self.free = false;
        self.allowance = Allowance::default();
        self.conflicts = 0;
        self.backoff.reset();
        self.status.published = true;
        self.status.state = PoolState::Published;
        if self.troubled_until.is_none() {
            self.status.last_error = None;
        }
    }

    /// There is something to write, which is another publisher's to do.
    pub(super) fn stand_by(&mut self) {
        self.gated = false;
        self.due = None;
        self.held_until = None;
        self.troubled_until = None;
        self.status.last_error = None;
        self.status.state = self.open_state();
    }

    /// There are slices to create, which has to wait for the gate.
    pub(super) fn hold(&mut self) {
        self.gated = true;
        self.due = None;
        self.status.state = self.open_state();
    }

    /// A conflict was resolved. Too many of them are a failure.
    pub(super) fn conflict(&mut self) -> bool {
        self.conflicts += 1;
        self.conflicts <= CONFLICTS_AT_ONCE
    }

    /// A request failed: try again later, or not at all.
    pub(super) fn fail(&mut self, error: PublishError, now: Instant) {
        if is_permanent(&error) {
            self.refuse(error);
            return;
        }
        self.due = Some(now + self.backoff.next(error.retry_after()));
        self.status.state = self.open_state();
        self.status.last_error = Some(error);
    }

    fn refuse(&mut self, error: PublishError) {
        self.gated = false;
        self.due = None;
        self.status.state = PoolState::Refused;
        self.status.last_error = Some(error);
    }

    fn open_state(&self) -> PoolState {
        if self.pool.is_some() { PoolState::Pending } else { PoolState::Removing }
    }
}

fn needed(plan: &Draft) -> Allowance {
    let creates = plan.steps.iter().filter(|step| step.is_create()).count();
    Allowance { creates, changes: plan.steps.len() - creates }
}
