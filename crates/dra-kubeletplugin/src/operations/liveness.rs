//! Whether the kubelet could call the plugin, found out by calling as it does.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

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
