//! A value for each key, made when somebody first wants it and dropped when nobody does any more.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    ops::Deref,
    sync::{Arc, Mutex},
};

use crate::mutex::locked;

/// Each value with the number of those who are interested.
type Table<K, V> = Arc<Mutex<HashMap<K, (Arc<V>, usize)>>>;

/// The values that are wanted.
pub(crate) struct Keyed<K: Eq + Hash, V> {
    table: Table<K, V>,
}

/// Interest in the value of a key.
pub(crate) struct Interest<K: Eq + Hash, V> {
    key: K,
    value: Arc<V>,
    table: Table<K, V>,
}

impl<K: Eq + Hash + Clone, V: Default> Keyed<K, V> {
    /// Joins those who are interested in `key`.
    pub(crate) fn get(&self, key: &K) -> Interest<K, V> {
        let mut table = locked(&self.table);
        let (value, interested) = table.entry(key.clone()).or_default();
        *interested += 1;
        Interest { key: key.clone(), value: Arc::clone(value), table: Arc::clone(&self.table) }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        locked(&self.table).len()
    }
}

impl<K: Eq + Hash, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self { table: Arc::default() }
    }
}

impl<K: Eq + Hash, V> Deref for Interest<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<K: Eq + Hash, V> Drop for Interest<K, V> {
    fn drop(&mut self) {
        let mut table = locked(&self.table);
        if let Some((_, interested)) = table.get_mut(&self.key) {
            *interested -= 1;
            if *interested == 0 {
                table.remove(&self.key);
            }
        }
    }
}

impl<K: Eq + Hash + fmt::Debug, V> fmt::Debug for Interest<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interest").field(&self.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shared_while_wanted_and_vanish_with_the_last_interest() {
        let keyed = Keyed::<u8, Mutex<u8>>::default();
        let (one, two) = (keyed.get(&1), keyed.get(&1));
        *locked(&one) = 7;
        drop(one);
        assert_eq!((keyed.len(), *locked(&two)), (1, 7));
        drop(two);
        assert_eq!((keyed.len(), *locked(&keyed.get(&1))), (0, 0));
    }
}
