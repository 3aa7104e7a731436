//! Waiting longer after each failure, up to 30 s, with jitter.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait after a failure.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The time to wait after one more failure: at least what the server asks for, if that is not unreasonable.
    pub(super) fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let delay = delay(self.failures, random());
        self.failures = self.failures.saturating_add(1);
        retry_after.map_or(delay, |asked| delay.max(asked.min(LONGEST)))
    }

    /// Forgets the failures.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Between half and all of the doubled time, as `random` says.
fn delay(failures: u32, random: u32) -> Duration {
    let full = FIRST.saturating_mul(1_u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX)).min(LONGEST);
    let half = full / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A number that differs between processes and calls, so that the drivers of a cluster do not all come at once.
fn random() -> u32 {
    let bits = RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_thirty_seconds() {
        let full: Vec<_> = (0..9).map(|failures| delay(failures, u32::MAX).as_millis()).collect();
        assert_eq!(full, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(delay(0, 0).as_millis(), 250);
        assert_eq!(delay(u32::MAX, 0), LONGEST / 2);
    }

    #[test]
    fn the_server_may_ask_for_more_but_not_for_more_than_thirty_seconds() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(Some(Duration::from_secs(9))), Duration::from_secs(9));
        assert_eq!(backoff.next(Some(Duration::from_secs(3600))), LONGEST);
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }
}
