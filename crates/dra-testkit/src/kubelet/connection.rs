//! One HTTP/2 connection over a Unix socket, as a client of the generated gRPC code.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::body::Body;
use tower::Service;

/// The driving half of a connection: runs until the connection ends.
pub(super) type Driver = BoxFuture<'static, Result<(), hyper::Error>>;

/// The calling half of a connection. All clones share it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    sender: http2::SendRequest<Body>,
}

/// Connects to a socket. Nothing moves until the driving half is polled.
///
/// # Errors
/// If nothing listens there.
pub(super) async fn connect(path: &Path) -> io::Result<(Client, Driver)> {
    let stream = UnixStream::connect(path).await?;
    let builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    Ok((Client { sender }, Box::pin(connection)))
}

/// The origin of requests with this authority.
///
/// # Errors
/// If the authority is none.
pub(super) fn origin(
    authority: impl TryInto<http::uri::Authority, Error: Into<http::Error>>,
) -> http::Result<Uri> {
    Uri::builder().scheme("http").authority(authority).path_and_query("/").build()
}

impl Service<Request<Body>> for Client {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
