//! Whose turn it is to publish: decided without I/O.

use std::time::Duration;

/// A holder that has not been registered for this long gives way to an older instance that is; it says then, too, that
/// it is not registered.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(30);

/// What an instance sees when it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether it has the lock.
    pub(super) publishing: bool,
    /// Whether the driver has said what there is to publish.
    pub(super) has_wish: bool,
    /// Whether no other instance lives.
    pub(super) alone: bool,
    /// For how long it has not been registered; `None` if it is.
    pub(super) away_for: Option<Duration>,
    /// Who else waits to publish; they are registered and have a wish.
    pub(super) waiting: Waiting,
}

/// Those who wait to publish, but for oneself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Nobody,
    /// Only instances that started earlier.
    Older,
    /// Also one that started later.
    Newer,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Neither publish nor wait for it.
    StayOut,
    /// Say that one waits, and leave the lock to a newer instance.
    Wait,
    /// Take the lock as soon as it is free, and say that one waits.
    Take,
    /// Go on publishing.
    Publish,
    /// Stop writing, then let go of the lock.
    Yield,
}

/// The newest instance publishes that is registered and has a wish: what it wishes for is what a person wanted last. An
/// instance that is not registered would publish nothing new, so it takes over from nobody; alone, it keeps right what
/// is there.
pub(super) fn decide(seen: &Seen) -> Step {
    match (seen.publishing, seen.away_for, seen.waiting) {
        (true, _, Waiting::Newer) => Step::Yield,
        (true, Some(away), Waiting::Older) if away >= REGISTRATION_PATIENCE => Step::Yield,
        (true, _, _) => Step::Publish,
        (false, _, _) if !seen.has_wish => Step::StayOut,
        (false, None, Waiting::Newer) => Step::Wait,
        (false, None, _) => Step::Take,
        (false, Some(_), _) if seen.alone => Step::Take,
        (false, Some(_), _) => Step::StayOut,
    }
}

#[cfg(test)]
mod tests;
