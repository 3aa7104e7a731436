//! What an allocation rests on, as JSON: what the API server would have stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The allocators of the scheduler, the one with all features first.
const ALLOCATORS: [&str; 3] = ["experimental", "incubating", "stable"];

/// A node, all objects of the cluster that matter, and the claims of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct World {
    pub(crate) node: Value,
    pub(crate) classes: Vec<Value>,
    pub(crate) slices: Vec<Value>,
    /// Claims that are allocated.
    pub(crate) held: Vec<Value>,
    pub(crate) claims: Vec<Value>,
}

impl World {
    /// The allocators that know everything which this world uses.
    pub(crate) fn allocators(&self) -> impl Iterator<Item = &'static str> {
        let text = serde_json::json!(self).to_string();
        let uses = |fields: &[&str]| fields.iter().any(|field| text.contains(&format!("\"{field}\":")));
        let is_new =
            uses(&["compatibilityGroups", "skipNodeOperations", "ints", "bools", "strings", "versions"]);
        // Counters on other nodes are part of a pool for the stable allocator, and replace older slices here.
        let is_newer = is_new
            || uses(&["capacity", "allowMultipleAllocations", "bindingConditions", "bindsToNode"])
            || uses(&["sharedCounters"]);
        ALLOCATORS.into_iter().filter(move |name| match *name {
            "incubating" => !is_new,
            "stable" => !is_newer,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_allocator_is_asked_about_what_it_knows() {
        let with = |device: Value| {
            let slices = vec![json!({"spec": {"devices": [device]}})];
            let world = World { node: json!({}), classes: vec![], slices, held: vec![], claims: vec![] };
            world.allocators().count()
        };
        assert_eq!(
            with(json!({"name": "x", "attributes": {"strings": {"string": "a"}}})),
            1,
            "a bit too careful"
        );
        assert_eq!(with(json!({"name": "x", "attributes": {"numa": {"ints": [1]}}})), 1);
        assert_eq!(with(json!({"name": "x", "allowMultipleAllocations": true})), 2);
        assert_eq!(with(json!({"name": "x"})), 3);
    }
}
