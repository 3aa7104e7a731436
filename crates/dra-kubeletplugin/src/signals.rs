//! When a process is asked to end. The library installs no handler by itself.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
};

/// The future completes at the first SIGTERM or SIGINT. A second one ends the process at once, with code 1, and so does
/// the first if the future has been dropped by then. The handler itself does that: a driver that blocks the runtime can
/// be ended too.
///
/// Signals are caught from the moment this returns: call it before [`start`](crate::start()), as a signal that comes
/// earlier kills the process and leaves its sockets.
///
/// # Errors
///
/// The handlers cannot be made, or it is called outside of a tokio runtime.
///
/// # Panics
///
/// The runtime has no I/O: `enable_all` or `enable_io` gives it some.
pub fn terminate() -> io::Result<impl Future<Output = ()> + Send> {
    runtime::Handle::try_current().map_err(io::Error::other)?;
    let asked = Arc::new(AtomicBool::new(false));
    for number in [SIGTERM, SIGINT] {
        // In this order: the first signal finds that nobody has asked yet, and notes that somebody has.
        flag::register_conditional_shutdown(number, 1, Arc::clone(&asked))?;
        flag::register(number, Arc::clone(&asked))?;
    }
    let mut signals =
        Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    tracing::debug!("SIGTERM and SIGINT stop the process from now on");
    let unheard = Unheard(Some(asked));
    Ok(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "stopping; a second signal ends the process at once");
        unheard.heard();
    })
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// If it is dropped, nobody stops at a signal any more.
struct Unheard(Option<Arc<AtomicBool>>);

impl Unheard {
    /// A signal has come. The handler notes that itself: it may not have come to its end yet, and must not take the signal
    /// that woke us for the second.
    fn heard(mut self) {
        self.0 = None;
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(asked) = &self.0 {
            asked.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_future_that_nobody_awaits_makes_the_first_signal_the_last() {
        let asked = Arc::new(AtomicBool::new(false));
        Unheard(Some(Arc::clone(&asked))).heard();
        assert!(!asked.load(Ordering::SeqCst), "the handler of the first signal may still be running");
        drop(Unheard(Some(Arc::clone(&asked))));
        assert!(asked.load(Ordering::SeqCst));
    }
}
