//! How the time that a caller gives is divided. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Kept back for the answer: the kubelet waits for all claims of a call together, so one that waits until the end would
/// cost the others theirs.
const WAIT_MARGIN: Duration = Duration::from_secs(5);

/// The same for the answer that the driver is still at work. Shorter, so that what a wait ends with is told first.
const ANSWER_MARGIN: Duration = Duration::from_secs(4);

/// Until when a call may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// Until when to wait for locks, devices, a place or the API server.
    pub(super) wait: Instant,
    /// Until when to wait for the work to end. It goes on after that.
    pub(super) answer: Instant,
}

impl Deadlines {
    /// Those of a caller that waits until `deadline`. One with little time keeps back half of it.
    pub(super) fn until(deadline: Instant, now: Instant) -> Self {
        let left = deadline.saturating_duration_since(now);
        let before = |margin: Duration| deadline.checked_sub(margin.min(left)).unwrap_or(deadline);
        Self { wait: before(WAIT_MARGIN.min(left / 2)), answer: before(ANSWER_MARGIN.min(left * 2 / 5)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_always_time_left_for_the_answer() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        for (left, wait, answer) in [
            (45_000, 40_000, 41_000),
            (10_000, 5_000, 6_000),
            (8_000, 4_000, 4_800),
            (1_000, 500, 600),
            (0, 0, 0),
        ] {
            let deadlines = Deadlines::until(now + ms(left), now);
            assert_eq!(deadlines, Deadlines { wait: now + ms(wait), answer: now + ms(answer) }, "{left} ms");
        }
        let past = now.checked_sub(ms(10)).unwrap_or(now);
        assert_eq!(Deadlines::until(past, now), Deadlines { wait: past, answer: past });
    }
}
