//! Plans that raise the generation: every slice is written once.
//!
//! The first write already hides the old pool, because consumers look only at the highest generation; the new one
//! is incomplete until its last slice is written.

use super::{
    Observed,
    draft::{Draft, Wished, create, update},
    matching::Matching,
};

pub(super) fn plan(wished: &Wished, observed: &Observed<'_>) -> Draft {
    let generation = wished.wish().min_generation.max(observed.generation.saturating_add(1));
    let count = wished.parts.len();
    let wished = wished.at(generation);
    // By index only: since every slice is written anyway, its name may as well tell the order of the devices.
    let matching = Matching::none(count, observed).by_index(observed);
    let write = |(index, found): (usize, &Option<usize>)| match *found {
        Some(found) => update(&wished, index, &observed.slices[found]),
        None => create(&wished, index, index),
    };
    let mut steps: Vec<_> = matching.matches.iter().enumerate().map(write).collect();
    steps.extend(matching.left_over().map(|index| observed.slices[index].delete()));
    let hides_pool = observed.looks_whole() && steps.len() > 1;
    Draft { steps, generation, slices: count, hides_pool, ..Draft::default() }
}
