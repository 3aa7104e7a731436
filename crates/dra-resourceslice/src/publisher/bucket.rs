//! What a pool may be written for: one bucket for changes of what is desired and for repairs of what others break.

use std::time::Duration;

use tokio::time::Instant;

/// What a repair costs: so that, once the bucket is empty, there is one in 30 s.
pub(super) const REPAIR: Duration = Duration::from_secs(30);
/// What a change of what is desired costs.
pub(super) const CHANGE: Duration = Duration::from_secs(3);
/// Repairs that are no further apart belong together: whatever makes them necessary goes on.
const IN_A_ROW: Duration = Duration::from_secs(300);
/// What the bucket holds: three repairs, or thirty changes, and a little more.
const FULL: Duration = Duration::from_secs(100);

/// A bucket of seconds, into which one second flows each second.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// When it is full again.
    full_at: Option<Instant>,
    /// Once the bucket had too little for a repair, the next has to be 30 s from this one.
    last_repair: Option<Instant>,
    spent: bool,
    /// How many repairs there were in a row.
    in_a_row: u32,
}

impl Bucket {
    /// Takes the cost out.
    ///
    /// # Errors
    /// The time from which on there is enough.
    pub(super) fn pay(&mut self, cost: Duration, now: Instant) -> Result<(), Instant> {
        let after = self.full_at.map_or(now, |at| at.max(now)) + cost;
        let next = (after - FULL).max(self.next_repair(cost).unwrap_or(now));
        if next > now {
            self.spent |= cost >= REPAIR;
            return Err(next.max(self.next_repair(cost).unwrap_or(next)));
        }
        if cost >= REPAIR {
            let goes_on = self.last_repair.is_some_and(|last| now <= last + IN_A_ROW);
            self.in_a_row = if goes_on { self.in_a_row.saturating_add(1) } else { 1 };
            self.last_repair = Some(now);
        }
        self.spent &= after > now + REPAIR;
        self.full_at = Some(after);
        Ok(())
    }

    /// Whether the last repair is worth a word though it did not have to wait: the fourth in a row, the eighth and so on.
    pub(super) fn is_repeated(&self) -> bool {
        self.in_a_row >= 4 && self.in_a_row.is_power_of_two()
    }

    /// Before when there is no other repair, if the bucket was spent.
    fn next_repair(&self, cost: Duration) -> Option<Instant> {
        self.last_repair.filter(|_| self.spent && cost >= REPAIR).map(|last| last + REPAIR)
    }

    /// When there is enough for a repair, if that is not now.
    pub(super) fn repair_at(&self, now: Instant) -> Option<Instant> {
        let flown_in = self.full_at.map(|at| at + REPAIR - FULL);
        flown_in.max(self.next_repair(REPAIR)).filter(|at| *at > now)
    }

    /// Fills the bucket.
    pub(super) fn refill(&mut self) {
        self.full_at = None;
        self.spent = false;
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_repairs_or_thirty_changes_are_had_at_once_and_then_as_seconds_flow_in() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut bucket = Bucket::default();
        for second in 0..3 {
            assert_eq!(bucket.pay(REPAIR, at(second)), Ok(()));
        }
        assert_eq!(bucket.pay(REPAIR, at(3)), Err(at(32)), "30 s after the last");
        assert_eq!(bucket.repair_at(at(3)), Some(at(32)));
        let paid = (0..100).filter(|_| bucket.pay(CHANGE, at(3)).is_ok()).count();
        assert_eq!(paid, 4);
        assert_eq!(bucket.pay(CHANGE, at(3)), Err(at(5)));
        assert_eq!(bucket.pay(REPAIR, at(32)), Ok(()));
        assert_eq!(bucket.pay(REPAIR, at(33)), Err(at(62)));

        bucket.refill();
        assert_eq!(bucket.repair_at(at(34)), None);
        let paid = (0..100).filter(|_| bucket.pay(CHANGE, at(34)).is_ok()).count();
        assert_eq!(paid, 33);
        assert_eq!(bucket.pay(CHANGE, at(34 + 100)), Ok(()));
        assert_eq!(bucket.repair_at(at(34 + 100)), None);
    }

    /// A publisher that looks every half minute, as the Go helper does, never makes ours wait.
    #[tokio::test(start_paused = true)]
    async fn repairs_that_never_wait_are_worth_a_word_ever_more_seldom() {
        let start = Instant::now();
        let mut bucket = Bucket::default();
        let mut told = Vec::new();
        for repair in 1..=20u32 {
            bucket.pay(REPAIR, start + repair * Duration::from_secs(31)).unwrap();
            told.extend(bucket.is_repeated().then_some(repair));
        }
        assert_eq!(told, [4, 8, 16]);
        let later = start + Duration::from_secs(20 * 31 + 301);
        for repair in 0..3 {
            bucket.pay(REPAIR, later + repair * Duration::from_secs(31)).unwrap();
            assert!(!bucket.is_repeated(), "they were left alone for five minutes");
        }
    }
}
