//! Who is about to do what with a claim: how an unprepare gets past a prepare that is waiting or running.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::keyed::{Interest, Keyed};
use crate::mutex::locked;
use crate::names::ClaimUid;

/// The claims that calls are at work on, or waiting for.
pub(crate) type Board = Keyed<ClaimUid, Place>;

/// One caller's view of a claim's place on the board.
pub(crate) type PlaceRef = Interest<ClaimUid, Place>;

/// What is known of the calls for one claim.
#[derive(Debug, Default)]
pub(crate) struct Place(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// Unprepares that have asked for the claim so far.
    unprepares: u64,
    running: Option<Running>,
}

/// A prepare that the driver is working on.
#[derive(Clone, Debug)]
struct Running {
    cancel: CancellationToken,
    since: Instant,
}

/// Marks a prepare as running until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningMark {
    place: PlaceRef,
}

impl Place {
    /// How many unprepares have asked so far: a prepare that finds more after waiting is not wanted any more.
    pub(crate) fn unprepares(&self) -> u64 {
        locked(&self.0).unprepares
    }

    /// Announces an unprepare: waiting prepares give up, a running one is told so.
    pub(crate) fn announce_unprepare(&self) {
        let mut calls = locked(&self.0);
        calls.unprepares += 1;
        if let Some(running) = &calls.running {
            running.cancel.cancel();
        }
    }

    /// For how long a prepare has been running.
    pub(crate) fn running_for(&self) -> Option<Duration> {
        locked(&self.0).running.as_ref().map(|running| running.since.elapsed())
    }
}

impl RunningMark {
    /// Says that the driver is at work; `cancel` is cancelled when an unprepare asks, also if one has since `seen`
    /// unprepares were counted.
    pub(crate) fn new(place: PlaceRef, cancel: CancellationToken, seen: u64) -> Self {
        {
            let mut calls = locked(&place.0);
            if calls.unprepares != seen {
                cancel.cancel();
            }
            calls.running = Some(Running { cancel, since: Instant::now() });
        }
        Self { place }
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        locked(&self.place.0).running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unprepare_is_seen_by_waiting_and_running_prepares() {
        let board = Board::default();
        let uid = "a".parse().unwrap();
        let (prepare, unprepare) = (board.get(&uid), board.get(&uid));
        let before = prepare.unprepares();
        let cancel = CancellationToken::new();
        let mark = RunningMark::new(board.get(&uid), cancel.clone(), before);
        assert!(unprepare.running_for().is_some());
        unprepare.announce_unprepare();
        assert!(cancel.is_cancelled());
        assert_ne!(prepare.unprepares(), before);
        drop(mark);
        assert!(unprepare.running_for().is_none());
    }

    #[tokio::test]
    async fn an_unprepare_just_before_the_driver_is_called_is_not_lost() {
        let board = Board::default();
        let place = board.get(&"a".parse().unwrap());
        let seen = place.unprepares();
        place.announce_unprepare();
        let cancel = CancellationToken::new();
        let _mark = RunningMark::new(place, cancel.clone(), seen);
        assert!(cancel.is_cancelled());
    }
}
