//! What is seen on the node that the program runs on.

use std::{path::Path, time::Duration};

use super::{NodeWanted, processes, runtime, sockets};
use crate::snapshot::{Answer, CdiFolder, Looked, RegistrationSocket, Snapshot, UnixSocket};

/// A kubelet connects to a plugin that it registers, and again when its connection has ended: that takes 5 s at most.
const LOOKS: u32 = 14;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

pub(super) async fn look(wanted: &NodeWanted, snapshot: &mut Snapshot) {
    snapshot.node.clone_from(&wanted.name);
    snapshot.kubelet_root.clone_from(&wanted.kubelet_root);
    let (proc, root) = (wanted.proc.clone(), wanted.kubelet_root.clone());
    let real_root = blocking(move || Ok(root.canonicalize().unwrap_or(root))).await;
    snapshot.real_kubelet_root = real_root.unwrap_or_else(|_| wanted.kubelet_root.clone());
    snapshot.kubelets = looked(blocking(move || processes::kubelets(&proc)).await);
    let mut registry = sockets::registry(&wanted.kubelet_root.join("plugins_registry")).await;
    snapshot.unix_sockets = looked(connections(&wanted.proc, registry.as_deref().unwrap_or_default()).await);
    if let Ok(registry) = &mut registry {
        sockets::dial_services(registry).await;
    }
    snapshot.registry = looked(registry);
    snapshot.runtime = looked(runtime::look(wanted.runtime.as_deref()).await);
    let cdi = wanted.cdi.clone();
    let real = blocking(move || Ok(cdi.canonicalize().unwrap_or(cdi))).await;
    snapshot.cdi = looked(real.map(|real| CdiFolder { path: wanted.cdi.clone(), real }));
}

/// The sockets, once all plugins have a connection, or else as they are in the end.
async fn connections(proc: &Path, registry: &[RegistrationSocket]) -> Result<Vec<UnixSocket>, String> {
    let mut looks = 0;
    loop {
        let proc = proc.to_owned();
        let seen = blocking(move || processes::unix_sockets(&proc)).await?;
        looks += 1;
        let has = |path: &Path, listening: bool| {
            seen.iter().any(|socket| socket.path == path && socket.is_listening == listening)
        };
        let is_connected = |socket: &RegistrationSocket| match &socket.answer {
            // Nobody connects to what does not listen.
            Answer::Good(info) => has(&info.endpoint, false) || !has(&info.endpoint, true),
            _ => true,
        };
        if looks == LOOKS || registry.iter().all(is_connected) {
            return Ok(seen);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Runs what reads files away from the runtime's threads.
async fn blocking<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())?
}

fn looked<T>(seen: Result<T, String>) -> Looked<T> {
    seen.map_or_else(Looked::CouldNot, Looked::At)
}
