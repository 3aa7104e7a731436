//! The objects, and the history of their changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::Managers;
use super::gates::Gates;
use super::kinds::Kind;

/// How many changes are remembered for watches.
const HISTORY: usize = 10_000;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &Kind, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.unwrap_or_default().to_owned();
        Self { group: kind.group, plural: kind.plural, namespace, name: name.to_owned() }
    }

    pub(crate) fn is_of(&self, kind: &Kind) -> bool {
        self.group == kind.group && self.plural == kind.plural
    }
}

/// An object with what the server knows about it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) object: Arc<Value>,
    /// What was applied to the object, and what to its status.
    pub(crate) applied: Managers,
    pub(crate) applied_status: Managers,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// Absent if the object was created.
    pub(crate) before: Option<Arc<Value>>,
    /// Absent if the object was deleted.
    pub(crate) after: Option<Arc<Value>>,
}

/// All objects at one version.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    /// Changes up to this version are forgotten.
    floor: u64,
    objects: BTreeMap<Key, Entry>,
    history: VecDeque<Change>,
    /// What this server is.
    pub(crate) gates: Gates,
}

impl Store {
    pub(crate) fn new(gates: Gates) -> Self {
        // Version 0 has a meaning of its own in requests.
        Self { version: 1, floor: 1, objects: BTreeMap::new(), history: VecDeque::new(), gates }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether a watch or list can continue from this version.
    pub(crate) fn remembers(&self, version: u64) -> bool {
        version >= self.floor
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Entry> {
        self.objects.get(key)
    }

    pub(crate) fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter().filter(|(key, _)| key.is_of(kind)).map(|(key, entry)| (key, &entry.object))
    }

    /// Changes after `version`, oldest first.
    pub(crate) fn changes_after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let start = self.history.partition_point(|change| change.version <= version);
        self.history.range(start..)
    }

    /// Stores an object under the next version.
    pub(crate) fn put(&mut self, key: Key, mut entry: Entry) -> Arc<Value> {
        let version = self.next_version();
        let mut object = Arc::unwrap_or_clone(entry.object);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = Arc::new(object);
        entry.object = Arc::clone(&object);
        let before = self.objects.insert(key.clone(), entry).map(|entry| entry.object);
        self.remember(Change { version, key, before, after: Some(Arc::clone(&object)) });
        object
    }

    /// Removes an object and returns it as it was, with the version of the removal.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let entry = self.objects.remove(key)?;
        let version = self.next_version();
        let mut object = Arc::unwrap_or_clone(entry.object);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = Arc::new(object);
        self.remember(Change { version, key: key.clone(), before: Some(Arc::clone(&object)), after: None });
        Some(object)
    }

    /// Forgets all changes: every version that a client has seen is too old now.
    pub(crate) fn forget_history(&mut self) {
        self.history.clear();
        self.floor = self.next_version();
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(change);
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.floor = oldest.version;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::by_plural;

    fn key(name: &str) -> Key {
        Key::new(by_plural("", "nodes").expect("served"), None, name)
    }

    fn put(store: &mut Store, name: &str) -> u64 {
        let object = Arc::new(json!({"metadata": {"name": name}}));
        store.put(key(name), Entry { object, applied: Managers::new(), applied_status: Managers::new() });
        store.version()
    }

    #[test]
    fn each_change_has_a_version_of_its_own() {
        let mut store = Store::new(Gates::all_on());
        let first = put(&mut store, "a");
        put(&mut store, "b");
        store.remove(&key("a")).expect("there");
        let later: Vec<(u64, bool)> =
            store.changes_after(first).map(|c| (c.version, c.after.is_some())).collect();
        assert_eq!(later, [(first + 1, true), (first + 2, false)]);
    }

    #[test]
    fn forgotten_history_makes_every_known_version_too_old() {
        let mut store = Store::new(Gates::all_on());
        let known = put(&mut store, "a");
        assert!(store.remembers(known));
        store.forget_history();
        assert!(!store.remembers(known));
        assert!(store.remembers(store.version()));
        assert!(store.get(&key("a")).is_some());
    }

    #[test]
    fn history_is_bounded() {
        let mut store = Store::new(Gates::all_on());
        let first = put(&mut store, "a");
        for _ in 0..HISTORY {
            put(&mut store, "a");
        }
        assert!(!store.remembers(first - 1));
        assert_eq!(store.changes_after(first).count(), HISTORY);
    }
}
