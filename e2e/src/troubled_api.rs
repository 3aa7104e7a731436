//! A way to the real API server that answers some requests itself, as an API server in trouble does, and counts all.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// What the API server does with requests for ResourceSlices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Each request is answered with 503, those for other objects too.
    Unavailable,
    /// Each write is answered with 429 and `Retry-After: 30`.
    TooManyRequests,
    /// Each write is answered with 422.
    Denied,
    /// Taints are dropped from what is written, as with the gate off.
    DropsTaints,
}

/// Requests for ResourceSlices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) watches: usize,
    pub(crate) lists: usize,
    /// Dry runs and reads of one slice too.
    pub(crate) others: usize,
}

/// The proxy. It ends with this.
pub(crate) struct TroubledApi {
    shared: Arc<Shared>,
    /// Connections end when this changes.
    trouble: watch::Sender<Trouble>,
    url: String,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    client: Client,
    counts: Mutex<Requests>,
}

impl TroubledApi {
    /// Passes requests on with the rights of `client`.
    pub(crate) async fn start(client: Client) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared { client, counts: Mutex::default() });
        let (trouble, seen) = watch::channel(Trouble::None);
        let served = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served), seen.clone()));
            }
        });
        Ok(Self { shared, trouble, url, task })
    }

    /// Writes a kubeconfig that leads here.
    pub(crate) fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(path, config.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// From now on. All connections end, as when an API server is restarted with other flags.
    pub(crate) fn set(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    /// What has been asked since the last time.
    pub(crate) fn take_counts(&self) -> Requests {
        std::mem::take(&mut *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for TroubledApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, mut trouble: watch::Receiver<Trouble>) {
    let now = *trouble.borrow_and_update();
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(now, request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that goes is none of our business.
        served = connection => drop(served),
        changed = trouble.changed() => drop(changed),
    }
}

impl Shared {
    async fn answer(&self, trouble: Trouble, request: Request<Incoming>) -> Response<Body> {
        let is_write = request.method() != Method::GET;
        let is_of_slices = request.uri().path().contains("/resourceslices");
        if is_of_slices {
            self.count(&request);
        }
        match trouble {
            Trouble::Unavailable => refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", None),
            Trouble::TooManyRequests if is_of_slices && is_write => {
                refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", Some(30))
            }
            Trouble::Denied if is_of_slices && is_write => {
                refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", None)
            }
            _ => {
                let drops = trouble == Trouble::DropsTaints && is_of_slices && is_write;
                self.pass_on(request, drops).await.unwrap_or_else(|error| {
                    println!("    note: a request could not be passed on: {error:#}");
                    refusal(StatusCode::BAD_GATEWAY, "InternalError", None)
                })
            }
        }
    }

    fn count(&self, request: &Request<Incoming>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_all = request.uri().path().ends_with("/resourceslices");
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        match (request.method() == Method::GET, of_all, watches) {
            (true, true, true) => counts.watches += 1,
            (true, true, false) => counts.lists += 1,
            _ => counts.others += 1,
        }
    }

    async fn pass_on(&self, request: Request<Incoming>, drops_taints: bool) -> Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        let mut body = body.collect().await.context("reading a request")?.to_bytes();
        if drops_taints && !body.is_empty() {
            body = without_taints(&body)?.into();
        }
        let path = head.uri.path_and_query().context("a request without a path")?;
        head.uri = path.as_str().parse().context("a request's path")?;
        // The client's own, or those of the hop.
        for name in [
            header::HOST,
            header::AUTHORIZATION,
            header::CONTENT_LENGTH,
            header::ACCEPT_ENCODING,
            header::CONNECTION,
            header::TRANSFER_ENCODING,
        ] {
            head.headers.remove(name);
        }
        head.version = http::Version::default();
        let mut answer = self.client.send(Request::from_parts(head, Body::from(body))).await?;
        for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
            answer.headers_mut().remove(name);
        }
        Ok(answer)
    }
}

/// # Errors
/// The content is no JSON: by default client-go writes protobuf.
fn without_taints(content: &[u8]) -> Result<Vec<u8>> {
    let mut slice: Value = serde_json::from_slice(content).context("a slice that is no JSON")?;
    if let Some(devices) = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut) {
        for device in devices.iter_mut().filter_map(Value::as_object_mut) {
            device.remove("taints");
        }
    }
    Ok(serde_json::to_vec(&slice)?)
}

/// An answer as the API server gives it.
fn refusal(code: StatusCode, reason: &str, retry_after: Option<u32>) -> Response<Body> {
    let mut details = BTreeMap::new();
    if let Some(seconds) = retry_after {
        details.insert("retryAfterSeconds", seconds);
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "trouble of the scenario",
        "reason": reason, "code": code.as_u16(), "details": details,
    });
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}
