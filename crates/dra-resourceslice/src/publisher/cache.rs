//! The slices of the scope as last seen.
//!
//! There are three sources. A list or a read that began after our last write shows the truth, whatever versions it
//! has: after a restore of etcd they go back. The answer to our own write is newer than a list that began before it.
//! And a watch may be late, so its events count if they are newer than what is known.

use std::collections::{BTreeMap, VecDeque};

use super::api::Listed;
use crate::{Scope, observed::ObservedSlice};

/// The slices by pool and name.
#[derive(Debug)]
pub(super) struct Cache {
    scope: Scope,
    pools: BTreeMap<String, BTreeMap<String, Known>>,
    /// The pool of each slice.
    names: BTreeMap<String, String>,
    /// UIDs of the slices deleted last, so that a late event does not bring one back, and the number of our write.
    deleted: VecDeque<(String, u64)>,
    /// The version of the last list.
    listed: Option<String>,
}

#[derive(Debug)]
struct Known {
    slice: ObservedSlice,
    /// The number of our write that has made it so; 0 if it was read.
    written: u64,
}

/// How many deleted slices are remembered: more than there can be late events.
const REMEMBERED: usize = 1024;

impl Cache {
    pub(super) fn new(scope: Scope) -> Self {
        let (pools, names, deleted) = Default::default();
        Self { scope, pools, names, deleted, listed: None }
    }

    /// Whether there has been a list. Before that, a slice that is not here may still exist.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    /// The slices of a pool.
    pub(super) fn pool(&self, pool: &str) -> impl Iterator<Item = &ObservedSlice> {
        self.pools.get(pool).into_iter().flat_map(BTreeMap::values).map(|known| &known.slice)
    }

    /// The slice of this name.
    pub(super) fn get(&self, name: &str) -> Option<&ObservedSlice> {
        self.known(name).map(|known| &known.slice)
    }

    /// The names of all pools that have slices.
    pub(super) fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }

    /// Takes over a list, but for what we have written since it began.
    pub(super) fn replace(&mut self, list: Listed) {
        let newer = |written: u64| written > list.began;
        let keep = std::mem::take(&mut self.pools).into_values().flatten();
        let keep: Vec<_> = keep.filter(|(_, known)| newer(known.written)).collect();
        self.names.clear();
        for (name, known) in keep {
            self.put(name, known);
        }
        for slice in list.slices {
            let uid = slice.metadata.uid.as_ref();
            let gone = self.deleted.iter().any(|(known, write)| Some(known) == uid && newer(*write));
            let known = self.known(slice.name()).is_some();
            if !gone && !known && self.scope.contains_observed(&slice) {
                self.deleted.retain(|(known, _)| Some(known) != uid);
                self.put(slice.name().to_owned(), Known { slice, written: 0 });
            }
        }
        self.listed = Some(list.version);
    }

    /// Takes over the answer to our write of this number.
    pub(super) fn wrote(&mut self, slice: ObservedSlice, written: u64) {
        self.put(slice.name().to_owned(), Known { slice, written });
    }

    /// Takes over what a read of one slice has found, after all our writes.
    pub(super) fn read(&mut self, name: &str, found: Option<ObservedSlice>) {
        let Some(slice) = found.filter(|slice| self.scope.contains_observed(slice)) else {
            self.take(name);
            return;
        };
        self.deleted.retain(|(uid, _)| Some(uid) != slice.metadata.uid.as_ref());
        self.put(name.to_owned(), Known { slice, written: 0 });
    }

    /// Takes over a slice from an event. Returns its pool if that made a difference.
    pub(super) fn insert(&mut self, slice: ObservedSlice) -> Option<String> {
        let name = slice.metadata.name.clone()?;
        let uid = slice.metadata.uid.as_ref();
        if self.deleted.iter().any(|(deleted, _)| Some(deleted) == uid) || self.is_late(&slice) {
            return None;
        }
        if !self.scope.contains_observed(&slice) {
            return self.take(&name).map(|old| old.pool);
        }
        let pool = slice.pool.clone();
        self.put(name, Known { slice, written: 0 });
        Some(pool)
    }

    /// Takes out a slice that was deleted, by our write of this number or by others (0), unless the one that is here is
    /// another of the same name. Returns its pool if that made a difference.
    pub(super) fn remove(&mut self, name: &str, uid: Option<&str>, written: u64) -> Option<String> {
        self.deleted.extend(uid.map(|uid| (uid.to_owned(), written)));
        if self.deleted.len() > REMEMBERED {
            self.deleted.pop_front();
        }
        let known = self.get(name)?;
        if uid.is_some() && known.metadata.uid.as_deref() != uid {
            return None;
        }
        self.take(name).map(|slice| slice.pool)
    }

    /// Whether an event is not newer than what is known.
    fn is_late(&self, event: &ObservedSlice) -> bool {
        let Some(version) = parse(event.metadata.resource_version.as_ref()) else { return false };
        let known = self.get(event.name()).and_then(|known| parse(known.metadata.resource_version.as_ref()));
        known.or_else(|| parse(self.listed.as_ref())).is_some_and(|known| known >= version)
    }

    fn known(&self, name: &str) -> Option<&Known> {
        self.pools.get(self.names.get(name)?)?.get(name)
    }

    fn put(&mut self, name: String, known: Known) {
        self.take(&name);
        let pool = known.slice.pool.clone();
        self.names.insert(name.clone(), pool.clone());
        self.pools.entry(pool).or_default().insert(name, known);
    }

    fn take(&mut self, name: &str) -> Option<ObservedSlice> {
        let pool = self.names.remove(name)?;
        let slices = self.pools.get_mut(&pool)?;
        let taken = slices.remove(name);
        if slices.is_empty() {
            self.pools.remove(&pool);
        }
        taken.map(|known| known.slice)
    }
}

