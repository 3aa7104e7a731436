//! The stand-in on a real port, for drivers in another process.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::ApiServer;
use super::handler;

/// A stand-in that is served over HTTP/1.1 and HTTP/2 on a local port; dropped, it stops.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use dra_testkit::api::ApiServer;
/// let served = ApiServer::new().serve().await?;
/// assert!(served.url().starts_with("http://127.0.0.1:"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ServedApi {
    address: SocketAddr,
    stop: CancellationToken,
}

impl ServedApi {
    pub(crate) async fn start(server: ApiServer) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        tokio::spawn(accept(server, listener, stop.clone()));
        Ok(Self { address, stop })
    }

    /// Where the server is, for example `http://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Writes a kubeconfig that leads to this server.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    /// The text of a kubeconfig that leads to this server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let url = self.url();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: testkit\n\
             clusters:\n- name: testkit\n  cluster:\n    server: {url}\n\
             contexts:\n- name: testkit\n  context:\n    cluster: testkit\n    user: testkit\n    namespace: default\n\
             users:\n- name: testkit\n  user: {{}}\n"
        )
    }
}

impl Drop for ServedApi {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(server: ApiServer, listener: TcpListener, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(connection(server.clone(), stream, stop.clone()));
            }
            Err(error) => tracing::warn!(%error, "API server stand-in cannot accept a connection"),
        }
    }
}

async fn connection(server: ApiServer, stream: TcpStream, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = service_fn(move |request| handler::handle(server.clone(), request));
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = stop.cancelled() => {}
        // A cut connection is an error here by intent, a vanished client is no matter.
        result = connection => drop(result),
    }
}
