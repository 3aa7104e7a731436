//! The webhook's connections, kept few: any pod that reaches the port can open them. A new one is always taken, as it may be
//! the API server's; the oldest has to go for it. One on which nothing is said is cut.

use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};

/// An API server has one or two, and a cluster a few API servers.
const MOST: usize = 64;

/// API servers keep their connections; a new one takes them some milliseconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// Takes connections. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Limited(Arc<Mutex<Open>>);

/// What ends each connection, the oldest first.
#[derive(Default)]
struct Open {
    last: u64,
    ends: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One connection.
pub(super) struct Connection<I> {
    stream: I,
    number: u64,
    all: Limited,
    /// Completes when a newer connection takes its place.
    replaced: oneshot::Receiver<()>,
    silence: Pin<Box<Sleep>>,
}

impl<I, S> Accept<I, S> for Limited {
    type Stream = Connection<I>;
    type Service = S;
    type Future = Ready<io::Result<(Connection<I>, S)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let (number, replaced) = self.add();
        let silence = Box::pin(sleep(LONGEST_SILENCE));
        ready(Ok((Connection { stream, number, all: self.clone(), replaced, silence }, service)))
    }
}

impl Limited {
    /// Adds one, and ends the oldest if there are too many.
    fn add(&self) -> (u64, oneshot::Receiver<()>) {
        let mut open = self.open();
        if open.ends.len() >= MOST {
            // Dropped, it ends its connection.
            open.ends.pop_first();
        }
        open.last += 1;
        let (number, (end, ended)) = (open.last, oneshot::channel());
        open.ends.insert(number, end);
        (number, ended)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I> Connection<I> {
    /// An error once the connection is to end. Asked by readers: a connection is always read from.
    fn cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let replaced = Pin::new(&mut self.replaced).poll(cx).is_ready();
        if replaced || self.silence.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    fn heard(&mut self) {
        self.silence.as_mut().reset(Instant::now() + LONGEST_SILENCE);
    }
}

impl<I> Drop for Connection<I> {
    fn drop(&mut self) {
        self.all.open().ends.remove(&self.number);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Connection<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_pending() {
            self.cut(cx)?;
        } else if buf.filled().len() > before {
            self.heard();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Connection<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.heard();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_takes_the_place_of_the_oldest() {
        let all = Limited::default();
        let mut ends: Vec<_> = (0..=MOST).map(|_| all.add().1).collect();
        let replaced: Vec<_> = ends
            .iter_mut()
            .map(|end| end.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed))
            .collect();
        assert!(replaced[0] && !replaced[1..].contains(&true));
        assert_eq!(all.open().ends.len(), MOST);
    }
}
