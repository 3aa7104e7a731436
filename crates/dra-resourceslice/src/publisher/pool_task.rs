//! What the publisher keeps in mind about one pool.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::time::Instant;

use super::{
    PoolState, PoolStatus,
    bucket::{Bucket, CHANGE, REPAIR},
    retry::Retry,
};
use crate::{
    Consequence, DriverResources, ErrorClass, PoolName, PoolWish, Problem, PublishError, Scope,
    equal::ContentDigest, features::Features, observed::ObservedSlice,
};

/// One pool: wished for, or still to be deleted.
#[derive(Debug)]
pub(super) struct PoolTask {
    /// The wish that names the pool; `None` if there is none.
    pub(super) pool: Option<Arc<DriverResources>>,
    /// What of it can be published; `None` if it is refused or not wished for.
    pub(super) wish: Option<PoolWish>,
    /// When there is something to look at; `None` if there is not.
    due: Option<Instant>,
    retry: Retry,
    /// Whether there are slices to create, which has to wait for the gate.
    pub(super) gated: bool,
    pub(super) status: PoolStatus,
    /// What breaks a rule of the API.
    problems: Vec<Problem>,
    /// The features of this wish that were reported as dropped.
    reported: Features,
    /// Contents that the API server stores differently in a way that no feature explains.
    tolerated: Vec<(ContentDigest, ContentDigest)>,
    /// Whether that was reported.
    told_tolerated: bool,
    conflicts: u32,
    bucket: Bucket,
    /// What the next plan costs; nothing while one that was paid for goes on.
    price: Duration,
    /// The highest generation seen.
    floor: i64,
    salt: u32,
}

/// Whether a plan may be carried out now, and what to report of it.
#[derive(Debug)]
pub(super) struct Permit {
    pub(super) goes: bool,
    pub(super) news: Option<PublishError>,
}

