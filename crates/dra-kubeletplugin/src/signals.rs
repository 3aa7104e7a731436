//! When a process is asked to end. The library installs no handler by itself.

use std::{io, process, thread};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// The future completes at the first SIGTERM or SIGINT. A second one ends the process at once, with code 1, and so does
/// the first if the future has been dropped by then.
///
/// Signals are caught from the moment this returns: call it before [`start`](crate::start()), as a signal that comes
/// earlier kills the process and leaves its sockets. They are waited for on a thread of their own: a driver that blocks the
/// runtime can be ended too.
///
/// # Errors
///
/// The handlers or the thread cannot be made.
pub fn terminate() -> io::Result<impl Future<Output = ()> + Send> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? }
    };
    tracing::debug!("SIGTERM and SIGINT stop the process from now on");
    let (asked, first) = oneshot::channel();
    thread::Builder::new().name("dra-signals".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let name = signals.next().await;
            tracing::info!(signal = name, "stopping; a second signal ends the process at once");
            if asked.send(()).is_ok() {
                let name = signals.next().await;
                tracing::error!(signal = name, "second signal: ending at once");
            }
            process::exit(1)
        })
    })?;
    // The sender is only dropped with the process.
    Ok(async { first.await.unwrap_or_default() })
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
