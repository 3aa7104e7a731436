//! Serves the webhook by HTTPS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{get, post},
};
use axum_server::Handle;

use super::{CertificateFiles, Judge, certificate::Certificate};

/// As the Go example driver has it.
const PATH: &str = "/validate-resource-claim-parameters";

/// Two objects of the size that etcd takes, 1.5 MiB, and what is around them.
const LARGEST_REVIEW: usize = 4 << 20;

/// What calls in flight have when the process is told to end. The API server waits for 10 s, if it is not told otherwise.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Serves until `stop` completes.
///
/// # Errors
/// The certificate cannot be used, or the address is taken.
pub(crate) async fn serve(
    address: SocketAddr,
    certificate: CertificateFiles,
    judge: Judge,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let certificate = Certificate::open(certificate).await?;
    let (config, handle) = (certificate.config(), Handle::new());
    tokio::spawn(certificate.follow());
    let stopping = handle.clone();
    tokio::spawn(async move {
        stop.await;
        stopping.graceful_shutdown(Some(STOP_WITHIN));
    });
    let listening = handle.clone();
    tokio::spawn(async move {
        if let Some(address) = listening.listening().await {
            tracing::info!("serving {PATH} and /readyz on {address}");
        }
    });
    let routes = Router::new()
        .route(PATH, post(review))
        .route("/readyz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(LARGEST_REVIEW))
        .with_state(Arc::new(judge));
    let serving = axum_server::bind_rustls(address, config).handle(handle).serve(routes.into_make_service());
    serving.await.with_context(|| format!("serving on {address}"))
}

async fn review(State(judge): State<Arc<Judge>>, body: Bytes) -> impl IntoResponse {
    match judge.answer(&body) {
        Ok(answer) => (StatusCode::OK, [(CONTENT_TYPE, "application/json")], answer),
        Err(error) => {
            tracing::error!("{error}");
            (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "text/plain")], (error + "\n").into_bytes())
        }
    }
}
