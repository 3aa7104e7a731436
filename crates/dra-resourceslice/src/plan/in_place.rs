//! Plans that keep the generation: only what differs is written.
//!
//! They are possible when no state between two of the writes looks whole to consumers: above all when one slice
//! changes, when slices are missing, and when a plan was interrupted.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Observed,
    draft::{Draft, Step, Wished, create, update},
    matching::Matching,
};
use crate::{features::Features, slice_name::index_of};

/// The plan, or nothing if the generation must rise.
pub(super) fn plan(wished: &Wished, observed: &Observed<'_>) -> Option<Draft> {
    if observed.slices.is_empty() || observed.generation < wished.wish().min_generation {
        return None;
    }
    let count = wished.parts.len();
    let generation = observed.generation;
    let mut steps = steps(&wished.at(generation), observed).filter(|steps| steps.is_safe(count))?;
    let hides_pool = observed.looks_whole() && steps.visible() > 1;
    let reduced = std::mem::take(&mut steps.reduced);
    let steps = steps.in_order();
    Some(Draft { steps, generation, slices: count, hides_pool, reduced, ..Draft::default() })
}

/// The steps, or nothing if there are not enough names.
fn steps(wished: &Arc<Wished>, observed: &Observed<'_>) -> Option<Steps> {
    let count = wished.parts.len();
    let matching = Matching::none(count, observed)
        .by_content(&wished.parts, observed)
        .by_index(observed)
        .by_order(observed);
    let mut steps = Steps::default();
    let mut free = free_indices(observed, count);
    for (position, (part, found)) in wished.parts.iter().zip(&matching.matches).enumerate() {
        let Some(found) = found.map(|found| &observed.slices[found]) else {
            let index = free.take(&position).or_else(|| free.pop_first())?;
            steps.added.push(create(wished, position, index));
            continue;
        };
        let write = || update(wished, position, found);
        let missing = part.missing_if_stored(found.slice);
        let count_is_right = usize::try_from(found.count()) == Ok(count);
        if !found.current {
            steps.added.push(write());
        } else if let Some(missing) = missing.filter(|_| count_is_right) {
            steps.kept.push(found.count());
            steps.reduced.extend(missing);
            if !found.has_owner(wished.wish()) {
                steps.unseen.push(write());
            }
        } else {
            steps.changed.push((found.count(), write()));
        }
    }
    for left_over in matching.left_over().map(|index| &observed.slices[index]) {
        if left_over.current {
            steps.surplus.push((left_over.count(), left_over.delete()));
        } else {
            steps.unseen.push(left_over.delete());
        }
    }
    Some(steps)
}

/// The writes by what they do to the set of current slices. The numbers are the slices' counts before.
#[derive(Default)]
struct Steps {
    /// Current slices that stay as they are.
    kept: Vec<i64>,
    /// Changes of current slices.
    changed: Vec<(i64, Step)>,
    /// New current slices, made or taken over from an older generation.
    added: Vec<Step>,
    /// Current slices that go.
    surplus: Vec<(i64, Step)>,
    /// Writes that consumers do not see: old generations and owners.
    unseen: Vec<Step>,
    /// The features that are missing in what stays.
    reduced: Features,
}

impl Steps {
    /// Whether no state after a write but the last looks whole: as many current slices as one of them says.
    fn is_safe(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let before = |steps: &[(i64, Step)]| -> Vec<i64> { steps.iter().map(|(count, _)| *count).collect() };
        let (changed, surplus) = (before(&self.changed), before(&self.surplus));
        (1..self.visible()).all(|done| {
            let replaced = done.min(changed.len());
            let additions = (done - replaced).min(self.added.len());
            let deletions = done - replaced - additions;
            let old = self.kept.iter().chain(&changed[replaced..]).chain(&surplus[deletions..]).copied();
            let current: Vec<i64> = old.chain(std::iter::repeat_n(count, replaced + additions)).collect();
            !looks_whole(&current)
        })
    }

    /// How many writes consumers see.
    fn visible(&self) -> usize {
        self.changed.len() + self.added.len() + self.surplus.len()
    }

    fn in_order(self) -> Vec<Step> {
        let changed = self.changed.into_iter().map(|(_, step)| step);
        let surplus = self.surplus.into_iter().map(|(_, step)| step);
        changed.chain(self.added).chain(surplus).chain(self.unseen).collect()
    }
}

/// Whether a consumer could take slices with these counts for a complete pool.
pub(super) fn looks_whole(counts: &[i64]) -> bool {
    i64::try_from(counts.len()).is_ok_and(|length| counts.contains(&length))
}

/// The indices that no observed name has.
fn free_indices(observed: &Observed<'_>, count: usize) -> BTreeSet<usize> {
    let used: BTreeSet<_> =
        observed.slices.iter().filter_map(|slice| index_of(slice.name(), count)).collect();
    (0..count).filter(|index| !used.contains(index)).collect()
}
