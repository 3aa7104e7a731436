//! Connections that a socket has accepted.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use nix::errno::Errno;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream, unix::UCred},
    sync::oneshot,
    time::Sleep,
};
use tokio_stream::Stream;

use crate::registration::Peer;

/// After an error. A caller waits on while no file descriptor is left for its connection, so that another try at once
/// would fail at once: without a pause that would keep a processor busy.
const PAUSE: Duration = Duration::from_millis(100);

/// The process at the other end. None if it is this one: then it is a liveness check, which says nothing of the kubelet.
/// `count_own`: whether this very process may be the kubelet.
pub(crate) fn peer(credentials: Option<UCred>, count_own: bool) -> Option<Peer> {
    let pid = credentials.and_then(|credentials| credentials.pid());
    let is_own = pid.is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()));
    (count_own || !is_own).then_some(Peer(pid))
}

/// Something that accepts connections.
pub(crate) trait Listener: Unpin {
    type Stream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        Self::poll_accept(self, cx).map_ok(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        Self::poll_accept(self, cx).map_ok(|(stream, _)| stream)
    }
}

/// A stream of connections, and of errors that pass. It ends with the first error after which the listener can accept
/// nothing any more.
pub(crate) struct Accepted<L> {
    listener: L,
    pause: Option<Pin<Box<Sleep>>>,
    /// Taken once it has been told.
    tell: Option<oneshot::Sender<io::Error>>,
}

/// Hears why a listener can accept nothing any more. A server that serves the stream does not tell: it goes on with the
/// connections that it has.
pub(crate) struct Broken(oneshot::Receiver<io::Error>);

impl<L: Listener> Accepted<L> {
    pub(crate) fn new(listener: L) -> (Self, Broken) {
        let (tell, told) = oneshot::channel();
        (Self { listener, pause: None, tell: Some(tell) }, Broken(told))
    }
}

impl Broken {
    /// Runs a server until it ends or its listener is broken, which is an error.
    pub(crate) async fn or<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        self,
        serving: impl Future<Output = Result<(), E>>,
    ) -> io::Result<()> {
        let broken = async {
            match self.0.await {
                Ok(error) => error,
                // The server has dropped the stream, since it is ending.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = serving => ended.map_err(io::Error::other),
            error = broken => Err(error),
        }
    }
}

impl<L: Listener> Stream for Accepted<L> {
    type Item = io::Result<L::Stream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let accepted = ready!(self.listener.poll_accept(cx));
        if let Err(error) = accepted {
            if !passes(&error) {
                if let Some(tell) = self.tell.take() {
                    // Nobody listens while the server ends.
                    let _ = tell.send(error);
                }
                return Poll::Ready(None);
            }
            tracing::warn!(%error, "cannot accept a connection; trying again");
            self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(Some(accepted))
    }
}

/// Whether a later try may succeed. These say that the descriptor is no listening socket (any more).
fn passes(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    !matches!(errno, Some(Errno::EBADF | Errno::EINVAL | Errno::ENOTSOCK | Errno::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio_stream::StreamExt as _;

    use super::*;

    /// Accepts what it is told to.
    struct Told(Mutex<VecDeque<Result<u8, Errno>>>);

    impl Told {
        fn new(outcomes: impl IntoIterator<Item = Result<u8, Errno>>) -> Self {
            Self(Mutex::new(outcomes.into_iter().collect()))
        }
    }

    impl Listener for Told {
        type Stream = u8;

        fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<u8>> {
            match self.0.lock().unwrap().pop_front() {
                Some(outcome) => Poll::Ready(outcome.map_err(Into::into)),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_that_pass_are_followed_by_a_pause_and_the_next_connection() {
        let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ECONNABORTED, Errno::EINTR];
        for errno in passing {
            let (mut accepted, _broken) = Accepted::new(Told::new([Ok(1), Err(errno), Ok(2)]));
            assert_eq!(accepted.next().await.unwrap().unwrap(), 1);
            assert!(accepted.next().await.unwrap().is_err());
            let failed = tokio::time::Instant::now();
            assert_eq!(accepted.next().await.unwrap().unwrap(), 2);
            assert_eq!(failed.elapsed(), PAUSE, "{errno}");
        }
    }

    #[tokio::test]
    async fn a_broken_listener_ends_the_stream_and_the_server_that_has_it() {
        for errno in [Errno::EBADF, Errno::EINVAL, Errno::ENOTSOCK, Errno::EOPNOTSUPP] {
            let (mut accepted, broken) = Accepted::new(Told::new([Ok(1), Err(errno), Ok(2)]));
            let serving = async {
                while let Some(connection) = accepted.next().await {
                    assert_eq!(connection.unwrap(), 1);
                }
                // As a server does whose clients stay.
                std::future::pending::<io::Result<()>>().await
            };
            let error = broken.or(serving).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno as i32));
        }
    }

    #[tokio::test]
    async fn a_server_that_is_told_to_stop_is_waited_for() {
        let (accepted, broken) = Accepted::new(Told::new([]));
        let serving = async {
            drop(accepted);
            tokio::task::yield_now().await;
            io::Result::Ok(())
        };
        broken.or(serving).await.unwrap();
    }
}
