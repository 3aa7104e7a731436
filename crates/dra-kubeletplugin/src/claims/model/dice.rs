//! All chance of a run comes from its seed.

use std::sync::Mutex;

use crate::mutex::locked;

/// Marsaglia's xorshift64*: small, fast, and good enough to shuffle with.
pub(super) struct Dice(Mutex<u64>);

impl Dice {
    /// Neighbouring seeds give unlike runs: the multiplication spreads them. Zero would stay zero.
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    /// A number from 0 to below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        let mut state = locked(&self.0);
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    /// Like [`below`](Self::below), for positions.
    pub(super) fn index(&self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    pub(super) fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}
