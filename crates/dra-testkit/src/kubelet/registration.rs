//! Registers the plugin behind one socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dra_kubeletplugin::wire::registration::registration_client::RegistrationClient;
use dra_kubeletplugin::wire::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;

use super::authority;
use super::connection::{self, Client};
use super::health;
use super::options::KubeletBuilder;
use super::plugins::{Plugins, RegisteredPlugin};
use super::services;

/// Deadline of `GetInfo`.
const GET_INFO: Duration = Duration::from_secs(1);

/// Deadline of `NotifyRegistrationStatus`.
const NOTIFY: Duration = Duration::from_secs(5);

/// Pause between attempts to connect.
const REDIAL: Duration = Duration::from_millis(200);

/// The plugin type of DRA drivers.
const DRA_PLUGIN: &str = "DRAPlugin";

/// Asks the plugin who it is, checks it, adds it and tells it so.
///
/// # Errors
/// Why the plugin is not registered. It has been told, unless the connection itself failed.
pub(super) async fn register(
    socket: &Path,
    options: &KubeletBuilder,
    plugins: &Plugins,
) -> Result<(), String> {
    let (mut client, _connection) = dial(socket, options.dial_timeout).await?;
    let info = timeout(GET_INFO, client.get_info(deadline(InfoRequest {}, GET_INFO)))
        .await
        .map_err(|_| format!("GetInfo was not answered within {} s", GET_INFO.as_secs()))?
        .map_err(|status| format!("GetInfo failed: {status}"))?
        .into_inner();
    let added = describe(socket, info, options)
        .and_then(|plugin| plugins.add(plugin, options.reconnect_pause, options.health_pause));
    if let Err(reason) = added {
        let refusal = RegistrationStatus {
            plugin_registered: false,
            error: format!("RegisterPlugin error -- {reason}"),
        };
        // The plugin's view of a refusal changes nothing.
        let _ = timeout(NOTIFY, client.notify_registration_status(deadline(refusal, NOTIFY))).await;
        return Err(reason);
    }
    if options.loses_notifications {
        plugins.confirm(socket);
        return Ok(());
    }
    let confirmation = RegistrationStatus { plugin_registered: true, error: String::new() };
    let notified = timeout(NOTIFY, client.notify_registration_status(deadline(confirmation, NOTIFY))).await;
    let failure = match notified {
        Ok(Ok(_)) => {
            plugins.confirm(socket);
            return Ok(());
        }
        Ok(Err(status)) => format!("NotifyRegistrationStatus failed: {status}"),
        Err(_) => format!("NotifyRegistrationStatus was not answered within {} s", NOTIFY.as_secs()),
    };
    plugins.remove(socket);
    Err(failure)
}

/// Connects to the socket as the kubelet does; the guard closes the connection.
async fn dial(socket: &Path, limit: Duration) -> Result<(RegistrationClient<Client>, DropGuard), String> {
    let (client, connection) = timeout(limit, connect(socket))
        .await
        .map_err(|_| format!("nothing accepted a connection within {} s", limit.as_secs_f64()))?;
    let path = socket.to_string_lossy();
    let origin = authority::accepted(&path).and_then(|authority| connection::origin(authority).ok()).ok_or_else(|| {
        format!(
            "rpc error: code = Internal desc = stream terminated by RST_STREAM with error code: PROTOCOL_ERROR \
             (the kubelet calls with authority {:?}, which HTTP servers in Rust refuse: the socket's file name needs \
             an '@' with only letters, digits, '.', '-', '_' and '~' behind it)",
            authority::encode(&path)
        )
    })?;
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    Ok((RegistrationClient::with_origin(client, origin), stop.drop_guard()))
}

async fn connect(socket: &Path) -> (Client, connection::Driver) {
    loop {
        match connection::connect(socket).await {
            Ok(connection) => return connection,
            Err(error) => log_dial(socket, &error),
        }
        tokio::time::sleep(REDIAL).await;
    }
}

fn log_dial(socket: &Path, error: &io::Error) {
    tracing::debug!(socket = %socket.display(), %error, "cannot connect to the registration socket yet");
}

/// The plugin as it will be registered, if the kubelet takes it.
fn describe(socket: &Path, info: PluginInfo, options: &KubeletBuilder) -> Result<RegisteredPlugin, String> {
    let PluginInfo { r#type, name, endpoint, supported_versions } = info;
    if r#type != DRA_PLUGIN {
        return Err(format!(
            "the plugin at {} is of type {:?}, the stand-in handles {DRA_PLUGIN}",
            socket.display(),
            r#type
        ));
    }
    let service = services::choose(&supported_versions, &options.services)?;
    let endpoint = if endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(endpoint) };
    Ok(RegisteredPlugin {
        driver: name,
        socket: socket.to_owned(),
        endpoint,
        service,
        health: health::choose(&supported_versions, &options.health_services),
        advertised: supported_versions,
        connected: false,
    })
}

/// A request that carries its deadline, as grpc-go sends it.
pub(super) fn deadline<M>(message: M, after: Duration) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(after);
    request
}
