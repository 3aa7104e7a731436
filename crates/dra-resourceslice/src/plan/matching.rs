//! Which observed slice becomes which wished one.

use super::{Observed, draft::WishedPart};
use crate::slice_name::index_of;

/// For each wished slice the observed one that becomes it, as an index into `Observed::slices`.
pub(super) struct Matching {
    pub(super) matches: Vec<Option<usize>>,
    taken: Vec<bool>,
}

impl Matching {
    pub(super) fn none(wished: usize, observed: &Observed<'_>) -> Self {
        Self { matches: vec![None; wished], taken: vec![false; observed.slices.len()] }
    }

    /// Matches current slices that have the content already, whatever their names.
    pub(super) fn by_content(mut self, wished: &[WishedPart], observed: &Observed<'_>) -> Self {
        for (index, part) in wished.iter().enumerate() {
            let same = |candidate: usize| {
                let candidate = &observed.slices[candidate];
                candidate.current && part.is_stored_as(candidate.slice)
            };
            // Of several with the same content, the one whose name has the right index.
            let named = |candidate: usize| {
                same(candidate) && index_of(observed.slices[candidate].name(), wished.len()) == Some(index)
            };
            self.take_first(index, named);
            self.take_first(index, same);
        }
        self
    }

    /// Matches slices by the index that their names begin with; newer generations first. An index that a matched
    /// slice has already is not used twice.
    pub(super) fn by_index(mut self, observed: &Observed<'_>) -> Self {
        let count = self.matches.len();
        let has = |candidate: usize, index| index_of(observed.slices[candidate].name(), count) == Some(index);
        for index in 0..count {
            let used = (0..self.taken.len()).any(|candidate| self.taken[candidate] && has(candidate, index));
            if !used {
                self.take_last(index, |candidate| has(candidate, index));
            }
        }
        self
    }

    /// Matches what is left of the wish with what is left of the current slices, in order.
    pub(super) fn by_order(mut self, observed: &Observed<'_>) -> Self {
        for index in 0..self.matches.len() {
            self.take_first(index, |candidate| observed.slices[candidate].current);
        }
        self
    }

    /// The observed slices that match nothing.
    pub(super) fn left_over(&self) -> impl Iterator<Item = usize> {
        self.taken.iter().enumerate().filter(|(_, taken)| !**taken).map(|(index, _)| index)
    }

    fn take_first(&mut self, wished: usize, fits: impl Fn(usize) -> bool) {
        let found = (0..self.taken.len()).find(|&candidate| !self.taken[candidate] && fits(candidate));
        self.take(wished, found);
    }

    fn take_last(&mut self, wished: usize, fits: impl Fn(usize) -> bool) {
        let found = (0..self.taken.len()).rev().find(|&candidate| !self.taken[candidate] && fits(candidate));
        self.take(wished, found);
    }

    fn take(&mut self, wished: usize, found: Option<usize>) {
        if let Some(candidate) = found.filter(|_| self.matches[wished].is_none()) {
            self.matches[wished] = Some(candidate);
            self.taken[candidate] = true;
        }
    }
}
