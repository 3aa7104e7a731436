//! Serves the webhook by HTTPS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{get, post},
};
use axum_server::{Handle, tls_rustls::RustlsAcceptor};
use hyper_util::rt::TokioTimer;
use tokio::{sync::Semaphore, time::timeout};

use super::{CertificateFiles, Judge, certificate::Certificate, connections::Limited};

/// As the Go example driver has it.
const PATH: &str = "/validate-resource-claim-parameters";

/// Two objects of the size that etcd takes, 1.5 MiB: an update carries the old one too.
const LARGEST_REVIEW: usize = 3 << 20;

/// How many reviews are read at once, each with the memory of its body twice. The others wait, not long.
const READ_AT_ONCE: usize = 2;
const READ_WITHIN: Duration = Duration::from_secs(5);

/// What a connection may hold before anything of it is read.
const CONNECTION_BUFFER: u32 = 64 << 10;
const HEADERS_WITHIN: Duration = Duration::from_secs(5);
const MOST_STREAMS: u32 = 32;

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
    let routes =
        Router::new().route(PATH, post(review)).route("/readyz", get(|| async { "ok\n" })).with_state(
            Arc::new(Reviews { judge, read: Semaphore::new(READ_AT_ONCE), judged: Semaphore::new(1) }),
        );
    let acceptor = RustlsAcceptor::new(config).acceptor(Limited::default());
    let mut server = axum_server::bind(address).acceptor(acceptor).handle(handle);
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(CONNECTION_BUFFER as usize);
    http.http2()
        .initial_connection_window_size(CONNECTION_BUFFER)
        .initial_stream_window_size(CONNECTION_BUFFER)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(CONNECTION_BUFFER / 4);
    let serving = server.serve(routes.into_make_service());
    serving.await.with_context(|| format!("serving on {address}"))
}

/// The judge, and how many reviews it has at once.
struct Reviews {
    judge: Judge,
    read: Semaphore,
    /// A review is judged in some milliseconds, with memory of its own.
    judged: Semaphore,
}

impl Reviews {
    async fn answer(&self, body: Body) -> Result<Vec<u8>, (StatusCode, String)> {
        let too_slow = |_| (StatusCode::SERVICE_UNAVAILABLE, "busy with other reviews".to_owned());
        // The semaphores are never closed; without them the limits are merely not kept.
        let _read = timeout(READ_WITHIN, self.read.acquire()).await.map_err(too_slow)?;
        let body = timeout(READ_WITHIN, to_bytes(body, LARGEST_REVIEW)).await.map_err(|_| {
            (StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s", READ_WITHIN.as_secs()))
        })?;
        let body = body.map_err(|error| {
            let text = format!("the body cannot be read, or has more than {LARGEST_REVIEW} bytes: {error}");
            (StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
        let _judged = self.judged.acquire().await;
        self.judge.answer(&body).map_err(|error| (StatusCode::BAD_REQUEST, error))
    }
}

async fn review(State(reviews): State<Arc<Reviews>>, body: Body) -> impl IntoResponse {
    match reviews.answer(body).await {
        Ok(answer) => (StatusCode::OK, [(CONTENT_TYPE, "application/json")], answer),
        Err((status, error)) => {
            // As a string of its own: its control characters are escaped.
            tracing::error!(error, "no review");
            (status, [(CONTENT_TYPE, "text/plain")], (error + "\n").into_bytes())
        }
    }
}
