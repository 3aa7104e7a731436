//! Random numbers that a seed repeats.

/// A `SplitMix64`, as Steele, Lea and Flood describe it (OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for another part.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Any of `from..to`, which must not be empty.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.between(0, times) == 0
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_does_not() {
        let numbers = |seed| {
            let mut dice = Dice::new(seed);
            (0..8).map(|_| dice.between(3, 1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(1).iter().all(|number| (3..1000).contains(number)));
    }

    #[test]
    fn forks_differ_from_each_other() {
        let mut dice = Dice::new(7);
        let (mut one, mut other) = (dice.fork(), dice.fork());
        assert_ne!(one.next(), other.next());
    }
}
