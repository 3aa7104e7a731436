//! From an HTTP request to an HTTP response.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

use super::ApiServer;
use super::calls::{Call, Verb};
use super::discovery;
use super::faults::Effect;
use super::list;
use super::lock;
use super::request::ApiRequest;
use super::select::Selector;
use super::status::ApiStatus;
use super::store::Key;
use super::watch::Watch;
use super::write::{self, Apply, Part, Preconditions};

/// The field of slices that older versions cannot select by.
const POOL_NAME: &str = "spec.pool.name";

/// Body of every response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers one request.
///
/// # Errors
/// When the connection is to be cut without an answer: the server is unreachable, or the body broke off.
pub(crate) async fn handle<B>(server: ApiServer, request: Request<B>) -> io::Result<Response<Body>>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Display,
{
    if !server.is_reachable() {
        return Err(cut());
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| io::Error::other(error.to_string()))?.to_bytes();
    if head.method == Method::GET
        && let Some(answer) = discovery::answer(head.uri.path(), lock(&server.inner.store).gates.minor)
    {
        return Ok(respond(200, &answer));
    }
    let query = head.uri.query().unwrap_or_default();
    let request = match ApiRequest::parse(&head.method, head.uri.path(), query) {
        Ok(request) => request,
        Err(status) => return Ok(refuse(&status)),
    };
    let content_type =
        head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let payload = Payload::parse(&body, content_type);
    let call = describe(&request, payload.as_ref().ok());
    let index = server.log(call.clone());

    let fault = server.inner.faults.meet(&call).await;
    if matches!(fault, Some(Effect::Cut)) || !server.is_reachable() {
        return Err(cut());
    }
    let response = match fault {
        Some(Effect::Refuse(status)) => refuse(&status),
        fault => {
            let answer = payload.and_then(|payload| serve(&server, &request, payload, call));
            match (answer, fault) {
                (Ok(_), Some(Effect::LoseAnswer(status))) | (Err(status), _) => refuse(&status),
                (Ok(response), _) => with_raw_json(&server, &request, response).await,
            }
        }
    };
    server.log_answer(index, response.status().as_u16());
    Ok(response)
}

/// The body of a request, by its content type.
enum Payload {
    None,
    Json(Value),
    Merge(Value),
    Apply(Value),
}

impl Payload {
    fn parse(body: &[u8], content_type: &str) -> Result<Self, ApiStatus> {
        if body.is_empty() {
            return Ok(Self::None);
        }
        let unreadable =
            |error: &dyn Display| ApiStatus::bad_request(format!("the body cannot be read: {error}"));
        let json = || serde_json::from_slice(body).map_err(|error| unreadable(&error));
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" | "" => Ok(Self::Json(json()?)),
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                Ok(Self::Merge(json()?))
            }
            "application/apply-patch+yaml" => {
                Ok(Self::Apply(serde_yaml_ng::from_slice(body).map_err(|error| unreadable(&error))?))
            }
            other => {
                let message = format!("the stand-in does not take {other:?}");
                Err(ApiStatus::new(415, "UnsupportedMediaType", message))
            }
        }
    }

    fn value(&self) -> Option<&Value> {
        match self {
            Self::None => None,
            Self::Json(value) | Self::Merge(value) | Self::Apply(value) => Some(value),
        }
    }

    fn object(self) -> Result<Value, ApiStatus> {
        match self {
            Self::Json(value) => Ok(value),
            _ => Err(ApiStatus::bad_request("the body must be a JSON object")),
        }
    }
}

fn describe(request: &ApiRequest, payload: Option<&Payload>) -> Call {
    let named = || payload.and_then(Payload::value).and_then(|body| body["metadata"]["name"].as_str());
    let name = match request.verb {
        Verb::Create => named().map(str::to_owned),
        _ => request.name.clone(),
    };
    Call {
        verb: request.verb,
        resource: request.kind.plural.into(),
        namespace: request.namespace.clone(),
        name,
        status: request.status,
        field_selector: request.query.field_selector.clone(),
        field_manager: request.query.field_manager.clone(),
        dry_run: request.query.dry_run,
        answer: None,
    }
}