/// How many conflicts in a row are resolved at once, before it is waited in between.
const CONFLICTS_AT_ONCE: u32 = 5;
impl PoolTask {
    /// A pool that is still to be looked at.
    pub(super) fn new() -> Self {
        Self {
            pool: None,
            wish: None,
            due: None,
            retry: Retry::default(),
            gated: false,
            status: PoolStatus::default(),
            problems: Vec::new(),
            reported: Features::new(),
            tolerated: Vec::new(),
            told_tolerated: false,
            conflicts: 0,
            bucket: Bucket::default(),
            price: CHANGE,
            floor: 0,
            salt: 0,
        }
    }

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
        let unchanged = self.pool.as_ref().and_then(|resources| resources.pools.get(name)) == pool;
        self.due = Some(now);
        // Kept also if nothing has changed, so that only one wish takes memory.
        self.pool = resources.cloned();
        if unchanged && (pool.is_some() || self.status.published || self.status.state == PoolState::Removing)
        {
            return Vec::new();
        }
        let (wish, problems) = pool.map_or((None, Vec::new()), |pool| PoolWish::new(scope, name, pool));
        self.wish = wish;
        self.tolerated.clear();
        self.told_tolerated = false;
        self.reported.clear();
        self.status.dropped.clear();
        self.status.published = false;
        self.price = CHANGE;
        self.start_over();
        if let Some(fatal) = problems.iter().find(|problem| problem.consequence == Consequence::PoolRefused) {
            self.due = None;
            self.show(PublishError::Invalid(fatal.clone()));
        }
        self.status.problems.clone_from(&problems);
        let old = std::mem::replace(&mut self.problems, problems);
        self.problems.iter().filter(|problem| !old.contains(problem)).cloned().collect()
    }

    /// The kubelet has registered the driver: the next plan costs nothing.
    pub(super) fn registered(&mut self, now: Instant) {
        self.bucket.refill();
        if self.wish.is_some() || self.pool.is_none() {
            self.price = Duration::ZERO;
            self.due = Some(now);
            self.start_over();
        }
    }

    /// What is to be written is another content than the one before. An API server that asks for time gets it.
    fn start_over(&mut self) {
        self.conflicts = 0;
        self.retry.content_changed();
        if self.retry.not_before().is_none() {
            self.status.last_error = None;
        }
        self.status.state = self.open_state();
    }

    /// The API server may do something else with what it is sent.
    pub(super) fn doubt(&mut self, now: Instant) {
        if self.tolerated.is_empty() && self.status.dropped.is_empty() {
            return;
        }
        self.tolerated.clear();
        // Others have changed nothing.
        self.price = self.price.min(CHANGE);
        self.touch(now);
    }

    /// Something about the pool has been seen.
    pub(super) fn touch(&mut self, at: Instant) {
        if self.wish.is_some() || self.pool.is_none() {
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    /// A slice of the pool has appeared, changed or gone.
    pub(super) fn seen(&mut self, at: Instant) {
        // One of a pool that is not desired has to go.
        self.status.published &= self.pool.is_some();
        self.touch(at);
    }

    /// Whether the status has it: all but those that are not desired and are gone.
    pub(super) fn is_shown(&self) -> bool {
        self.pool.is_some() || !self.status.published
    }

    /// When to look at it next; `None` if there is nothing to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let not_before = self.retry.not_before();
        self.due.map(|due| not_before.map_or(due, |not_before| due.max(not_before)))
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

    /// The API server stores this content differently, and no feature explains it. Returns whether to report that.
    pub(super) fn tolerate(&mut self, sent: ContentDigest, stored: ContentDigest) -> bool {
        self.tolerated.retain(|(known, _)| *known != sent);
        self.tolerated.push((sent, stored));
        !std::mem::replace(&mut self.told_tolerated, true)
    }

    /// Another name has to be found for new slices.
    pub(super) fn next_salt(&mut self) {
        self.salt = self.salt.saturating_add(1);
    }

    /// Whether the plan may be carried out now; if not, it waits until the bucket has enough. What others break again and
    /// again is reported, whether it waits or not.
    pub(super) fn permit(&mut self, name: &PoolName, creates: bool, now: Instant) -> Permit {
        let is_repair = self.price >= REPAIR;
        let paid = self.bucket.pay(self.price, now);
        let by_others = || {
            let (pool, every) = (name.clone(), REPAIR);
            if creates {
                PublishError::DeletedByOthers { pool, every }
            } else {
                PublishError::ChangedByOthers { pool, every }
            }
        };
        match paid {
            Ok(()) => {
                self.price = Duration::ZERO;
                // Else it was reported when it had to wait.
                let is_news = is_repair
                    && self.bucket.is_repeated()
                    && !self.status.last_error.as_ref().is_some_and(PublishError::is_by_others);
                Permit { goes: true, news: is_news.then(by_others) }
            }
            Err(next) => {
                self.retry.hold_content(next);
                self.status.state = self.open_state();
                let news = is_repair.then(by_others);
                if news.is_some() {
                    self.status.last_error.clone_from(&news);
                }
                Permit { goes: false, news }
            }
        }
    }

    /// Nothing is left to write, and the API has what is desired but for the fields of some features. Returns what to report.
    pub(super) fn settle(
        &mut self,
        name: &PoolName,
        mut reduced: Features,
        dropped: &Features,
        now: Instant,
    ) -> Option<PublishError> {
        self.conflicts = 0;
        self.retry.succeeded();
        self.gated = false;
        self.price = REPAIR;
        self.status.published = true;
        self.status.state = PoolState::Published;
        // As long as another repair would have to wait, others may still be at it.
        let by_others = self.status.last_error.as_ref().is_some_and(PublishError::is_by_others);
        self.due = self.bucket.repair_at(now).filter(|_| by_others);
        if self.due.is_none() {
            self.status.last_error = None;
        }
        let wish = self.wish.as_ref().filter(|_| !dropped.is_empty());
        let left_out = wish.map(|wish| PoolWish { dropped: dropped.clone(), ..wish.clone() }.left_out());
        let left_out = left_out.unwrap_or_default();
        reduced.extend(left_out.iter().map(|(_, feature)| *feature));
        let problems = left_out.iter().map(|(device, feature)| Problem::gate_off(name, device, *feature));
        self.status.problems = self.problems.iter().cloned().chain(problems).collect();
        self.status.dropped = reduced.iter().copied().collect();
        let news = !reduced.is_subset(&self.reported);
        self.reported = reduced;
        let (pool, features) = (name.clone(), self.status.dropped.clone());
        let left_out = left_out.into_iter().map(|(device, _)| device).collect();
        news.then(|| PublishError::DroppedFields { pool, features, left_out })
    }

    /// There is something to write, which is another publisher's to do.
    pub(super) fn stand_by(&mut self) {
        self.gated = false;
        self.due = None;
        self.status.last_error = None;
        self.status.state = self.open_state();
    }

    /// There are slices to create, which has to wait for the gate.
    pub(super) fn hold(&mut self) {
        self.gated = true;
        self.status.state = self.open_state();
    }

    /// There is nothing to do before something happens.
    pub(super) fn rest(&mut self) {
        self.due = None;
    }

    /// A conflict was resolved. Too many of them are a failure.
    pub(super) fn conflict(&mut self) -> bool {
        self.conflicts += 1;
        self.conflicts <= CONFLICTS_AT_ONCE
    }

    /// A request failed: it is tried again later.
    pub(super) fn fail(&mut self, error: PublishError, now: Instant) {
        self.due = Some(self.retry.failed(&error, now));
        self.show(error);
    }

    fn show(&mut self, error: PublishError) {
        let refused =
            matches!(error.class(), ErrorClass::Refused | ErrorClass::Reduced) && self.pool.is_some();
        self.status.state = if refused { PoolState::Refused } else { self.open_state() };
        self.status.last_error = Some(error);
    }

    fn open_state(&self) -> PoolState {
        if self.pool.is_some() { PoolState::Pending } else { PoolState::Removing }
    }
}
