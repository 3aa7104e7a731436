//! When to try again: longer after each failure, and not at the same time on all nodes.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// The first pause and the longest; doubled after each failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Pace {
    /// For a server that is away or busy.
    pub(crate) const TROUBLE: Self = Self { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

    /// For a server that refuses the content. Webhooks and policies deny with the same codes as the API server itself, so no
    /// refusal lasts for ever: a denial of one minute is over within two.
    pub(crate) const REFUSAL: Self =
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) };

    /// The pause after so many failures before this one: between three quarters and all of the doubled time.
    pub(crate) fn pause(self, failures: u32, chance: Chance) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX));
        doubled.min(self.longest).mul_f64(0.75 + 0.25 * chance.0)
    }
}

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(f64);

impl Chance {
    /// It differs between processes and calls.
    pub(crate) fn random() -> Self {
        let bits = RandomState::new().build_hasher().finish();
        Self(f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX))
    }

    #[cfg(test)]
    pub(crate) const ALL: Self = Self(1.0);
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pace: Pace, chance: Chance) -> Vec<u64> {
        (0..8).map(|failures| pace.pause(failures, chance).as_secs()).collect()
    }

    #[test]
    fn pauses_double_and_a_refusal_of_one_minute_is_over_within_two() {
        assert_eq!(seconds(Pace::TROUBLE, Chance::ALL), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(seconds(Pace::REFUSAL, Chance::ALL), [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(seconds(Pace::REFUSAL, Chance::NONE), [7, 15, 30, 60, 120, 225, 225, 225]);
        for chance in [Chance::ALL, Chance::NONE] {
            let mut at = Duration::ZERO;
            let tries = (0..8).map(|failures| {
                at += Pace::REFUSAL.pause(failures, chance);
                at.as_secs()
            });
            assert!(tries.collect::<Vec<_>>().iter().any(|at| (60..120).contains(at)));
        }
        assert_eq!(Pace::TROUBLE.pause(u32::MAX, Chance::ALL), Duration::from_secs(60));
    }
}
