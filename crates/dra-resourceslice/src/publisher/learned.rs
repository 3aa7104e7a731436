//! What the API server does with what it is sent, learned from its answers.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::ResourceSlice;
use tokio::time::Instant;

use super::{pool_task::PoolTask, task::Task};
use crate::{
    Feature, PoolName, PublishError,
    equal::ContentDigest,
    features::{self, Features},
    observed::ObservedSlice,
};

/// Whether the API server stores the fields of a feature, as far as that is known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Learned(BTreeMap<Feature, bool>);

impl Learned {
    /// What it drops.
    pub(super) fn dropped(&self) -> Features {
        self.0.iter().filter(|(_, stored)| !**stored).map(|(feature, _)| *feature).collect()
    }

    pub(super) fn is_known(&self, feature: Feature) -> bool {
        self.0.contains_key(&feature)
    }

    /// Takes note of an answer. An API server keeps the fields of a gate that is off if the slice has had them
    /// `before`, so that they are there says nothing then.
    pub(super) fn note(&mut self, sent: &Features, before: &Features, stored: &Features) {
        let mut dropped = sent - stored;
        if dropped.contains(&Feature::PartitionableDevices) {
            // Groups go with the counters that have them.
            dropped.remove(&Feature::DeviceCompatibilityGroups);
        }
        self.0.extend(dropped.into_iter().map(|feature| (feature, false)));
        let kept = sent.intersection(stored).filter(|feature| !before.contains(*feature));
        self.0.extend(kept.map(|feature| (*feature, true)));
    }
}

impl Task {
    /// The API server may be another one, with other gates: all that was learned is to be learned again, from the
    /// next write.
    pub(super) fn doubt(&mut self) {
        self.learned = Learned::default();
        let now = Instant::now();
        self.pools.values_mut().for_each(|pool| pool.doubt(now));
    }

    /// Learns from what was stored, or would be, in place of what was `before`. Returns whether a plan becomes another
    /// one by that.
    pub(super) fn learn(
        &mut self,
        name: &PoolName,
        pool: &mut PoolTask,
        sent: &ResourceSlice,
        before: &Features,
        stored: &ObservedSlice,
    ) -> bool {
        let known = self.learned.dropped();
        let mut spec = sent.spec.clone();
        spec.devices.iter_mut().flatten().for_each(|device| stored.taint_times.adopt(device));
        let digest = ContentDigest::of(spec.clone());
        if digest == stored.content {
            self.learned.note(&stored.features, before, &stored.features);
            return self.learned.dropped() != known;
        }
        let used = features::used(&spec);
        self.learned.note(&used, before, &stored.features);
        let altered =
            ContentDigest::of(features::without(spec, &(&used - &stored.features))) != stored.content;
        if altered && pool.tolerate(digest, stored.content) {
            let (pool, slice) = (name.clone(), stored.name().to_owned());
            self.report(&PublishError::StoredDifferently { pool, slice });
        }
        let is_there = self.cache.get(stored.name()).is_some_and(|found| found.content == stored.content);
        altered && is_there || self.learned.dropped() != known
    }

    /// An API server whose gate is off refuses some contents: what it drops of list attributes leaves them without a value,
    /// and fractions become equal once they are rounded. Finds out whether that is why it has refused a slice; then they
    /// are left out from now on. Returns whether it has learned something.
    pub(super) async fn explain(&mut self, refused: &ResourceSlice, error: &PublishError) -> bool {
        let used = &features::used(&refused.spec) & &Features::from(Feature::REFUSED);
        if error.http_status() != Some(422) || used.is_empty() {
            return false;
        }
        let each = used.iter().map(|feature| Features::from([*feature]));
        for suspects in each.chain((used.len() > 1).then(|| used.clone())).collect::<Vec<_>>() {
            let spec = features::without(refused.spec.clone(), &suspects);
            let reduced = ResourceSlice { metadata: refused.metadata.clone(), spec };
            if self.api.dry_run(&reduced).await.is_ok() {
                self.learned.note(&suspects, &Features::new(), &Features::new());
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_known_by_the_last_answer_that_says_something() {
        let (taints, counters) = (Feature::DeviceTaints, Feature::PartitionableDevices);
        let mut learned = Learned::default();
        let both = Features::from([taints, counters]);
        let none = Features::new();
        learned.note(&both, &none, &Features::from([counters]));
        assert_eq!(learned.dropped(), Features::from([taints]));
        assert!(learned.is_known(counters));
        learned.note(&both, &both, &both);
        assert_eq!(learned.dropped(), Features::from([taints]), "kept because it was there");
        learned.note(&both, &none, &both);
        assert_eq!(learned.dropped(), none);
        learned.note(&both, &both, &Features::from([taints]));
        assert_eq!(learned.dropped(), Features::from([counters]));
    }
}
