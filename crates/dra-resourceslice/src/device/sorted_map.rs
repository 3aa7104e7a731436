//! A map for the few entries that a device has of each kind.

/// Entries in the order of their keys, in one block of memory that is no larger than they are. A `BTreeMap` has room for
/// eleven of them at least, which makes kilobytes for each device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K: Ord, V> SortedMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an entry, or replaces the one with this key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.0.retain(|(known, _)| known != key);
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let place = self.0.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_a_tree_has(changes in prop::collection::vec((0_u8..20, any::<u8>(), any::<bool>()), 0..60)) {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for (key, value, inserted) in changes {
                if inserted {
                    map.insert(key, value);
                    tree.insert(key, value);
                } else {
                    map.remove(&key);
                    tree.remove(&key);
                }
            }
            prop_assert!(map.iter().eq(&tree));
            prop_assert!(map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
            prop_assert_eq!(map.len(), tree.len());
            for key in 0..20 {
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.contains_key(&key), tree.contains_key(&key));
            }
        }
    }
}
