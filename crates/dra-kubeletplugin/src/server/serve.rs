//! The DRA socket and what is served on it.

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use dra_resourceslice::DriverName;
use tokio::{
    net::UnixListener,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Status, service::InterceptorLayer, transport::Server};

use super::{
    connection::{Caller, Connections},
    dra::DraService,
    health::HealthService,
};
use crate::{
    claims::{Claims, Instance},
    error::StartError,
    health::{HealthReporter, HealthVersion},
    operations::Metrics,
    plugin::DriverPlugin,
    registration::Events,
    socket::BoundSocket,
    wire::{
        dra_v1::dra_plugin_server::DraPluginServer,
        dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginV1beta1,
        health_v1::dra_resource_health_server::DraResourceHealthServer,
        health_v1alpha1::dra_resource_health_server::DraResourceHealthServer as DraResourceHealthV1alpha1,
    },
};

/// What an answer may take to its client once the last call is done, and a connection to end once it is cut.
const LAST_ANSWER: Duration = Duration::from_millis(300);

/// The served DRA socket. Dropping it takes the socket away; [`drain`](Self::drain) ends what is served.
pub(crate) struct DraServer {
    socket: BoundSocket,
    /// Takes no new connections and calls.
    stop: CancellationToken,
    /// Cuts the connections.
    end: CancellationToken,
    calls: TaskTracker,
    served: JoinHandle<io::Result<()>>,
}

/// What is served on it.
pub(crate) struct Served<P: DriverPlugin> {
    pub(crate) claims: Arc<Claims<P>>,
    pub(crate) driver: DriverName,
    pub(crate) metrics: Metrics,
    pub(crate) health: HealthReporter,
    /// Those that the kubelet may ask for.
    pub(crate) health_versions: BTreeSet<HealthVersion>,
    pub(crate) instance: Arc<Instance>,
}

impl DraServer {
    /// Listens on `path`. `count_own`: whether connections from this very process are the kubelet's.
    pub(crate) fn start<P: DriverPlugin>(
        served: Served<P>,
        path: &Path,
        events: Events,
        count_own: bool,
    ) -> Result<Self, StartError> {
        let fail = |source| StartError::Socket { path: path.to_owned(), source };
        let mut socket = BoundSocket::bind(path).map_err(fail)?;
        let listener = socket.take_listener().ok_or_else(|| fail(io::ErrorKind::NotConnected.into()))?;
        let listener = UnixListener::from_std(listener).map_err(fail)?;
        let (stop, end, calls) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let (connections, broken) = Connections::new(listener, events, count_own, end.clone());
        let service = DraService::new(served.claims, served.driver, served.metrics, calls.clone());
        let (reporter, instance) = (served.health, served.instance);
        let neighbours = move || instance.neighbours();
        let health = HealthService { reporter, neighbours, stop: stop.clone() };
        let if_wanted = |version| served.health_versions.contains(&version).then(|| health.clone());
        let served = Server::builder()
            .layer(InterceptorLayer::new(tell_call))
            .add_service(DraPluginServer::new(service.clone()))
            .add_service(DraPluginV1beta1::new(service))
            .add_optional_service(if_wanted(HealthVersion::V1).map(DraResourceHealthServer::new))
            .add_optional_service(if_wanted(HealthVersion::V1Alpha1).map(DraResourceHealthV1alpha1::new))
            .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
        Ok(Self { socket, stop, end, calls, served: tokio::spawn(broken.or(served)) })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Returns, with the reason, when the server has ended by itself.
    pub(crate) async fn ended(&mut self) -> String {
        match (&mut self.served).await {
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(())) => "it stopped accepting".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Returns once no call is under way. Meanwhile new ones are served.
    pub(crate) async fn idle(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Takes no new calls, lets those in flight end until `deadline`, then cuts all connections. A connection on which
    /// nothing is called holds nothing up.
    pub(crate) async fn drain(&mut self, deadline: Instant) {
        self.stop.cancel();
        self.calls.close();
        let all_done = async {
            self.calls.wait().await;
            sleep(LAST_ANSWER).await;
        };
        tokio::select! {
            () = ended(&mut self.served) => {}
            () = all_done => {}
            () = sleep_until(deadline) => {
                tracing::warn!(calls = self.calls.len(), "calls did not end in time; their connections are cut");
            }
        }
        self.end.cancel();
        if timeout(LAST_ANSWER, ended(&mut self.served)).await.is_err() {
            self.served.abort();
        }
    }
}

/// Who calls is the kubelet, whatever came of its registration.
#[expect(clippy::unnecessary_wraps, reason = "an interceptor may refuse")]
fn tell_call(request: Request<()>) -> Result<Request<()>, Status> {
    if let Some(caller) = request.extensions().get::<Caller>() {
        caller.calls();
    }
    Ok(request)
}

/// A task that has ended before cannot be waited for again.
async fn ended<T>(task: &mut JoinHandle<T>) {
    if !task.is_finished() {
        // However it ended.
        let _ = task.await;
    }
}

#[cfg(test)]
impl DraServer {
    /// A server that accepts nothing, and ends with this error or once it is told to.
    pub(crate) fn that_ends(path: &Path, error: Option<io::Error>) -> io::Result<Self> {
        let socket = BoundSocket::bind(path)?;
        let (stop, end, calls) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        let served = tokio::spawn(async move {
            if let Some(error) = error {
                return Err(error);
            }
            stopped.cancelled().await;
            Ok(())
        });
        Ok(Self { socket, stop, end, calls, served })
    }
}
