//! How often a pool is repaired that others keep breaking.

use std::time::Duration;

use tokio::time::Instant;

/// The distance between repairs once a budget is spent.
pub(super) const SLOW: Duration = Duration::from_secs(30);
/// After this time without repairs a budget is full again.
const QUIET: Duration = Duration::from_secs(300);

/// A budget of repairs: some at once, then one per 30 s.
#[derive(Debug, Default)]
pub(super) struct Budget {
    spent: usize,
    last: Option<Instant>,
}

impl Budget {
    /// Pays for a repair, of which `limit` can be had at once.
    ///
    /// # Errors
    /// The time from which on it can be paid for.
    pub(super) fn pay(&mut self, cost: usize, limit: usize, now: Instant) -> Result<(), Instant> {
        if self.last.is_some_and(|last| now.duration_since(last) >= QUIET) {
            self.spent = 0;
        }
        let spent = self.spent.saturating_add(cost);
        if spent > limit
            && let Some(next) = self.last.map(|last| last + SLOW).filter(|next| *next > now)
        {
            return Err(next);
        }
        self.spent = spent.min(limit);
        self.last = Some(now);
        Ok(())
    }

    /// Fills the budget.
    pub(super) fn refill(&mut self) {
        *self = Self::default();
    }
}

/// The writes that may be done to a pool: those of its wish, and those that were paid for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Allowance {
    pub(super) creates: usize,
    /// Updates and deletes.
    pub(super) changes: usize,
}

impl Allowance {
    pub(super) fn covers(self, needed: Self) -> bool {
        self.creates >= needed.creates && self.changes >= needed.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_of_four_comes_back_whole_three_times_and_then_each_thirty_seconds() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..3 {
            assert_eq!(budget.pay(4, 12, at(second)), Ok(()));
        }
        assert_eq!(budget.pay(4, 12, at(3)), Err(at(32)));
        assert_eq!(budget.pay(1, 12, at(31)), Err(at(32)));
        assert_eq!(budget.pay(4, 12, at(32)), Ok(()));
        assert_eq!(budget.pay(4, 12, at(33)), Err(at(62)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_is_full_again_after_a_registration_or_a_quiet_time() {
        let mut budget = Budget::default();
        let start = Instant::now();
        assert_eq!(budget.pay(1, 1, start), Ok(()));
        assert!(budget.pay(1, 1, start).is_err());
        budget.refill();
        assert_eq!(budget.pay(1, 1, start), Ok(()));
        let later = start + QUIET;
        assert_eq!(budget.pay(1, 2, later), Ok(()));
        assert_eq!(budget.pay(1, 2, later), Ok(()));
        assert!(budget.pay(1, 2, later).is_err());
    }
}
