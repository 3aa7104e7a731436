//! The calls for each claim: how an unprepare gets past a prepare that is waiting or running.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::keyed::{Interest, Keyed};
use crate::mutex::locked;
use crate::names::ClaimUid;

/// The claims that calls are at work on, or waiting for.
pub(super) type Board = Keyed<ClaimUid, ClaimCalls>;

/// One caller's view of the calls for a claim.
pub(super) type ClaimCallsRef = Interest<ClaimUid, ClaimCalls>;

/// What is known of the calls for one claim.
#[derive(Debug, Default)]
pub(super) struct ClaimCalls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// For the prepares that have come since the last unprepare; the next unprepare cancels it.
    superseded: CancellationToken,
    /// The call that the driver is working on, and since when.
    running: Option<(&'static str, Instant)>,
}

/// Marks a call of the driver as running until it is dropped.
#[derive(Debug)]
pub(super) struct RunningMark(ClaimCallsRef);

impl ClaimCalls {
    /// Cancelled once an unprepare asks for the claim: a prepare that came before is not wanted any more.
    pub(super) fn superseded(&self) -> CancellationToken {
        self.state().superseded.clone()
    }

    /// Announces an unprepare: waiting prepares give up, a running one learns of it.
    pub(super) fn announce_unprepare(&self) {
        std::mem::take(&mut self.state().superseded).cancel();
    }

    /// Which call of the driver is running, and for how long.
    pub(super) fn running(&self) -> Option<(&'static str, Duration)> {
        self.state().running.map(|(call, since)| (call, since.elapsed()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl RunningMark {
    pub(super) fn new(calls: ClaimCallsRef, call: &'static str) -> Self {
        calls.state().running = Some((call, Instant::now()));
        Self(calls)
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        self.0.state().running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unprepare_supersedes_the_prepares_that_came_before_it_and_no_other() {
        let board = Board::default();
        let uid = "a".parse().unwrap();
        let (prepare, unprepare) = (board.get(&uid), board.get(&uid));
        let before = prepare.superseded();
        let mark = RunningMark::new(board.get(&uid), "prepare");
        assert_eq!(unprepare.running().map(|(call, _)| call), Some("prepare"));
        unprepare.announce_unprepare();
        assert!(before.is_cancelled());
        assert!(!prepare.superseded().is_cancelled());
        drop(mark);
        assert!(unprepare.running().is_none());
    }
}