/// Resource versions of one kind are ordered numbers (KEP-5504).
fn parse(version: Option<&String>) -> Option<u64> {
    version?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriverName, NodeName};
    use k8s_openapi::{
        api::resource::v1::{ResourcePool, ResourceSlice, ResourceSliceSpec},
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };

    fn cache() -> Cache {
        Cache::new(Scope::node(DriverName::new("d").unwrap(), NodeName::new("n").unwrap()))
    }

    fn slice(name: &str, uid: &str, version: u64) -> ObservedSlice {
        ObservedSlice::of(ResourceSlice {
            metadata: ObjectMeta {
                name: Some(name.into()),
                uid: Some(uid.into()),
                resource_version: Some(version.to_string()),
                ..Default::default()
            },
            spec: ResourceSliceSpec {
                driver: "d".into(),
                node_name: Some("n".into()),
                pool: ResourcePool { name: "p".into(), ..Default::default() },
                ..Default::default()
            },
        })
    }

    fn listed(slices: Vec<ObservedSlice>, version: u64, began: u64) -> Listed {
        Listed { slices, version: version.to_string(), began }
    }

    fn versions(cache: &Cache) -> Vec<String> {
        cache.pool("p").filter_map(|slice| slice.metadata.resource_version.clone()).collect()
    }

    #[test]
    fn a_late_event_does_not_undo_our_own_write() {
        let mut cache = cache();
        cache.wrote(slice("a", "1", 10), 1);
        assert_eq!(cache.insert(slice("a", "1", 9)), None);
        assert_eq!(cache.insert(slice("a", "1", 11)).as_deref(), Some("p"));
        assert_eq!(versions(&cache), ["11"]);
    }

    #[test]
    fn a_late_event_does_not_bring_a_deleted_slice_back() {
        let mut cache = cache();
        cache.insert(slice("a", "1", 10));
        assert_eq!(cache.remove("a", Some("1"), 1).as_deref(), Some("p"));
        assert_eq!(cache.insert(slice("a", "1", 10)), None);
        assert_eq!(cache.insert(slice("a", "2", 12)).as_deref(), Some("p"));
        assert_eq!(cache.remove("a", Some("1"), 2), None, "the new one of that name stays");
        cache.replace(listed(Vec::new(), 20, 2));
        assert_eq!(cache.insert(slice("b", "3", 19)), None, "the list has shown that it is gone");
        assert_eq!(versions(&cache), [""; 0]);
    }

    #[test]
    fn a_list_replaces_all_but_what_we_have_written_since_it_began() {
        let mut cache = cache();
        assert!(!cache.is_listed());
        cache.wrote(slice("a", "1", 10), 1);
        cache.wrote(slice("b", "2", 30), 2);
        cache.wrote(slice("c", "3", 40), 3);
        cache.insert(slice("d", "4", 50));
        cache.remove("e", Some("5"), 3);
        cache.replace(listed(vec![slice("c", "3", 15), slice("e", "5", 16)], 20, 1));
        assert!(cache.is_listed());
        assert_eq!(versions(&cache), ["30", "40"]);
    }

    /// After a restore of etcd.
    #[test]
    fn a_list_or_a_read_after_our_last_write_wins_whatever_its_versions_are() {
        let mut cache = cache();
        cache.wrote(slice("a", "1", 1000), 1);
        cache.remove("b", Some("2"), 2);
        cache.replace(listed(vec![slice("a", "1", 850), slice("b", "2", 840)], 900, 2));
        assert_eq!(versions(&cache), ["850", "840"]);
        assert!(cache.insert(slice("a", "1", 901)).is_some());
        cache.wrote(slice("a", "1", 1000), 3);
        cache.read("a", Some(slice("a", "1", 910)));
        assert_eq!(versions(&cache), ["910", "840"]);
        cache.read("a", None);
        assert_eq!(versions(&cache), ["840"]);
    }

    #[test]
    fn slices_of_others_are_not_kept() {
        let mut cache = cache();
        let mut foreign = slice("a", "1", 1);
        foreign.node_name = Some("other".into());
        assert_eq!(cache.insert(foreign), None);
        assert_eq!(cache.pools().count(), 0);
    }
}
