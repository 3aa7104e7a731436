//! The slices of the scope as last seen: from the watch, and from the answers to our own writes, which are newer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Scope, observed::ObservedSlice};

/// The slices by name.
#[derive(Debug)]
pub(super) struct Cache {
    scope: Scope,
    slices: BTreeMap<String, ObservedSlice>,
    /// UIDs of the slices deleted last, so that a late event does not bring one back.
    deleted: VecDeque<String>,
    listed: bool,
}

/// How many deleted slices are remembered: more than there can be late events.
const REMEMBERED: usize = 1024;

impl Cache {
    pub(super) fn new(scope: Scope) -> Self {
        Self { scope, slices: BTreeMap::new(), deleted: VecDeque::new(), listed: false }
    }

    /// Whether there has been a list. Before that, a slice that is not here may still exist.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// The slices of a pool.
    pub(super) fn pool(&self, pool: &str) -> impl Iterator<Item = &ObservedSlice> {
        self.slices.values().filter(move |slice| slice.pool == pool)
    }

    /// The names of all pools that have slices.
    pub(super) fn pools(&self) -> BTreeSet<String> {
        self.slices.values().map(|slice| slice.pool.clone()).collect()
    }

    /// Takes over a whole list, but for what is newer than the list.
    pub(super) fn replace(&mut self, list: Vec<ObservedSlice>, version: &str) {
        let mut old = std::mem::take(&mut self.slices);
        if let Some(version) = parse(version) {
            old.retain(|_, slice| resource_version(slice).is_some_and(|newer| newer > version));
            self.slices = old;
        }
        for slice in list {
            self.insert(slice);
        }
        self.listed = true;
    }

    /// Takes over a slice from an event or an answer. Returns its pool if that made a difference.
    pub(super) fn insert(&mut self, slice: ObservedSlice) -> Option<String> {
        let name = slice.metadata.name.clone()?;
        if slice.metadata.uid.as_ref().is_some_and(|uid| self.deleted.contains(uid)) {
            return None;
        }
        if !self.scope.contains_observed(&slice) {
            return self.slices.remove(&name).map(|old| old.pool);
        }
        if self.slices.get(&name).is_some_and(|known| is_known(known, &slice)) {
            return None;
        }
        let pool = slice.pool.clone();
        self.slices.insert(name, slice);
        Some(pool)
    }

    /// Takes out a slice that was deleted, unless the one that is here is another of the same name. Returns its
    /// pool if that made a difference.
    pub(super) fn remove(&mut self, name: &str, uid: Option<&str>) -> Option<String> {
        self.deleted.extend(uid.map(ToOwned::to_owned));
        if self.deleted.len() > REMEMBERED {
            self.deleted.pop_front();
        }
        let known = self.slices.get(name)?;
        if uid.is_some() && known.metadata.uid.as_deref() != uid {
            return None;
        }
        self.slices.remove(name).map(|slice| slice.pool)
    }
}

/// Whether the event is not news: the known slice is of the same or of a later version.
fn is_known(known: &ObservedSlice, event: &ObservedSlice) -> bool {
    match (resource_version(known), resource_version(event)) {
        (Some(known), Some(event)) => known >= event,
        _ => false,
    }
}

/// Resource versions of one kind are ordered numbers (KEP-5504); text that is none is taken for the latest.
fn resource_version(slice: &ObservedSlice) -> Option<u64> {
    parse(slice.metadata.resource_version.as_deref()?)
}

fn parse(version: &str) -> Option<u64> {
    version.parse().ok()
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

    fn versions(cache: &Cache) -> Vec<String> {
        cache.pool("p").filter_map(|slice| slice.metadata.resource_version.clone()).collect()
    }

    #[test]
    fn a_late_event_does_not_undo_our_own_write() {
        let mut cache = cache();
        cache.insert(slice("a", "1", 10));
        assert_eq!(cache.insert(slice("a", "1", 9)), None);
        assert_eq!(cache.insert(slice("a", "1", 11)).as_deref(), Some("p"));
        assert_eq!(versions(&cache), ["11"]);
    }

    #[test]
    fn a_late_event_does_not_bring_a_deleted_slice_back() {
        let mut cache = cache();
        cache.insert(slice("a", "1", 10));
        assert_eq!(cache.remove("a", Some("1")).as_deref(), Some("p"));
        assert_eq!(cache.insert(slice("a", "1", 10)), None);
        assert_eq!(cache.insert(slice("a", "2", 12)).as_deref(), Some("p"));
        assert_eq!(cache.remove("a", Some("1")), None, "the new one of that name stays");
        assert_eq!(versions(&cache), ["12"]);
    }

    #[test]
    fn a_list_replaces_what_is_older_than_it() {
        let mut cache = cache();
        assert!(!cache.is_listed());
        cache.insert(slice("a", "1", 10));
        cache.insert(slice("b", "2", 30));
        cache.insert(slice("c", "3", 40));
        cache.replace(vec![slice("c", "3", 15)], "20");
        assert!(cache.is_listed());
        assert_eq!(versions(&cache), ["30", "40"]);
    }

    #[test]
    fn slices_of_others_are_not_kept() {
        let mut cache = cache();
        let mut foreign = slice("a", "1", 1);
        foreign.node_name = Some("other".into());
        assert_eq!(cache.insert(foreign), None);
        assert!(cache.pools().is_empty());
    }
}
