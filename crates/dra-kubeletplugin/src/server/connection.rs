//! Tells who is connected and who calls: the kubelet holds one connection for as long as it knows the plugin.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
};
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::{
    accepted::{Accepted, Broken, peer},
    registration::{ConnectionId, Event, Events, Peer},
};

/// The connections that a listener accepts.
pub(crate) struct Connections {
    accepted: Accepted<UnixListener>,
    events: Events,
    count_own: bool,
    end: CancellationToken,
    /// How many there have been.
    count: ConnectionId,
}

/// One connection.
pub(crate) struct Connection {
    stream: UnixStream,
    /// Completes when all connections are to end, whatever their clients do.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// None for one of this very process, which counts for nothing.
    open: Option<Arc<Open>>,
}

impl Connections {
    /// `count_own`: whether connections from this very process are the kubelet's. All are cut once `end` is cancelled.
    pub(crate) fn new(
        listener: UnixListener,
        events: Events,
        count_own: bool,
        end: CancellationToken,
    ) -> (Self, Broken) {
        let (accepted, broken) = Accepted::new(listener);
        (Self { accepted, events, count_own, end, count: 0 }, broken)
    }

    fn admit(&mut self, stream: UnixStream) -> Connection {
        self.count += 1;
        let (id, events) = (self.count, self.events.clone());
        let peer = peer(stream.peer_cred().ok(), self.count_own);
        let ended = Box::pin(self.end.clone().cancelled_owned());
        Connection { stream, ended, open: peer.map(|peer| Arc::new(Open::new(id, peer, events))) }
    }
}

impl Connection {
    /// An error once the connection is to end. Asked by readers: a connection is always read from, and an error there
    /// ends it as a whole.
    fn cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the plugin stops"));
        }
        Ok(())
    }
}

impl Stream for Connections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = Pin::new(&mut self.accepted).poll_next(cx);
        accepted.map(|next| next.map(|stream| stream.map(|stream| self.admit(stream))))
    }
}

/// Tells the begin and the end of a connection, and the calls on it. The receiver is gone only while the plugin stops.
struct Open {
    id: ConnectionId,
    events: Events,
}

impl Open {
    fn new(id: ConnectionId, peer: Peer, events: Events) -> Self {
        let _ = events.send(Event::Connected(id, peer));
        Self { id, events }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Disconnected(self.id));
    }
}

/// The connection that a call came over. It does not keep the connection.
#[derive(Clone, Default)]
pub(crate) struct Caller(Weak<Open>);

impl Caller {
    /// Tells that a call has come.
    pub(crate) fn calls(&self) {
        if let Some(open) = self.0.upgrade() {
            let _ = open.events.send(Event::Called(open.id));
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        Caller(self.open.as_ref().map(Arc::downgrade).unwrap_or_default())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.cut(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
