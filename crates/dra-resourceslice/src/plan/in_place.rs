//! Plans that keep the generation: only what differs is written.
//!
//! They are possible when no state between two of the writes looks whole to consumers: above all when one slice
//! changes, when slices are missing, and when a plan was interrupted.

use std::collections::BTreeSet;

use super::{Observed, Plan, Wished, Write, matching::Matching, renewed::create};
use crate::{PoolWish, slice_name::index_of};

/// The plan, or nothing if the generation must rise.
pub(super) fn plan(wish: &PoolWish, wished: &[Wished], observed: &Observed<'_>) -> Option<Plan> {
    if observed.slices.is_empty() || observed.generation < wish.min_generation {
        return None;
    }
    let count = wished.len();
    let generation = observed.generation;
    let matching =
        Matching::none(count, observed).by_content(wished, observed).by_index(observed).by_order(observed);
    let mut steps = Steps::default();
    let mut free = free_indices(observed, count);
    for (position, (slice, found)) in wished.iter().zip(&matching.matches).enumerate() {
        let Some(found) = found.map(|found| &observed.slices[found]) else {
            let index = free.take(&position).or_else(|| free.pop_first())?;
            steps.added.push(create(wish, index, count, slice.at(generation, count)));
            continue;
        };
        let count_is_right = usize::try_from(found.count()) == Ok(count);
        if !found.current {
            steps.added.push(found.update(wish, slice.at(generation, count)));
        } else if !count_is_right || found.content != slice.stored {
            steps.changed.push((found.count(), found.update(wish, slice.at(generation, count))));
        } else {
            steps.kept.push(found.count());
            if !found.has_owner(wish) {
                steps.unseen.push(found.update(wish, found.object.spec.clone()));
            }
        }
    }
    for left_over in matching.left_over().map(|index| &observed.slices[index]) {
        if left_over.current {
            steps.surplus.push((left_over.count(), left_over.delete()));
        } else {
            steps.unseen.push(left_over.delete());
        }
    }
    steps.is_safe(count).then(|| Plan {
        writes: steps.in_order(),
        generation,
        slices: count,
        needs_fresh_list: false,
    })
}

/// The writes by what they do to the set of current slices. The numbers are the slices' counts before.
#[derive(Default)]
struct Steps {
    /// Current slices that stay as they are.
    kept: Vec<i64>,
    /// Changes of current slices.
    changed: Vec<(i64, Write)>,
    /// New current slices, made or taken over from an older generation.
    added: Vec<Write>,
    /// Current slices that go.
    surplus: Vec<(i64, Write)>,
    /// Writes that consumers do not see: old generations and owners.
    unseen: Vec<Write>,
}

impl Steps {
    /// Whether no state after a write but the last looks whole: as many current slices as one of them says.
    fn is_safe(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = |steps: &[(i64, Write)]| -> Vec<i64> { steps.iter().map(|(count, _)| *count).collect() };
        let (changed, surplus) = (before(&self.changed), before(&self.surplus));
        let visible = changed.len() + self.added.len() + surplus.len();
        (1..visible).all(|done| {
            let replaced = done.min(changed.len());
            let additions = (done - replaced).min(self.added.len());
            let deletions = done - replaced - additions;
            let old = self.kept.iter().chain(&changed[replaced..]).chain(&surplus[deletions..]).copied();
            let current: Vec<i64> = old.chain(std::iter::repeat_n(count, replaced + additions)).collect();
            !looks_whole(&current)
        })
    }

    fn in_order(self) -> Vec<Write> {
        let changed = self.changed.into_iter().map(|(_, write)| write);
        let surplus = self.surplus.into_iter().map(|(_, write)| write);
        changed.chain(self.added).chain(surplus).chain(self.unseen).collect()
    }
}

/// Whether a consumer could take slices with these counts for a complete pool.
fn looks_whole(counts: &[i64]) -> bool {
    i64::try_from(counts.len()).is_ok_and(|length| counts.contains(&length))
}

/// The indices that no observed name has.
fn free_indices(observed: &Observed<'_>, count: usize) -> BTreeSet<usize> {
    let used: BTreeSet<_> =
        observed.slices.iter().filter_map(|slice| index_of(slice.name(), count)).collect();
    (0..count).filter(|index| !used.contains(index)).collect()
}
