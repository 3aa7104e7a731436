//! What has been told of fields that the API server drops: once for each pool, and not for each change of it.

use std::collections::BTreeMap;

use dra_resourceslice::{Feature, PoolName, PublishError};

/// The features that were told last, by pool.
#[derive(Debug, Default)]
pub(super) struct Dropped(BTreeMap<PoolName, Vec<Feature>>);

impl Dropped {
    /// Whether the error is worth telling.
    pub(super) fn is_news(&mut self, error: &PublishError) -> bool {
        match error {
            PublishError::DroppedFields { pool, features, .. } => self.is_new(pool, features),
            _ => true,
        }
    }

    fn is_new(&mut self, pool: &PoolName, features: &[Feature]) -> bool {
        let told = self.0.entry(pool.clone()).or_default();
        let is_new = told.as_slice() != features;
        features.clone_into(told);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_dropped_are_told_once_for_each_pool() {
        let mut dropped = Dropped::default();
        let [one, two] = ["one", "two"].map(|name| name.parse().unwrap());
        let taints = [Feature::DeviceTaints];
        let both = [Feature::DeviceTaints, Feature::ConsumableCapacity];
        let told = [(&one, &taints[..]), (&one, &taints), (&two, &taints), (&one, &both), (&one, &both)];
        let told = told.map(|(pool, features)| dropped.is_new(pool, features));
        assert_eq!(told, [true, false, true, true, false]);
    }
}
