//! Bringing one pool up to date: plan, write, plan again, until nothing is left.

use k8s_openapi::api::resource::v1::ResourceSlice;
use tokio::time::Instant;

use super::{owner::Lookup, pool_task::PoolTask, task::Task};
use crate::{
    PoolName, PublishError, Write,
    features::Features,
    observed::ObservedSlice,
    plan::{Draft, Step, draft, plan_removal},
};

/// A pool is planned again this often in a row at most; each round either writes or learns something.
const MOST_ROUNDS: usize = 16;

/// Whether there may be more to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Round {
    Again,
    Done,
}

impl Task {
    /// Brings all pools up to date that are due.
    pub(super) async fn sync_due(&mut self) {
        if !self.cache.is_listed() || self.wish == 0 || !self.lists_before_plans().await {
            return;
        }
        let now = Instant::now();
        let due = self.pools.iter().filter(|(_, pool)| pool.due().is_some_and(|due| due <= now));
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            // Taken out while it is worked on, so that the rest can be used at the same time.
            let Some(mut pool) = self.pools.remove(&name) else { continue };
            self.sync_pool(&name, &mut pool).await;
            self.pools.insert(name.clone(), pool);
            self.tell_of(&name);
            if self.interrupted() || self.wishes.has_changed().unwrap_or(false) {
                return;
            }
        }
    }

    /// Pools that have slices but are not wished for are to be deleted.
    pub(super) fn find_unwished(&mut self) {
        let names: Vec<_> = self.cache.pools().filter_map(|name| PoolName::new(name).ok()).collect();
        for name in names {
            self.seen(name, Instant::now());
        }
    }

    /// A slice of this pool was seen.
    pub(super) fn seen(&mut self, name: PoolName, at: Instant) {
        if let Some(pool) = self.pools.get_mut(&name) {
            pool.seen(at);
        } else if self.wish > 0 {
            let mut pool = PoolTask::new();
            pool.accept(self.api.scope(), &name, None, at);
            self.pools.insert(name, pool);
        }
    }

    /// Each pool goes on to its end, but for the gate: a desired state that changes all the time would never be
    /// published.
    async fn sync_pool(&mut self, name: &PoolName, pool: &mut PoolTask) {
        let mut listed = false;
        for _ in 0..MOST_ROUNDS {
            if self.round(name, pool, &mut listed).await == Round::Done {
                return;
            }
            if self.interrupted() {
                break;
            }
        }
        pool.touch(Instant::now());
    }

    async fn round(&mut self, name: &PoolName, pool: &mut PoolTask, listed: &mut bool) -> Round {
        pool.observe(self.cache.pool(name.as_str()));
        pool.gated = false;
        if pool.pool.is_none() {
            return self.remove(name, pool).await;
        }
        match self.owner.look_up(&self.api).await {
            Lookup::Known => {}
            Lookup::Refused(error) => error.iter().for_each(|error| self.report(error)),
            Lookup::Failed(error) => {
                self.report(&error);
                pool.fail(error, Instant::now());
                return Round::Done;
            }
        }
        let dropped = self.learned.dropped();
        let Some(wish) = pool.full_wish(self.owner.reference(&self.api), &dropped) else {
            pool.rest();
            return Round::Done;
        };
        let plan = draft(wish, self.cache.pool(name.as_str()));
        if plan.steps.is_empty() {
            if let Some(error) = pool.settle(name, plan.reduced, &dropped, Instant::now()) {
                self.report(&error);
            }
            return Round::Done;
        }
        if plan.needs_fresh_list && !self.gate_in_force.is_standby() && !std::mem::replace(listed, true) {
            return self.list_again(pool).await;
        }
        self.carry_out(name, pool, plan).await
    }

    /// Deletes a pool that is not wished for.
    async fn remove(&mut self, name: &PoolName, pool: &mut PoolTask) -> Round {
        let steps = plan_removal(self.cache.pool(name.as_str()));
        if steps.is_empty() {
            pool.settle(name, Features::new(), &Features::new(), Instant::now());
            return Round::Done;
        }
        let generation = pool.status.generation;
        self.carry_out(name, pool, Draft { generation, ..Draft::of(steps) }).await
    }

    async fn list_again(&mut self, pool: &mut PoolTask) -> Round {
        match self.list().await {
            Ok(()) => Round::Again,
            Err(error) => {
                self.report(&error);
                pool.fail(error, Instant::now());
                Round::Done
            }
        }
    }

    async fn carry_out(&mut self, name: &PoolName, pool: &mut PoolTask, mut plan: Draft) -> Round {
        if self.gate_in_force.is_standby() {
            pool.stand_by();
            return Round::Done;
        }
        let creates = plan.steps.iter().any(Step::is_create);
        let gated = creates && !self.gate_in_force.is_open();
        let orphaned = creates && self.owner.is_missing();
        if gated || orphaned {
            // No slice says how many there are of those that are left: without the new ones the pool is not whole.
            plan.steps.retain(|step| !step.is_create());
        }
        if gated {
            self.waiting.get_or_insert_with(Instant::now);
            pool.hold();
        }
        if plan.steps.is_empty() {
            if gated {
                pool.rest();
            } else {
                self.no_node(pool);
            }
            return Round::Done;
        }
        let permit = pool.permit(name, creates, Instant::now());
        permit.news.iter().for_each(|error| self.report(error));
        if !permit.goes {
            return Round::Done;
        }
        if let Some(round) = self.preflight(name, pool, &plan).await {
            return round;
        }
        for step in plan.steps {
            if self.interrupted() {
                return Round::Again;
            }
            let write = step.write();
            let done = match &write {
                Write::Create(slice) => self.api.create(slice).await.map(Some),
                Write::Update(slice) => self.api.update(slice).await.map(Some),
                Write::Delete { name, uid, resource_version } => {
                    self.api.delete(name, uid.clone(), resource_version.clone()).await.map(|()| None)
                }
            };
            self.writes.count(&write, done.is_ok());
            match done {
                Ok(stored) => self.written(name, pool, &write, stored),
                Err(error) => return self.failed(name, pool, &write, error).await,
            }
        }
        Round::Again
    }

    fn no_node(&self, pool: &mut PoolTask) {
        let Some(node) = self.api.scope().node_name().cloned() else { return };
        let error = PublishError::NoNode { node };
        if !matches!(pool.status.last_error, Some(PublishError::NoNode { .. })) {
            self.report(&error);
        }
        pool.fail(error, Instant::now());
    }

    fn written(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        write: &Write,
        stored: Option<ResourceSlice>,
    ) {
        tracing::debug!(pool = %name, slice = write.name(), "wrote a slice");
        match (write, stored.map(ObservedSlice::of)) {
            (Write::Create(sent) | Write::Update(sent), Some(stored)) => {
                let before = self.cache.get(write.name()).map(|slice| slice.features.clone());
                self.learn(name, pool, sent, &before.unwrap_or_default(), &stored);
                self.cache.wrote(stored, self.api.written());
            }
            (Write::Delete { name, uid, .. }, _) => {
                self.cache.remove(name, uid.as_deref(), self.api.written());
            }
            (Write::Create(_) | Write::Update(_), None) => {}
        }
    }

    pub(super) async fn failed(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        write: &Write,
        error: PublishError,
    ) -> Round {
        let outdated = matches!(error.http_status(), Some(409))
            || (error.http_status() == Some(404) && matches!(write, Write::Update(_)));
        let error = if outdated && pool.conflict() {
            match self.look_again(name, pool, write).await {
                Ok(()) => return Round::Again,
                Err(error) => error,
            }
        } else {
            error
        };
        if let Write::Create(slice) | Write::Update(slice) = write
            && self.explain(slice, &error).await
        {
            return Round::Again;
        }
        self.report(&error);
        pool.fail(error, Instant::now());
        Round::Done
    }

    /// Reads the slice that stood in the way, or is not what it was.
    async fn look_again(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        write: &Write,
    ) -> Result<(), PublishError> {
        let found = self.api.get(write.name()).await?;
        let Some(slice) = found else {
            self.cache.read(write.name(), None);
            return Ok(());
        };
        let ours = self.api.scope().contains(&slice) && slice.spec.pool.name == name.as_str();
        if matches!(write, Write::Create(_)) && !ours {
            pool.next_salt();
            self.report(&PublishError::NameTaken { pool: name.clone(), name: write.name().to_owned() });
        }
        self.cache.read(write.name(), Some(ObservedSlice::of(slice)));
        Ok(())
    }
}