fn serve(
    server: &ApiServer,
    request: &ApiRequest,
    payload: Payload,
    call: Call,
) -> Result<Response<Body>, ApiStatus> {
    let ApiRequest { kind, verb, namespace, name, status, query } = request;
    let key = Key::new(kind, namespace.as_deref(), name.as_deref().unwrap_or_default());
    let part = if *status { Part::Status } else { Part::Main };
    match verb {
        Verb::Get => {
            let store = lock(&server.inner.store);
            let entry = store.get(&key).ok_or_else(|| ApiStatus::not_found(kind, &key.name))?;
            Ok(respond(200, &entry.object))
        }
        Verb::List => {
            let selector = selector(server, request)?;
            Ok(respond(200, &list::page(&lock(&server.inner.store), kind, &selector, query)?))
        }
        Verb::Watch => open_watch(server, request, call),
        Verb::Create => {
            let object = payload.object()?;
            server
                .change(|store| write::create(store, kind, namespace.as_deref(), object, query.dry_run))
                .map(|object| respond(201, &object))
        }
        Verb::Update => {
            let object = payload.object()?;
            server
                .change(|store| write::update(store, kind, &key, object, part, query.dry_run))
                .map(|object| respond(200, &object))
        }
        Verb::Patch => patch(server, request, &key, part, payload),
        Verb::Delete => {
            let only_if = preconditions(payload.value());
            let dry_run = query.dry_run || asks_dry_run(payload.value());
            server
                .change(|store| write::delete(store, kind, &key, &only_if, dry_run))
                .map(|object| respond(200, &object))
        }
        Verb::DeleteCollection => {
            let selector = selector(server, request)?;
            let deleted = server.delete_selected(kind, &selector);
            Ok(respond(
                200,
                &list::whole(kind, deleted.iter().map(Arc::as_ref), lock(&server.inner.store).version()),
            ))
        }
    }
}

/// See [`ApiServer::set_raw_json`].
async fn with_raw_json(server: &ApiServer, request: &ApiRequest, response: Response<Body>) -> Response<Body> {
    let raw = lock(&server.inner.raw).clone();
    if raw.is_empty() || request.verb == Verb::Watch {
        return response;
    }
    let (head, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    let mut text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    for (placeholder, json) in &raw {
        text = text.replace(placeholder, json);
    }
    Response::from_parts(head, Full::new(Bytes::from(text)).boxed_unsync())
}

fn patch(
    server: &ApiServer,
    request: &ApiRequest,
    key: &Key,
    part: Part,
    payload: Payload,
) -> Result<Response<Body>, ApiStatus> {
    let ApiRequest { kind, query, .. } = request;
    match payload {
        Payload::Merge(patch) => server
            .change(|store| write::merge(store, kind, key, &patch, part, query.dry_run))
            .map(|object| respond(200, &object)),
        Payload::Apply(_) if query.field_manager.is_empty() => {
            Err(ApiStatus::bad_request("an apply needs the parameter fieldManager"))
        }
        Payload::Apply(config) => {
            let existed = lock(&server.inner.store).get(key).is_some();
            let apply = Apply { manager: &query.field_manager, config, force: query.force };
            server
                .change(|store| write::apply(store, kind, key, apply, part, query.dry_run))
                .map(|object| respond(if existed { 200 } else { 201 }, &object))
        }
        Payload::None | Payload::Json(_) => Err(ApiStatus::new(
            415,
            "UnsupportedMediaType",
            "a patch must be a merge, strategic merge or apply patch, told by its content type",
        )),
    }
}

fn open_watch(server: &ApiServer, request: &ApiRequest, call: Call) -> Result<Response<Body>, ApiStatus> {
    let inner = &server.inner;
    let mut fields = request.query.field_selector.clone();
    if let Some(name) = &request.name {
        fields = [fields.as_str(), &format!("metadata.name={name}")].join(",");
    }
    let selector = select(server, request, &fields)?;
    let watch = Watch::open(
        request.kind,
        selector,
        &request.query,
        Arc::clone(&inner.store),
        inner.faults.clone(),
        call,
        &inner.wakeups,
    )?;
    Ok(response(200, StreamBody::new(watch.into_stream()).boxed_unsync()))
}

fn selector(server: &ApiServer, request: &ApiRequest) -> Result<Selector, ApiStatus> {
    select(server, request, &request.query.field_selector)
}

fn select(server: &ApiServer, request: &ApiRequest, fields: &str) -> Result<Selector, ApiStatus> {
    let selector =
        Selector::parse(request.kind, request.namespace.as_deref(), fields, &request.query.label_selector)?;
    if selector.has_field(POOL_NAME) && !lock(&server.inner.store).gates.selects_by_pool() {
        let message = format!("before 1.37, {} cannot be selected by field {POOL_NAME}", request.kind.plural);
        return Err(ApiStatus::bad_request(message));
    }
    Ok(selector)
}

fn preconditions(options: Option<&Value>) -> Preconditions {
    let Some(options) = options else { return Preconditions::default() };
    let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
    Preconditions { uid: text("uid"), resource_version: text("resourceVersion") }
}

fn asks_dry_run(options: Option<&Value>) -> bool {
    options
        .is_some_and(|options| options["dryRun"].as_array().is_some_and(|list| list.contains(&json!("All"))))
}

fn refuse(status: &ApiStatus) -> Response<Body> {
    let mut response = respond(status.code, &status.to_json());
    if let Some(wait) = status.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
    }
    response
}

fn respond(code: u16, body: &Value) -> Response<Body> {
    response(code, Full::new(Bytes::from(body.to_string())).boxed_unsync())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the API server stand-in is unreachable")
}
