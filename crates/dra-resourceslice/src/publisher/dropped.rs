//! What the API server does not store because feature gates are off.

use k8s_openapi::api::resource::v1::ResourceSlice;

use super::{pool_task::PoolTask, task::Task};
use crate::{
    Feature, PoolName, PoolWish, PublishError,
    equal::ContentDigest,
    features::{self, Features},
    plan::{Step, draft},
};

impl Task {
    /// Finds out which fields the API server drops, if that decides whether there is anything to write: a dry run
    /// of one write costs less than writing all slices only to see them unchanged. Returns whether it has learned
    /// something.
    pub(super) async fn probe(&mut self, name: &PoolName, pool: &mut PoolTask, wish: &PoolWish) -> bool {
        let steps = |dropped: Features| {
            let wish = PoolWish { dropped, tolerated: Vec::new(), ..wish.clone() };
            draft(wish, self.cache.pool(name.as_str())).steps
        };
        let slices = steps(Features::new()).into_iter().filter_map(|step| match step {
            // A slice whose name has no index would be made anew.
            Step::Create(slice) | Step::Update(slice) => Some((features::used(&slice.slice().spec), slice)),
            Step::Delete { .. } => None,
        });
        let slices: Vec<_> = slices.filter(|(used, _)| !used.is_empty()).collect();
        if slices.is_empty() {
            return false;
        }
        let stored =
            self.cache.pool(name.as_str()).flat_map(|slice| slice.features.iter().copied()).collect();
        let mut missing = &Features::from(Feature::GATED) - &stored;
        if !steps(missing.clone()).is_empty() {
            return false;
        }
        let mut learned = false;
        for (used, slice) in slices {
            // One slice with a feature tells for all of them.
            if !used.is_disjoint(&missing) {
                missing = &missing - &used;
                learned |= self.probe_with(name, pool, &slice.slice(), &used).await;
            }
        }
        learned
    }

    /// Learns from a dry run of one slice. Returns whether there was an answer to learn from.
    async fn probe_with(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        slice: &ResourceSlice,
        used: &Features,
    ) -> bool {
        match self.api.dry_run(slice).await {
            Ok(stored) => {
                self.dropped.retain(|feature| !used.contains(feature));
                self.learn(name, pool, slice, &stored);
                true
            }
            Err(error) => self.explain(name, pool, slice, &error).await,
        }
    }

    /// Compares what was stored with what was sent.
    pub(super) fn learn(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        sent: &ResourceSlice,
        stored: &ResourceSlice,
    ) {
        let features = features::dropped(&sent.spec, &stored.spec);
        if features.is_empty() {
            return;
        }
        if features.contains(&Feature::Unknown) {
            pool.tolerate(ContentDigest::of(sent.spec.clone()), ContentDigest::of(stored.spec.clone()));
        }
        self.lost(name, pool, features);
    }

    /// Takes note of what the API server drops, and tells it once for each wish.
    fn lost(&mut self, name: &PoolName, pool: &mut PoolTask, mut features: Features) {
        let news = !features.is_subset(&pool.reported);
        pool.reported.extend(features.iter().copied());
        pool.status.dropped = pool.reported.iter().copied().collect();
        if news {
            let features = pool.status.dropped.clone();
            self.report(&PublishError::DroppedFields { pool: name.clone(), features });
        }
        features.remove(&Feature::Unknown);
        self.dropped.extend(features);
    }

    /// An API server without list attributes refuses them: what it drops leaves them without a value. Finds out
    /// whether that is why it has refused a slice; then the attributes are left out from now on. Returns whether it
    /// has learned something.
    pub(super) async fn explain(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        refused: &ResourceSlice,
        error: &PublishError,
    ) -> bool {
        let lists = Features::from([Feature::ListTypeAttributes]);
        if error.http_status() != Some(422) || features::used(&refused.spec).is_disjoint(&lists) {
            return false;
        }
        let spec = features::without(refused.spec.clone(), &lists);
        let reduced = ResourceSlice { metadata: refused.metadata.clone(), spec };
        let Ok(stored) = self.api.dry_run(&reduced).await else { return false };
        let dropped = features::dropped(&reduced.spec, &stored.spec);
        self.lost(name, pool, &dropped | &lists);
        true
    }
}
