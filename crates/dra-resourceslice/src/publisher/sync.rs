//! Bringing one pool up to date: plan, write, plan again, until nothing is left.

use k8s_openapi::api::resource::v1::ResourceSlice;
use tokio::time::Instant;

use super::{owner::Lookup, pool_task::PoolTask, task::Task};
use crate::{
    PoolName, PublishError, Write,
    observed::ObservedSlice,
    plan::{Draft, Step, draft, plan_removal},
};

/// A pool is planned again this often in a row at most; each round either writes or learns something.
const MOST_ROUNDS: usize = 16;

/// Whether there may be more to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Round {
    Again,
    Done,
}

impl Task {
    /// Brings all pools up to date that are due.
    pub(super) async fn sync_due(&mut self) {
        if !self.cache.is_listed() || self.wish == 0 || !self.lists_before_plans().await {
            return;
        }
        self.find_unwished();
        let now = Instant::now();
        let due = self.pools.iter().filter(|(_, pool)| pool.due.is_some_and(|due| due <= now));
        for name in due.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            // Taken out while it is worked on, so that the rest can be used at the same time.
            let Some(mut pool) = self.pools.remove(&name) else { continue };
            self.sync_pool(&name, &mut pool).await;
            self.pools.insert(name, pool);
            self.tell();
            if self.interrupted() {
                return;
            }
        }
    }

    /// Pools that have slices but are not wished for are to be deleted.
    fn find_unwished(&mut self) {
        for name in self.cache.pools() {
            let Ok(name) = PoolName::new(name) else { continue };
            let scope = self.api.scope();
            let pool = self.pools.entry(name.clone()).or_insert_with(|| {
                let mut pool = PoolTask::default();
                pool.accept(scope, &name, None, Instant::now());
                pool.registered(Instant::now());
                pool
            });
            if pool.pool.is_none() && pool.due.is_none() && pool.status.published {
                pool.status.published = false;
                pool.touch(Instant::now());
            }
        }
    }

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
        if pool.pool.is_none() {
            return self.remove(name, pool).await;
        }
        if pool.wish.is_none() {
            pool.due = None;
            return Round::Done;
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
        let Some(wish) = pool.full_wish(self.owner.reference(&self.api), &self.dropped) else {
            return Round::Done;
        };
        if std::mem::take(&mut pool.probe) && self.probe(name, pool, &wish).await {
            return Round::Again;
        }
        let plan = draft(wish, self.cache.pool(name.as_str()));
        if plan.steps.is_empty() {
            pool.settle(Instant::now());
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
            pool.settle(Instant::now());
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

    async fn carry_out(&mut self, name: &PoolName, pool: &mut PoolTask, plan: Draft) -> Round {
        if self.gate_in_force.is_standby() {
            pool.stand_by();
            return Round::Done;
        }
        let creates = plan.steps.iter().any(Step::is_create);
        if creates && !self.gate_in_force.is_open() {
            self.waiting.get_or_insert_with(Instant::now);
            pool.hold();
            return Round::Done;
        }
        if let Err(error) = pool.permit(name, &plan, Instant::now()) {
            if let Some(error) = error {
                self.report(&error);
            }
            return Round::Done;
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

    fn written(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        write: &Write,
        stored: Option<ResourceSlice>,
    ) {
        tracing::debug!(pool = %name, slice = write.name(), "wrote a slice");
        pool.spend(write);
        match (write, stored) {
            (Write::Create(sent) | Write::Update(sent), Some(stored)) => {
                self.learn(name, pool, sent, &stored);
                self.cache.insert(ObservedSlice::of(stored));
            }
            (Write::Delete { name, uid, .. }, _) => {
                self.cache.remove(name, uid.as_deref());
            }
            (Write::Create(_) | Write::Update(_), None) => {}
        }
    }

    async fn failed(
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
            && self.explain(name, pool, slice, &error).await
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
            let uid = match write {
                Write::Update(slice) => slice.metadata.uid.as_deref(),
                Write::Delete { uid, .. } => uid.as_deref(),
                Write::Create(_) => None,
            };
            self.cache.remove(write.name(), uid);
            return Ok(());
        };
        let ours = self.api.scope().contains(&slice) && slice.spec.pool.name == name.as_str();
        if matches!(write, Write::Create(_)) && !ours {
            pool.next_salt();
            self.report(&PublishError::NameTaken { pool: name.clone(), name: write.name().to_owned() });
        }
        self.cache.insert(ObservedSlice::of(slice));
        Ok(())
    }
}
