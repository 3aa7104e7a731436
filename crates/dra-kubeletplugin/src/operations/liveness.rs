//! Whether the kubelet could call the plugin, found out by calling as it does.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::dial::call;
use crate::wire::{
    dra_v1::{NodePrepareResourcesRequest, dra_plugin_client::DraPluginClient},
    registration::{InfoRequest, registration_client::RegistrationClient},
};

/// How long both calls may take. The kubelet gives `GetInfo` one second; a busy machine may take longer, and restarting
/// the driver makes it no faster.
const LIMIT: Duration = Duration::from_secs(3);

/// What grpc-go leaves as it is in an authority, besides letters and digits.
const KEPT: &[u8] = b"-_.~!$&'()*+,;=:[]@";

/// One of the plugin's sockets does not answer as it should, so the process should be restarted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{service} on {} does not answer: {reason}", socket.display())]
#[non_exhaustive]
pub struct NotLive {
    /// What was called: `GetInfo` or `NodePrepareResources`.
    pub service: &'static str,
    /// The socket.
    pub socket: PathBuf,
    /// What went wrong.
    pub reason: String,
}

/// The sockets to call.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    pub(crate) registration: PathBuf,
    pub(crate) dra: PathBuf,
}

/// Liveness for clients that anyone can be: one check at a time, whose outcome counts for a second. Not for callers on a
/// runtime that the driver may block: they would keep the others waiting.
#[derive(Clone, Debug)]
pub(crate) struct Probed {
    liveness: Liveness,
    last: Arc<Mutex<Option<Checked>>>,
}

/// When a check ended, and how.
type Checked = (Instant, Result<(), NotLive>);

/// How long an outcome counts.
const FRESH: Duration = Duration::from_secs(1);

impl Probed {
    pub(crate) fn new(liveness: Liveness) -> Self {
        Self { liveness, last: Arc::default() }
    }

    /// As [`Liveness::check`], or what that has said just now.
    pub(crate) async fn check(&self) -> Result<(), NotLive> {
        self.check_by(|| self.liveness.check()).await
    }

    async fn check_by<F: Future<Output = Result<(), NotLive>>>(
        &self,
        check: impl FnOnce() -> F,
    ) -> Result<(), NotLive> {
        let mut last = self.last.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < FRESH
        {
            return outcome.clone();
        }
        let outcome = check().await;
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

impl Liveness {
    /// Calls both sockets at once over new connections, with the authorities that the kubelet's client sends.
    pub(crate) async fn check(&self) -> Result<(), NotLive> {
        let registration = within_limit("GetInfo", &self.registration, self.get_info());
        let dra = within_limit("NodePrepareResources", &self.dra, self.prepare_nothing());
        tokio::try_join!(registration, dra).map(|_| ())
    }

    async fn get_info(&self) -> Result<(), String> {
        call(&self.registration, &kubelet_authority(&self.registration), |client, origin| async move {
            RegistrationClient::with_origin(client, origin).get_info(InfoRequest {}).await
        })
        .await
        .map(drop)
    }

    async fn prepare_nothing(&self) -> Result<(), String> {
        call(&self.dra, "localhost", |client, origin| async move {
            let nothing = NodePrepareResourcesRequest { claims: Vec::new() };
            DraPluginClient::with_origin(client, origin).node_prepare_resources(nothing).await
        })
        .await
        .map(drop)
    }
}

async fn within_limit(
    service: &'static str,
    socket: &Path,
    call: impl Future<Output = Result<(), String>>,
) -> Result<(), NotLive> {
    let called = tokio::time::timeout(LIMIT, call).await;
    let called = called.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
    called.map_err(|reason| NotLive { service, socket: socket.to_owned(), reason })
}

/// The `:authority` of the kubelet's call on the registration socket: grpc-go makes it of the path, percent-encoded
/// (kubelet 1.34 to 1.37). HTTP libraries in Rust take it only because there is an `@` in the name; if a later one does
/// not, this is where it shows.
pub(crate) fn kubelet_authority(socket: &Path) -> String {
    let bytes = socket.as_os_str().as_bytes().iter();
    let encoded = bytes.map(|&byte| match byte {
        _ if byte.is_ascii_alphanumeric() || KEPT.contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_probes_at_once_are_one_check_which_counts_for_a_second() {
        let probed = Probed::new(Liveness { registration: "/r".into(), dra: "/d".into() });
        let checks = AtomicUsize::new(0);
        let check = || async {
            checks.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(100)).await;
            Ok(())
        };
        let burst = || join_all((0..1000).map(|_| probed.check_by(check)));
        assert!(burst().await.iter().all(Result::is_ok));
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        advance(FRESH).await;
        burst().await;
        assert_eq!(checks.load(Ordering::Relaxed), 2);
    }
}
