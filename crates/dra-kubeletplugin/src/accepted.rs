//! Connections that a socket has accepted.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream, unix::UCred},
    time::Sleep,
};
use tokio_stream::Stream;

/// After an error. A caller waits on while no file descriptor is left for its connection, so that another try at once
/// would fail at once: without a pause that would keep a processor busy.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the process at the other end is this one: then it is a liveness check, which says nothing of the kubelet.
pub(crate) fn is_own(peer: Option<UCred>) -> bool {
    let pid = peer.and_then(|peer| peer.pid());
    pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()))
}

/// An endless stream of connections, and of errors that pass.
pub(crate) struct Accepted {
    listener: UnixListener,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Accepted {
    pub(crate) fn new(listener: UnixListener) -> Self {
        Self { listener, pause: None }
    }
}

impl Stream for Accepted {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let accepted = ready!(self.listener.poll_accept(cx)).map(|(stream, _)| stream);
        if let Err(error) = &accepted {
            tracing::warn!(%error, "cannot accept a connection; trying again");
            self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
        }
        Poll::Ready(Some(accepted))
    }
}
