//! When the next try is. What fails, what is refused and what costs too much waits here, and nowhere else.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

use crate::{ErrorClass, PublishError};

/// The longest time that an API server can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// How long it is waited: as long again as the failure has lasted, within these bounds. So what lasts for a minute is
/// over within two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Pace {
    first: Duration,
    longest: Duration,
}

/// The API server fails or cannot be reached.
const TROUBLE: Pace = Pace { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
/// The API server refuses the content. A status code does not say for how long: admission webhooks deny with 400 and
/// policies with 422, as the API server itself does.
const REFUSAL: Pace = Pace { first: Duration::from_secs(5), longest: Duration::from_secs(300) };

/// What has failed, and until when nothing is tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Retry {
    /// Since when requests fail.
    trouble: Option<Instant>,
    /// Since when contents are refused.
    refused: Option<Instant>,
    hold: Option<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    until: Instant,
    /// Another content may be tried before.
    of_content: bool,
}

impl Retry {
    /// Until when nothing may be tried; `None` if nothing is in the way.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.hold.map(|hold| hold.until)
    }

    /// A request failed. Returns when the next one may be made.
    pub(super) fn failed(&mut self, error: &PublishError, now: Instant) -> Instant {
        self.again(error.class() == ErrorClass::Refused, error.retry_after(), now)
    }

    /// A request was answered, but not as it should: a watch that has ended at once. Returns when the next one may
    /// be made.
    pub(super) fn ended(&mut self, now: Instant) -> Instant {
        self.again(false, None, now)
    }

    /// This content may not be written before.
    pub(super) fn hold_content(&mut self, until: Instant) {
        self.hold = Some(Hold { until, of_content: true });
    }

    /// Another content is to be written. What an API server asks for holds for that too.
    pub(super) fn content_changed(&mut self) {
        self.hold.take_if(|hold| hold.of_content);
        self.refused = None;
    }

    /// Nothing is left to try.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    fn again(&mut self, of_content: bool, asked: Option<Duration>, now: Instant) -> Instant {
        let (since, pace) =
            if of_content { (&mut self.refused, REFUSAL) } else { (&mut self.trouble, TROUBLE) };
        let lasted = now.duration_since(*since.get_or_insert(now));
        let until = now + asked.unwrap_or_default().min(LONGEST_ASKED) + delay(lasted, pace, random());
        // An answer with a time to wait is about the API server, whatever else it says.
        self.hold = Some(Hold { until, of_content: of_content && asked.is_none() });
        until
    }
}

/// Between three quarters and all of the time, as `random` says.
fn delay(lasted: Duration, pace: Pace, random: u32) -> Duration {
    let full = lasted.clamp(pace.first, pace.longest);
    full.mul_f64(0.75 + 0.25 * f64::from(random) / f64::from(u32::MAX))
}

/// A number that differs between processes and calls, so that the drivers of a cluster do not all come at once.
pub(super) fn random() -> u32 {
    let bits = RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Action;

    const SECOND: Duration = Duration::from_secs(1);

    fn answer(code: u16, retry_after: u32) -> PublishError {
        let details =
            serde_json::from_value(serde_json::json!({ "retryAfterSeconds": retry_after })).unwrap();
        let status = kube::core::Status { code, details: Some(details), ..Default::default() };
        let source = Arc::new(kube::Error::Api(status.boxed()));
        PublishError::Api { action: Action::Create, object: String::new(), source }
    }

    /// When a failure that goes on is tried, with the longest delays or the shortest.
    fn tries(pace: Pace, random: u32, until: Duration) -> Vec<Duration> {
        let next = |at: &Duration| Some(*at + delay(*at, pace, random));
        std::iter::successors(Some(Duration::ZERO), next).take_while(|at| *at <= until).collect()
    }

    #[test]
    fn what_lasts_for_a_minute_is_over_within_two_and_never_asked_about_often() {
        for pace in [TROUBLE, REFUSAL] {
            for random in [0, u32::MAX / 2, u32::MAX] {
                for lasts in 1..600 {
                    let lasts = Duration::from_secs(lasts);
                    let tries = tries(pace, random, 3 * lasts + 30 * SECOND);
                    let over = *tries.iter().find(|at| **at >= lasts).unwrap();
                    assert!(
                        over <= (2 * lasts).max(lasts + pace.first),
                        "{pace:?}: {lasts:?} until {over:?}"
                    );
                }
            }
        }
        assert!(tries(REFUSAL, 0, 3600 * SECOND).len() < 25);
        assert!(tries(REFUSAL, u32::MAX, 30 * SECOND).len() >= 3, "within 30 s");
        assert!(tries(TROUBLE, 0, 120 * SECOND).len() < 15);
    }

    /// The answer, whether it holds for another content too, and the bounds of the wait in milliseconds.
    #[tokio::test(start_paused = true)]
    async fn each_answer_has_its_pace_and_holds_for_what_it_is_about() {
        let table = [
            (400, 0, false, 3_750..=5_000),
            (413, 0, false, 3_750..=5_000),
            (422, 0, false, 3_750..=5_000),
            (403, 0, true, 375..=500),
            (409, 0, true, 375..=500),
            (429, 0, true, 375..=500),
            (500, 0, true, 375..=500),
            (429, 30, true, 30_375..=30_500),
            (503, 3600, true, 300_375..=300_500),
            (422, 10, true, 13_750..=15_000),
        ];
        for (code, asked, holds_for_all, bounds) in table {
            let now = Instant::now();
            let mut retry = Retry::default();
            let wait = retry.failed(&answer(code, asked), now).duration_since(now);
            assert!(bounds.contains(&wait.as_millis()), "{code}: {wait:?}");
            retry.content_changed();
            assert_eq!(retry.not_before().is_some(), holds_for_all, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_goes_on_through_failures_of_the_other_kind_and_ends_with_a_success() {
        let now = Instant::now();
        let mut retry = Retry::default();
        retry.failed(&answer(422, 0), now);
        retry.failed(&answer(503, 0), now + 60 * SECOND);
        let wait = retry.failed(&answer(422, 0), now + 100 * SECOND).duration_since(now + 100 * SECOND);
        assert!(wait >= 75 * SECOND, "{wait:?}");
        retry.succeeded();
        assert!(retry.not_before().is_none());
        assert!(retry.failed(&answer(422, 0), now).duration_since(now) <= REFUSAL.first);
    }
}
