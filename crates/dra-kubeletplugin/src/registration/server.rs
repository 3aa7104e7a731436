//! The registration service, on a thread and runtime of its own: `GetInfo` must be answered within one second
//! (kubelet 1.37) even while a driver blocks every worker of the main runtime.

use std::{io, path::Path, thread, time::Duration};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{Event, Events};
use crate::{
    accepted::Accepted,
    socket::BoundSocket,
    wire::registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server::{Registration, RegistrationServer as Service},
    },
};

/// How long a call in flight may take once the plugin stops.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// A served registration socket.
#[derive(Debug)]
pub(crate) struct RegistrationServer {
    socket: BoundSocket,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

/// How the server's thread ended; an error unless it was told to stop.
pub(crate) type ServerEnd = oneshot::Receiver<Result<(), String>>;

impl RegistrationServer {
    /// Serves the socket under its hidden name, then shows it to the kubelet.
    pub(crate) fn start(
        hidden: &Path,
        path: &Path,
        info: PluginInfo,
        events: Events,
    ) -> io::Result<(Self, ServerEnd)> {
        let mut socket = BoundSocket::bind(hidden)?;
        let listener = socket.take_listener().ok_or(io::ErrorKind::NotConnected)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let stop = CancellationToken::new();
        let (tell_end, end) = oneshot::channel();
        let serving = {
            let stop = stop.clone();
            async move {
                let incoming = Accepted::new(tokio::net::UnixListener::from_std(listener)?);
                let until_stopped = tonic::transport::Server::builder()
                    .add_service(Service::new(Answers { info, events }))
                    .serve_with_incoming_shutdown(incoming, stop.cancelled());
                tokio::select! {
                    outcome = until_stopped => outcome.map_err(io::Error::other),
                    // A client that keeps its connection open must not hold up the stop.
                    () = async { stop.cancelled().await; tokio::time::sleep(LAST_CALLS).await } => Ok(()),
                }
            }
        };
        let thread = thread::Builder::new().name("dra-registration".to_owned()).spawn(move || {
            let served = runtime.block_on(serving);
            // Nobody listens any more once the plugin has stopped.
            let _ = tell_end.send(served.map_err(|error| error.to_string()));
        })?;
        let mut server = Self { socket, stop, thread: Some(thread) };
        server.socket.publish(path)?;
        Ok((server, end))
    }

    /// Where the kubelet finds it.
    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }
}

impl Drop for RegistrationServer {
    /// Takes the socket away, then waits for the thread: half a second at most.
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the registration thread has panicked");
        }
    }
}

struct Answers {
    info: PluginInfo,
    events: Events,
}

impl Answers {
    fn tell(&self, event: Event) {
        // The receiver is gone only while the plugin stops.
        let _ = self.events.send(event);
    }
}

#[tonic::async_trait]
impl Registration for Answers {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        self.tell(Event::Asked);
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let outcome = if status.plugin_registered { Ok(()) } else { Err(status.error) };
        self.tell(Event::Notified(outcome));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
