//! Gives a Go helper its turn.
//!
//! The Go helper waits for the whole of `serialize.lock` (`F_OFD_SETLKW`), and the kernel grants it only in a moment in
//! which nobody has any part of it. Calls that overlap would keep such a moment from ever coming. So, while a Go helper
//! of this driver lives, a process that has held parts of the lock for long without a gap begins nothing new until there
//! has been a gap.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_resourceslice::DriverName;
use tokio::{
    net::UnixStream,
    time::{Instant, timeout_at},
};

use crate::{file_threads, mutex::locked, paths::is_go_registration_socket_of};

/// For how long the lock may be held without a gap.
const UNBROKEN: Duration = Duration::from_secs(2);

/// What counts as a gap: long enough for a waiter to wake up on a busy machine.
const GAP: Duration = Duration::from_millis(100);

/// For how long nothing new is begun, at most: work that is already running may take longer.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long a living Go helper takes to accept a connection, at most.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Where a Go helper of this driver would show.
#[derive(Clone, Debug)]
pub(crate) struct GoHelper {
    /// Folder of the registration sockets.
    pub(crate) registry: PathBuf,
    pub(crate) driver: DriverName,
}

impl GoHelper {
    /// Whether one answers at its registration socket.
    pub(crate) async fn lives(&self) -> bool {
        let helper = self.clone();
        let sockets = file_threads::run(move || helper.sockets()).await;
        for socket in sockets.unwrap_or_default() {
            if answers(socket).await {
                return true;
            }
        }
        false
    }

    /// Blocks. A folder that cannot be read is told of elsewhere.
    fn sockets(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.registry).into_iter().flatten().flatten();
        let its = entries.filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| is_go_registration_socket_of(&self.driver, name))
        });
        its.map(|entry| entry.path()).collect()
    }
}

async fn answers(socket: PathBuf) -> bool {
    matches!(tokio::time::timeout(ANSWERS_WITHIN, UnixStream::connect(socket)).await, Ok(Ok(_)))
}

/// The part of this process in taking turns.
#[derive(Debug)]
pub(crate) struct Turns {
    helper: Option<GoHelper>,
    state: Arc<Mutex<State>>,
}

/// Says for its lifetime that a part of the lock is held.
#[derive(Debug)]
pub(crate) struct Holding(Arc<Mutex<State>>);

impl Drop for Holding {
    fn drop(&mut self) {
        locked(&self.0).let_go(Instant::now());
    }
}

impl Turns {
    /// Without a helper nobody is given way to.
    pub(crate) fn with(helper: Option<GoHelper>) -> Self {
        Self { helper, state: Arc::default() }
    }

