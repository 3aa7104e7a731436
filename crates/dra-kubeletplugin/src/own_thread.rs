//! A thread with a runtime of its own, for a server that has to answer whatever becomes of the main runtime.

use std::{io, thread, time::Duration};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long a call in flight may take once the server is told to stop.
const LAST_CALLS: Duration = Duration::from_millis(200);

/// The thread. Dropping it stops the server and waits for it: [`LAST_CALLS`] at most.
#[derive(Debug)]
pub(crate) struct OwnThread {
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

/// How the server ended; an error unless it was told to stop.
pub(crate) type ServerEnd = oneshot::Receiver<Result<(), String>>;

impl OwnThread {
    /// Runs what `serve` makes, which has to end soon after the token it is given is cancelled.
    pub(crate) fn start<F>(
        name: &str,
        serve: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) -> io::Result<(Self, ServerEnd)>
    where
        F: Future<Output = io::Result<()>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let stop = CancellationToken::new();
        let (tell_end, end) = oneshot::channel();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let served = runtime.block_on(async {
                tokio::select! {
                    outcome = serve(stopped.clone()) => outcome,
                    // A client that keeps its connection open must not hold up the stop.
                    () = async { stopped.cancelled().await; tokio::time::sleep(LAST_CALLS).await } => Ok(()),
                }
            });
            // Nobody listens any more once the plugin has stopped.
            let _ = tell_end.send(served.map_err(|error| error.to_string()));
        })?;
        Ok((Self { stop, thread: Some(thread) }, end))
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of a server has panicked");
        }
    }
}
