//! Serves pages and gRPC health on one address, on a thread of its own: a plugin whose runtime is blocked has to be
//! able to say so.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use http::{Request, Response};
use tonic::{body::Body, codegen::Service as _, server::NamedService, transport::Server};
use tonic_health::pb::health_server::HealthServer;

use super::{Operations, connections, grpc::Probes, pages};
use crate::{accepted::Accepted, error::StartError, own_thread::OwnThread};

/// A client that does nothing does not keep its connection for longer.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);
const LONGEST_REQUEST: Duration = Duration::from_secs(10);

/// An address that is listened on and not served yet.
#[derive(Debug)]
pub(crate) struct OperationsListener {
    listener: TcpListener,
    /// With the port that the system chose, if it was asked to.
    address: SocketAddr,
}

/// A served address. Dropping it stops the server and waits for it: a fifth of a second at most.
#[derive(Debug)]
pub(crate) struct OperationsServer {
    _thread: OwnThread,
}

/// Listens on each address; early in a start, as it fails if one is taken.
pub(crate) fn bind_operations(
    addresses: &BTreeSet<SocketAddr>,
) -> Result<Vec<OperationsListener>, StartError> {
    let bind = |&address: &SocketAddr| {
        OperationsListener::bind(address).map_err(|source| StartError::Operations { address, source })
    };
    addresses.iter().map(bind).collect()
}

/// Serves them.
pub(crate) fn serve_operations(
    listeners: Vec<OperationsListener>,
    operations: &Operations,
) -> Result<Vec<OperationsServer>, StartError> {
    let serve = |listener: OperationsListener| {
        let address = listener.address();
        let served = listener.serve(operations.clone());
        served.map_err(|source| StartError::Operations { address, source })
    };
    listeners.into_iter().map(serve).collect()
}

impl OperationsListener {
    fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn serve(self, operations: Operations) -> io::Result<OperationsServer> {
        let Self { listener, address } = self;
        let probes = HealthServer::new(Probes(operations.clone()));
        let service = tower::service_fn(move |request| answer(operations.clone(), probes.clone(), request));
        let (thread, _) = OwnThread::start("dra-operations", move |stop| async move {
            let (incoming, broken) = Accepted::new(tokio::net::TcpListener::from_std(listener)?);
            let server = Server::builder()
                .accept_http1(true)
                .timeout(LONGEST_REQUEST)
                .max_connection_age(LONGEST_CONNECTION)
                .max_connection_age_grace(LONGEST_REQUEST);
            let serving = server.serve_with_incoming_shutdown(
                service,
                connections::limited(incoming),
                stop.cancelled(),
            );
            let ended = broken.or(serving).await;
            // Probes that get no answer restart the process.
            ended.inspect_err(
                |error| tracing::error!(%address, %error, "serving metrics and probes has ended"),
            )
        })?;
        tracing::info!(%address, "serving metrics and probes");
        Ok(OperationsServer { _thread: thread })
    }
}

async fn answer(
    operations: Operations,
    mut probes: HealthServer<Probes>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let service = request.uri().path().trim_start_matches('/').split('/').next();
    if service == Some(HealthServer::<Probes>::NAME) {
        return probes.call(request).await;
    }
    Ok(pages::answer(&operations, request).await)
}
