//! The registration service, on a thread and runtime of its own: `GetInfo` must be answered within one second
//! (kubelet 1.37) even while a driver blocks every worker of the main runtime.

use std::{io, path::Path};

use futures::StreamExt as _;
use tonic::{Request, Response, Status, transport::server::UdsConnectInfo};

use super::{Event, Events, Peer};
use crate::{
    accepted::{Accepted, peer},
    own_thread::{OwnThread, ServerEnd},
    socket::BoundSocket,
    wire::registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer as Service},
    },
};

/// A served registration socket. Dropping it takes the socket away, so that the kubelet loses sight of the plugin, then
/// stops the thread: a fifth of a second at most.
#[derive(Debug)]
pub(crate) struct RegistrationServer {
    socket: BoundSocket,
    _thread: OwnThread,
}

impl RegistrationServer {
    /// Serves the socket under its hidden name, then shows it to the kubelet. `count_own`: whether calls from this very
    /// process are the kubelet's.
    pub(crate) fn start(
        hidden: &Path,
        path: &Path,
        info: PluginInfo,
        events: Events,
        count_own: bool,
    ) -> io::Result<(Self, ServerEnd)> {
        let mut socket = BoundSocket::bind(hidden)?;
        let listener = socket.take_listener().ok_or(io::ErrorKind::NotConnected)?;
        let dialled = events.clone();
        let answers = Answers { info, events, count_own };
        let (thread, end) = OwnThread::start("dra-registration", move |stop| async move {
            let (accepted, broken) = Accepted::new(tokio::net::UnixListener::from_std(listener)?);
            let incoming = accepted.inspect(move |stream| {
                if let Ok(stream) = stream
                    && peer(stream.peer_cred().ok(), count_own).is_some()
                {
                    // The receiver is gone only while the plugin stops.
                    let _ = dialled.send(Event::Dialled);
                }
            });
            let serving = tonic::transport::Server::builder()
                .add_service(Service::new(answers))
                .serve_with_incoming_shutdown(incoming, stop.cancelled());
            broken.or(serving).await
        })?;
        let mut server = Self { _thread: thread, socket };
        server.socket.publish(path)?;
        Ok((server, end))
    }

    /// Where the kubelet finds it.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

struct Answers {
    info: PluginInfo,
    events: Events,
    count_own: bool,
}

impl Answers {
    fn tell(&self, event: Event) {
        // The receiver is gone only while the plugin stops.
        let _ = self.events.send(event);
    }

    /// Who calls, if it can be the kubelet.
    fn peer<T>(&self, request: &Request<T>) -> Option<Peer> {
        let info = request.extensions().get::<UdsConnectInfo>();
        peer(info.and_then(|info| info.peer_cred), self.count_own)
    }
}

#[tonic::async_trait]
impl Registration for Answers {
    async fn get_info(&self, request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        if let Some(peer) = self.peer(&request) {
            self.tell(Event::Asked(peer));
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let peer = self.peer(&request);
        let status = request.into_inner();
        let outcome = if status.plugin_registered { Ok(()) } else { Err(status.error) };
        if let Some(peer) = peer {
            self.tell(Event::Notified(peer, outcome));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
