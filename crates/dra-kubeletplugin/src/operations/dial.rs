//! One HTTP/2 connection to one of the plugin's own sockets, for the generated clients.

use std::{
    path::Path,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::{Status, body::Body, codegen::Service};

/// The calling half of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client(http2::SendRequest<Body>);

/// Connects to `socket`, makes one call with this `:authority`, and closes the connection. The error is for people.
pub(super) async fn call<T, F>(
    socket: &Path,
    authority: &str,
    call: impl FnOnce(Client, Uri) -> F,
) -> Result<T, String>
where
    F: Future<Output = Result<T, Status>>,
{
    let origin = Uri::builder().scheme("http").authority(authority).path_and_query("/").build();
    let origin = origin.map_err(|error| format!("authority {authority:?}: {error}"))?;
    let stream = UnixStream::connect(socket).await.map_err(|error| format!("connecting: {error}"))?;
    let handshake = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| format!("connecting: {error}"))?;
    tokio::select! {
        biased;
        answer = call(Client(sender), origin) => answer.map_err(|status| status.to_string()),
        ended = connection => Err(match ended {
            Ok(()) => "the connection was closed".to_owned(),
            Err(error) => format!("the connection failed: {error}"),
        }),
    }
}

impl Service<Request<Body>> for Client {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
