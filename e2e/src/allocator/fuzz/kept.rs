//! Worlds in which the crate and Go once differed, with what Go says.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{compare::Outcome, world::World};

/// One of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) world: World,
    /// What the newest allocator that knows all of it says.
    pub(crate) outcome: Outcome,
}

impl Kept {
    pub(crate) fn allocator(&self) -> &'static str {
        self.world.allocators().next().unwrap_or("experimental")
    }
}

/// All of them.
pub(crate) fn all() -> Result<Vec<Kept>> {
    serde_json::from_str(include_str!("kept.json")).context("reading the kept worlds")
}

#[cfg(test)]
mod tests {
    use super::{super::compare::ours, *};

    #[test]
    fn the_crate_says_what_go_said_in_all_kept_worlds() {
        let kept = all().unwrap();
        assert!(!kept.is_empty());
        for case in kept {
            let ours = ours(&case.world);
            assert!(
                case.outcome.is_same(&ours, case.allocator()),
                "{:?}: Go {:?}, ours {ours:?}",
                case.name,
                case.outcome
            );
        }
    }
}
