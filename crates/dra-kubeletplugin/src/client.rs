//! A client for the API server with connections that fit a driver.
//!
//! A claim is fetched while a pod waits, often after minutes of silence. So connections stay open, are known to be
//! alive, and many requests share one.

mod cryptography;
mod trust;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::Uri;
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _},
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use trust::Trust;

/// For a TCP connection and its TLS handshake together.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A server that is silent for so long is asked whether it is there, and has so long to answer.
const SILENCE: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// Why there is no client for the API server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The kubeconfig file cannot be read or used.
    #[error("kubeconfig {}: {source}", path.display())]
    #[non_exhaustive]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// Nothing says where the API server is.
    #[error("no way to the API server: neither a pod's service account nor a kubeconfig ({0}); name one")]
    NoWay(#[source] InferConfigError),
    /// The file of the token ends with a line end, which kube would send as a part of the token.
    #[error(
        "token file {} ends with a line end, which would be sent as a part of the token: write it without one, for \
         example by `printf %s`",
        path.display()
    )]
    #[non_exhaustive]
    TokenFile {
        /// The file.
        path: PathBuf,
    },
    /// Several providers of cryptography are linked, or none, and no choice was made.
    #[error(
        "rustls cannot choose its provider of cryptography ({reason}): turn on the feature `ring` of \
         dra-kubeletplugin, or call `install_default` of a provider first in `main`"
    )]
    #[non_exhaustive]
    Cryptography {
        /// What is wrong.
        reason: String,
    },
    /// What it was told by cannot be used.
    #[error("client for the API server: {0}")]
    Client(#[from] kube::Error),
}

/// The [`client`] of a driver that has an option for a kubeconfig: by this file, or without one by the pod's service
/// account, or by what `kubectl` would use.
///
/// ```no_run
/// # async fn run(kubeconfig: Option<std::path::PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = dra_kubeletplugin::client_from(kubeconfig.as_deref()).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The file, or what was found without one, cannot be read or used; or nothing was found.
pub async fn client_from(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let config = match kubeconfig {
        None => {
            let mut config = Config::infer().await.map_err(ClientError::NoWay)?;
            // In a pod kube knows the file.
            if config.root_cert_file.is_none() {
                config.root_cert_file = Kubeconfig::read().ok().and_then(|read| trust::authority_file(&read));
            }
            config
        }
        Some(path) => {
            let wrong = |source| ClientError::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            let file = trust::authority_file(&read);
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(read, &options).await.map_err(wrong)?;
            config.root_cert_file = file;
            config
        }
    };
    client(config)
}

/// A client for a driver: HTTP/2 where the server has it, so that all requests share one connection; no delay of small
/// packets (`TCP_NODELAY`); a limit of 5 s on connecting; connections that stay open, and whose silence is noticed
/// within 15 s. Nothing is tried again below the SDK, which knows how long it may take, and hears `Retry-After`. A file of
/// certificate authorities is read again each minute.
///
/// kube's own client, which is what [`Client::try_from`](kube::Client) makes, has none of these: with it a burst of
/// claims opens a connection for each. It is what this gives for a `config` that names a proxy.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_kubeletplugin::{client, kube::Config};
///
/// let client = client(Config::infer().await?)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// `config` names a file that cannot be read, or certificates or credentials that cannot be used; or rustls cannot choose
/// its cryptography.
pub fn client(mut config: Config) -> Result<Client, ClientError> {
    refuse_line_end(&config)?;
    cryptography::choose().map_err(|reason| ClientError::Cryptography { reason })?;
    if config.proxy_url.is_some() {
        config.default_retry = false;
        return Ok(Client::try_from(config)?);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(SILENCE));
    let https = https(&config, tcp)?;
    let trust = Arc::new(Trust::new(config.root_cert_file.clone()));
    let connect = tower::service_fn(move |server: Uri| {
        let connecting = https.clone().oneshot(server);
        let trust = Arc::clone(&trust);
        Box::pin(async move {
            let connected = tokio::time::timeout(CONNECT_LIMIT, connecting).await;
            let connected =
                connected.map_err(|_| format!("no connection within {} s", CONNECT_LIMIT.as_secs()))?;
            trust.judge(connected)
        })
    });
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(SILENCE)
        .http2_keep_alive_timeout(PING_LIMIT)
        .http2_keep_alive_while_idle(true)
        .build(connect);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// kube reads the file again and again, and sends what stands in it.
fn refuse_line_end(config: &Config) -> Result<(), ClientError> {
    let auth = &config.auth_info;
    let Some(path) = auth.token_file.as_ref().filter(|_| auth.token.is_none()) else { return Ok(()) };
    match std::fs::read_to_string(path) {
        Ok(token) if token.ends_with(['\n', '\r']) => Err(ClientError::TokenFile { path: path.into() }),
        // kube says what is wrong with a file that cannot be read.
        _ => Ok(()),
    }
}

/// With the credentials of `config`. Its own connector offers HTTP/1.1 only.
fn https(
    config: &Config,
    tcp: HttpConnector,
) -> Result<hyper_rustls::HttpsConnector<HttpConnector>, kube::Error> {
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| {
            kube::Error::RustlsTls(kube::client::RustlsTlsError::InvalidServerName(error))
        })?;
        builder = builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().enable_http2().wrap_connector(tcp))
}

#[cfg(test)]
mod tests {
    use dra_testkit::api::{ApiServer, ApiStatus, Matcher};
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;

    /// Retries are for those who know how long they may take.
    #[tokio::test]
    async fn a_refusal_is_handed_up_at_once() {
        let api = ApiServer::new();
        let served = api.serve().await.unwrap();
        for status in [ApiStatus::unavailable(), ApiStatus::too_many_requests(Duration::from_secs(30))] {
            api.clear_calls();
            let code = status.code;
            let _fault = api.fail_while(Matcher::any(), status);
            let config = Config::new(served.url().parse().unwrap());
            let nodes: Api<Node> = Api::all(client(config).unwrap());
            let error = nodes.get("node-1").await.unwrap_err();
            assert!(matches!(error, kube::Error::Api(status) if status.code == code));
            assert_eq!(api.calls().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_token_file_that_ends_with_a_line_end_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "secret\n").unwrap();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.token_file = Some(path.display().to_string());
        let text = client(config.clone()).err().unwrap().to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("line end"), "{text}");
        config.auth_info.token = Some("inline".to_owned().into());
        assert!(!matches!(client(config), Err(ClientError::TokenFile { .. })), "the file is not read");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named_with_what_is_wrong() {
        let error = client_from(Some(Path::new("/nowhere/kubeconfig"))).await.err().expect("there is none");
        let text = error.to_string();
        assert!(text.starts_with("kubeconfig /nowhere/kubeconfig: ") && text.len() > 40, "{text}");

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, "current-context: nothing").expect("writes");
        let text = client_from(Some(&path)).await.err().expect("it leads nowhere").to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
    }
}
