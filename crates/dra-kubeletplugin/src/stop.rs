//! Watches over a plugin's servers, and takes the plugin down in order and in time.

use std::{path::Path, time::Duration};

use futures::future::{join, join_all};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    error::RunError, operations::OperationsServer, own_thread::ServerEnd, registration::RegistrationServer,
    server::DraServer, tasks::Panics,
};

/// What it takes, once the time for calls is up, to cut connections and to end the threads of servers whose clients do
/// not go.
const LAST_STEPS: Duration = Duration::from_millis(500);

/// What has to be taken down in order.
pub(crate) struct Parts {
    pub(crate) registrar: RegistrationServer,
    pub(crate) registrar_end: ServerEnd,
    pub(crate) dra: DraServer,
    /// All work on claims: what calls of the kubelet have begun, and what the plugin has begun itself.
    pub(crate) work: TaskTracker,
    /// Ends once this instance does not publish any more.
    pub(crate) turns: JoinHandle<()>,
    /// Panics of any task.
    pub(crate) panics: Panics,
    /// Metrics and probes.
    pub(crate) served: Vec<OperationsServer>,
    /// What all of this may take.
    pub(crate) stop_within: Duration,
}

impl Parts {
    /// Runs until `stop`, or until a server has ended by itself; then takes all down.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), RunError> {
        let failed = |server, path: &Path, reason: String| {
            Err(RunError::Server { server, path: path.to_owned(), reason })
        };
        let outcome = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = &mut self.registrar_end => {
                let reason = match ended {
                    Ok(Err(reason)) => reason,
                    Ok(Ok(())) => "it stopped accepting".to_owned(),
                    Err(_) => "its thread panicked".to_owned(),
                };
                failed("registration", self.registrar.path(), reason)
            }
            reason = self.dra.ended() => failed("DRA", self.dra.path(), reason),
            panic = self.panics.first() => Err(RunError::Panic(panic)),
        };
        stop.cancel();
        self.take_down().await;
        outcome
    }

    /// Calls in flight end first: as soon as the registration socket is gone the kubelet cuts its connection, whatever it
    /// waits for (1.37). Then it loses sight of the plugin, the other socket goes, and another instance may publish.
    /// Metrics and probes are the last: until then they say that the plugin is stopping.
    async fn take_down(mut self) {
        let deadline = Instant::now() + self.stop_within.saturating_sub(LAST_STEPS);
        // What has not ended by then is told and cut by the next step.
        self.work.close();
        let _ = timeout_at(deadline, join(self.dra.idle(), self.work.wait())).await;
        if !self.work.is_empty() {
            tracing::warn!(
                claims = self.work.len(),
                "the driver is still at work on claims; their locks are kept until it ends, or the process does"
            );
        }
        join(drop_elsewhere(self.registrar), self.dra.drain(deadline)).await;
        drop(self.dra);
        // It has begun to end with the first of these steps. If it needs longer it goes on, if the process does.
        if timeout_at(deadline, self.turns).await.is_err() {
            tracing::warn!("a write of ResourceSlices did not end in time");
        }
        join_all(self.served.into_iter().map(drop_elsewhere)).await;
    }
}

/// Takes a server down, off the async workers: that waits for its thread. If that panics, the process is ending anyway.
async fn drop_elsewhere(server: impl Send + 'static) {
    let _ = tokio::task::spawn_blocking(move || drop(server)).await;
}

#[cfg(test)]
mod tests {
    use std::{fs, io};

    use nix::errno::Errno;
    use tokio::sync::{mpsc, oneshot};

    use super::*;
    use crate::{tasks::Tasks, wire::registration::PluginInfo};

    /// Parts of a plugin in a folder, one of whose servers ends with an error.
    fn parts(folder: &Path, server: &str, error: &io::Error) -> (Parts, Tasks) {
        let [hidden, registration, dra] = [".reg.sock", "reg.sock", "dra.sock"].map(|name| folder.join(name));
        let (events, _) = mpsc::unbounded_channel();
        let started = RegistrationServer::start(&hidden, &registration, PluginInfo::default(), events, false);
        let (registrar, mut registrar_end) = started.unwrap();
        if server == "registration" {
            let (tell, end) = oneshot::channel();
            tell.send(Err(error.to_string())).unwrap();
            registrar_end = end;
        }
        let dra_error = (server == "DRA").then(|| io::Error::new(error.kind(), error.to_string()));
        let dra = DraServer::that_ends(&dra, dra_error).unwrap();
        let turns = tokio::spawn(async {});
        let (tasks, panics) = Tasks::new(CancellationToken::new());
        let parts = Parts {
            registrar,
            registrar_end,
            dra,
            work: TaskTracker::new(),
            turns,
            panics,
            served: Vec::new(),
            stop_within: Duration::from_secs(5),
        };
        (parts, tasks)
    }

    #[tokio::test]
    async fn a_server_that_ends_by_itself_ends_the_plugin_which_says_why_and_leaves_no_socket() {
        let error = io::Error::from(Errno::EINVAL);
        for (server, socket) in [("registration", "reg.sock"), ("DRA", "dra.sock")] {
            let folder = tempfile::tempdir().unwrap();
            let stop = CancellationToken::new();
            let ended = parts(folder.path(), server, &error).0.run(stop.clone()).await.unwrap_err();
            let path = folder.path().join(socket);
            let wanted = format!("the {server} server on {} has ended: {error}", path.display());
            assert_eq!(ended.to_string(), wanted);
            assert!(stop.is_cancelled(), "all other tasks are told");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_panic_of_any_task_ends_the_plugin_which_says_which() {
        let folder = tempfile::tempdir().unwrap();
        let (parts, tasks) = parts(folder.path(), "none", &io::Error::from(Errno::EINVAL));
        tasks.spawn("node events", async { panic!("on purpose") });
        let ended = parts.run(CancellationToken::new()).await.unwrap_err();
        assert_eq!(ended, RunError::Panic("node events: on purpose".to_owned()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
