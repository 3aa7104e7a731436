//! Connections to the operations server, kept few: anyone who reaches the port can open them.
//!
//! A new one is always taken, as it may be the kubelet's probe; the oldest has to go for it. One on which nothing is said
//! is cut. So idle connections cost a driver neither its file descriptors nor its probes.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::mutex::locked;

/// Probes, Prometheus and a person have one each, and the kubelet's probes end theirs.
pub(super) const MOST: usize = 64;

/// Longer than any answer takes.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(15);

/// The open connections, the oldest first.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<Numbered>>);

#[derive(Default)]
struct Numbered {
    last: u64,
    open: BTreeMap<u64, CancellationToken>,
}

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
    number: u64,
    open: Open,
    /// Completes when a newer connection takes its place.
    replaced: Pin<Box<WaitForCancellationFutureOwned>>,
    silence: Pin<Box<Sleep>>,
}

/// The connections that a listener accepts, as many as may be.
pub(super) fn limited(
    accepted: impl Stream<Item = io::Result<TcpStream>>,
) -> impl Stream<Item = io::Result<Connection>> {
    let open = Open::default();
    accepted.map(move |stream| stream.map(|stream| open.admit(stream)))
}

impl Open {
    fn admit(&self, stream: TcpStream) -> Connection {
        let (number, replaced) = self.add();
        Connection {
            stream,
            number,
            open: self.clone(),
            replaced: Box::pin(replaced.cancelled_owned()),
            silence: Box::pin(sleep(LONGEST_SILENCE)),
        }
    }

    /// Adds one, and ends the oldest if there are too many.
    fn add(&self) -> (u64, CancellationToken) {
        let mut numbered = locked(&self.0);
        if numbered.open.len() >= MOST
            && let Some((_, oldest)) = numbered.open.pop_first()
        {
            oldest.cancel();
        }
        numbered.last += 1;
        let (number, token) = (numbered.last, CancellationToken::new());
        numbered.open.insert(number, token.clone());
        (number, token)
    }
}

impl Connection {
    /// An error once the connection is to end. Asked by readers: a connection is always read from, and an error there ends
    /// it as a whole.
    fn cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let cut = |why: &str| Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        if self.replaced.as_mut().poll(cx).is_ready() {
            return cut("newer connections take its place");
        }
        if self.silence.as_mut().poll(cx).is_ready() {
            return cut("nothing was said for long");
        }
        Ok(())
    }

    fn heard(&mut self) {
        self.silence.as_mut().reset(Instant::now() + LONGEST_SILENCE);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        locked(&self.open.0).open.remove(&self.number);
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
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

impl AsyncWrite for Connection {
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
        let open = Open::default();
        let tokens: Vec<_> = (0..MOST + 2).map(|_| open.add().1).collect();
        let cut: Vec<_> = tokens.iter().map(CancellationToken::is_cancelled).collect();
        assert!(cut[0] && cut[1] && !cut[2..].contains(&true));
        assert_eq!(locked(&open.0).open.len(), MOST);
    }
}
