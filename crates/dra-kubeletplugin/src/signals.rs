//! When a process is asked to end. The library installs no handler by itself.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT. A second one ends the process at once, with code 1.
///
/// # Errors
///
/// The handlers cannot be installed.
pub async fn terminate() -> io::Result<()> {
    let mut signals =
        Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping; a second signal ends the process at once");
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::error!(signal = name, "second signal: ending at once");
        std::process::exit(1);
    });
    Ok(())
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