    /// Waits while it is the Go helper's turn; gives whether it has passed before the deadline.
    pub(crate) async fn give_way(&self, deadline: Instant) -> bool {
        let Some(helper) = &self.helper else { return true };
        loop {
            let step = locked(&self.state).step(Instant::now());
            match step {
                Step::GoOn => return true,
                Step::Ask => {
                    // The look at its sockets waits for a thread, and the disk may hang.
                    let Ok(lives) =
                        timeout_at(deadline.max(Instant::now() + ANSWERS_WITHIN), helper.lives()).await
                    else {
                        return false;
                    };
                    if lives {
                        tracing::debug!("a Go helper of this driver may be waiting: giving it a turn");
                        locked(&self.state).pause(Instant::now());
                    }
                }
                Step::Wait if Instant::now() >= deadline => return false,
                Step::Wait => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Counts a part of the lock that is held from now on.
    pub(crate) fn hold(&self) -> Holding {
        locked(&self.state).take(Instant::now());
        Holding(Arc::clone(&self.state))
    }
}

/// Who has held the lock since when. Pure: time is given.
#[derive(Debug, Default)]
struct State {
    /// How many parts are held.
    held: usize,
    /// Since when there was no gap.
    unbroken_since: Option<Instant>,
    /// Since when none is held.
    free_since: Option<Instant>,
    /// Since when nothing new is begun.
    paused_since: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The next part may be taken.
    GoOn,
    /// Held for long: find out whether a Go helper lives.
    Ask,
    /// It is the Go helper's turn.
    Wait,
}

impl State {
    fn take(&mut self, now: Instant) {
        if self.held == 0 && self.has_gap(now) {
            self.unbroken_since = Some(now);
        }
        self.held += 1;
    }

    fn let_go(&mut self, now: Instant) {
        self.held = self.held.saturating_sub(1);
        if self.held == 0 {
            self.free_since = Some(now);
        }
    }

    fn pause(&mut self, now: Instant) {
        self.paused_since.get_or_insert(now);
    }

    fn step(&mut self, now: Instant) -> Step {
        let long = |since: Option<Instant>, limit| since.is_some_and(|since| now - since >= limit);
        if let Some(since) = self.paused_since {
            if !self.has_gap(now) && now - since < LONGEST_WAIT {
                return Step::Wait;
            }
            self.paused_since = None;
            self.unbroken_since = Some(now);
        } else if !self.has_gap(now) && long(self.unbroken_since, UNBROKEN) {
            // Asked once in a while, by one caller; the others need not wait for the answer.
            self.unbroken_since = Some(now);
            return Step::Ask;
        }
        Step::GoOn
    }

    fn has_gap(&self, now: Instant) -> bool {
        self.held == 0 && self.free_since.is_none_or(|since| now - since >= GAP)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test]
    async fn steps_follow_from_how_long_the_lock_was_held() {
        let start = Instant::now();
        let mut state = State::default();
        assert_eq!(state.step(start), Step::GoOn);
        // Two parts that overlap, then a gap that is too short to count.
        state.take(start);
        state.take(start + ms(900));
        state.let_go(start + ms(1000));
        state.let_go(start + ms(1500));
        state.take(start + ms(1550));
        assert_eq!(state.step(start + ms(1999)), Step::GoOn);
        assert_eq!(state.step(start + ms(2000)), Step::Ask);
        assert_eq!(state.step(start + ms(2000)), Step::GoOn, "another caller does not ask again");
        assert_eq!(state.step(start + ms(4000)), Step::Ask, "no helper lived; asked again later");
        state.pause(start + ms(4000));
        assert_eq!(state.step(start + ms(4000)), Step::Wait);
        state.let_go(start + ms(5000));
        assert_eq!(state.step(start + ms(5099)), Step::Wait, "no gap yet");
        assert_eq!(state.step(start + ms(5100)), Step::GoOn);
        state.take(start + ms(5101));
        assert_eq!(state.step(start + ms(5102)), Step::GoOn, "the pause is over for all");
    }

    #[tokio::test]
    async fn a_pause_ends_though_the_lock_never_gets_free() {
        let start = Instant::now();
        let mut state = State::default();
        state.take(start);
        state.pause(start + ms(2000));
        assert_eq!(state.step(start + ms(11_999)), Step::Wait);
        assert_eq!(state.step(start + ms(12_000)), Step::GoOn);
        assert_eq!(state.step(start + ms(13_999)), Step::GoOn);
        assert_eq!(state.step(start + ms(14_000)), Step::Ask);
    }

    #[tokio::test]
    async fn a_gap_ends_what_counts_as_unbroken() {
        let start = Instant::now();
        let mut state = State::default();
        state.take(start);
        state.let_go(start + ms(1900));
        assert_eq!(state.step(start + ms(2100)), Step::GoOn);
        state.take(start + ms(2100));
        assert_eq!(state.step(start + ms(4000)), Step::GoOn);
        assert_eq!(state.step(start + ms(4100)), Step::Ask);
    }

    #[tokio::test]
    async fn a_helper_lives_if_a_socket_of_its_name_is_listened_at() {
        let folder = tempfile::tempdir().unwrap();
        let helper =
            GoHelper { registry: folder.path().to_owned(), driver: "gpu.example.com".parse().unwrap() };
        assert!(!helper.lives().await);
        let ours = "abc-012345@gpu.example.com-reg.sock";
        let _ours = UnixListener::bind(folder.path().join(ours)).unwrap();
        let _other = UnixListener::bind(folder.path().join("nic.example.com-reg.sock")).unwrap();
        assert!(!helper.lives().await);
        let dead = UnixListener::bind(folder.path().join("gpu.example.com-reg.sock")).unwrap();
        assert!(helper.lives().await);
        drop(dead);
        assert!(!helper.lives().await);
        let name = "gpu.example.com-0b0e26a7-1de8-45dc-a28a-b8e0cb5a2a0a-reg.sock";
        let _rolling = UnixListener::bind(folder.path().join(name)).unwrap();
        assert!(helper.lives().await);
    }
}
