//! A small API server in the test's process: slices and nodes, watches, faults, and a log of calls.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    Feature,
    features::{Features, used},
    test_api::stored,
};

/// One request: the verb, and the name of the slice or node it is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Call {
    pub(super) verb: &'static str,
    pub(super) name: String,
    pub(super) selector: String,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// It is answered with this status and nothing is done.
    Status(u16),
    /// The same, with a time to wait in seconds.
    RetryAfter(u16, u32),
    /// It is carried out, but never answered.
    LostAnswer,
    /// It is never answered and nothing is done.
    Hang,
}

type Faults = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;
type ResponseBody = BoxBody<Bytes, Infallible>;

/// The API server. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    slices: BTreeMap<String, ResourceSlice>,
    nodes: BTreeMap<String, String>,
    version: u64,
    watches: Vec<mpsc::UnboundedSender<Value>>,
    /// All events so far, so that a watch can begin in the past.
    history: Vec<(u64, Value)>,
    /// Watches are open but say nothing.
    silent: bool,
    /// Watches say everything this much later.
    late: Duration,
    /// Watches from before this version are answered with 410.
    oldest: u64,
    drops: Features,
    /// How long a write takes.
    slow: Duration,
    /// A mutating webhook adds an attribute with another value each time.
    mutate: bool,
    /// Dry runs are refused, because an admission webhook has side effects.
    no_dry_runs: bool,
    faults: Option<Faults>,
    calls: Vec<Call>,
}

impl FakeApi {
    /// An API server that has the node `node-1`.
    pub(super) fn new() -> Self {
        let api = Self::default();
        api.set_node("node-1", Some("node-uid-1"));
        api
    }

    pub(super) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.handle(request).await) }
        });
        kube::Client::new(service, "default")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn set_node(&self, name: &str, uid: Option<&str>) {
        let mut state = self.lock();
        match uid {
            Some(uid) => state.nodes.insert(name.to_owned(), uid.to_owned()),
            None => state.nodes.remove(name),
        };
    }

    pub(super) fn slices(&self) -> Vec<ResourceSlice> {
        self.lock().slices.values().cloned().collect()
    }

    /// The requests that change something, and whether they succeed is not said.
    pub(super) fn writes(&self) -> Vec<&'static str> {
        let others = ["get", "list", "watch", "node", "dry-run"];
        self.lock().calls.iter().map(|call| call.verb).filter(|verb| !others.contains(verb)).collect()
    }

    pub(super) fn count(&self, verb: &str) -> usize {
        self.lock().calls.iter().filter(|call| call.verb == verb).count()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    pub(super) fn forget_calls(&self) {
        self.lock().calls.clear();
    }

    /// Asks the function about every request to come.
    pub(super) fn faults(&self, faults: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        self.lock().faults = Some(Box::new(faults));
    }

    pub(super) fn no_faults(&self) {
        self.lock().faults = None;
    }

    pub(super) fn drop_fields_of(&self, features: &[crate::Feature]) {
        self.lock().drops = features.iter().copied().collect();
    }

    /// Lets watches say nothing, as behind a dead connection, or end them all.
    pub(super) fn silence(&self) {
        self.lock().silent = true;
    }

    pub(super) fn end_silence(&self) {
        self.lock().silent = false;
    }

    pub(super) fn be_late(&self, late: Duration) {
        self.lock().late = late;
    }

    /// Takes that many versions for other objects.
    pub(super) fn bump(&self, by: u64) {
        self.lock().version += by;
    }

    pub(super) fn slow(&self, by: Duration) {
        self.lock().slow = by;
    }

    pub(super) fn mutate(&self, on: bool) {
        self.lock().mutate = on;
    }

    pub(super) fn refuse_dry_runs(&self) {
        self.lock().no_dry_runs = true;
    }

    /// As a restore of etcd: versions and content go back.
    pub(super) fn restore(&self, version: u64, slices: Vec<ResourceSlice>) {
        let mut state = self.lock();
        state.watches.clear();
        state.history.clear();
        state.version = version;
        state.slices = slices.into_iter().map(|s| (s.metadata.name.clone().unwrap(), s)).collect();
    }

    /// Ends all watches.
    pub(super) fn end_watches(&self) {
        self.lock().watches.clear();
    }

    /// Ends all watches, and forgets what was before.
    pub(super) fn expire_watches(&self) {
        let mut state = self.lock();
        state.watches.clear();
        state.version += 1;
        state.oldest = state.version;
    }

    /// Somebody else deletes a slice.
    pub(super) fn delete(&self, name: &str) {
        self.lock().delete(name);
    }

    pub(super) fn delete_all(&self) {
        self.slices().iter().for_each(|slice| self.delete(slice.metadata.name.as_deref().unwrap()));
    }

    /// Somebody else writes a slice.
    pub(super) fn put(&self, slice: ResourceSlice) {
        self.lock().store(slice, false);
    }

    async fn handle(&self, request: Request<Body>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query: BTreeMap<String, String> =
            parts.uri.query().unwrap_or_default().split('&').filter_map(pair).collect();
        let has = |key: &str, value: &str| query.get(key).is_some_and(|found| found == value);
        let path = parts.uri.path().to_owned();
        let (kind, name) = match path.rsplit_once('/').unwrap() {
            (rest, "resourceslices") if rest.ends_with("/v1") => ("slices", String::new()),
            (rest, name) if rest.ends_with("/resourceslices") => ("slices", name.to_owned()),
            (rest, name) if rest.ends_with("/nodes") => ("nodes", name.to_owned()),
            _ => return status(404, "NotFound", None),
        };
        let slice: Option<ResourceSlice> = serde_json::from_slice(&body).ok();
        let slice_name = slice.as_ref().and_then(|slice| slice.metadata.name.clone());
        let dry_run = has("dryRun", "All");
        let verb = match (parts.method, kind) {
            (Method::GET, "nodes") => "node",
            (Method::GET, _) if query.contains_key("watch") => "watch",
            (Method::GET, _) if name.is_empty() => "list",
            (Method::GET, _) => "get",
            (Method::POST | Method::PUT, _) if dry_run => "dry-run",
            (Method::POST, _) => "create",
            (Method::PUT, _) => "update",
            (Method::DELETE, _) => "delete",
            (method, _) => panic!("unexpected {method} {path}"),
        };
        let selector = query.get("fieldSelector").cloned().unwrap_or_default();
        let name = if name.is_empty() { slice_name.unwrap_or_default() } else { name };
        let call = Call { verb, name: name.clone(), selector: selector.clone() };
        let fault = {
            let mut state = self.lock();
            state.calls.push(call.clone());
            state.faults.as_mut().and_then(|faults| faults(&call))
        };
        match fault {
            Some(Fault::Status(code)) => return status(code, "Injected", None),
            Some(Fault::RetryAfter(code, seconds)) => return status(code, "Injected", Some(seconds)),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::LostAnswer) | None => {}
        }
        let slow = self.lock().slow;
        if matches!(verb, "create" | "update" | "delete") {
            tokio::time::sleep(slow).await;
        }
        if verb == "dry-run" && self.lock().no_dry_runs {
            return status(400, "admission webhook \"w.example.com\" does not support dry run", None);
        }
        let response = match verb {
            "watch" => self.watch(&selector, &query),
            "list" => self.list(&selector),
            _ => self.lock().answer(verb, &name, slice, &body),
        };
        if let Some(Fault::LostAnswer) = fault {
            std::future::pending::<()>().await;
        }
        response
    }

    fn list(&self, selector: &str) -> Response<ResponseBody> {
        let state = self.lock();
        let items: Vec<_> = state.slices.values().filter(|slice| selects(selector, slice)).collect();
        let metadata = json!({ "resourceVersion": state.version.to_string() });
        json_response(
            200,
            &json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": metadata, "items": items }),
        )
    }

    fn watch(&self, selector: &str, query: &BTreeMap<String, String>) -> Response<ResponseBody> {
        let since: u64 = query["resourceVersion"].parse().unwrap();
        let seconds: u64 = query["timeoutSeconds"].parse().unwrap();
        let mut state = self.lock();
        if since < state.oldest {
            return status(410, "Expired", None);
        }
        if since > state.version {
            // Too large resource version.
            return status(504, "Timeout", None);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        for (_, event) in state.history.iter().filter(|(version, _)| *version > since) {
            sender.send(event.clone()).unwrap();
        }
        state.watches.push(sender);
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let events = Events { receiver, api: self.clone(), selector: selector.to_owned(), end };
        Response::new(BodyExt::boxed(StreamBody::new(events.frames())))
    }
}

/// The events of one watch.
struct Events {
    receiver: mpsc::UnboundedReceiver<Value>,
    api: FakeApi,
    selector: String,
    end: tokio::time::Instant,
}

impl Events {
    fn frames(self) -> Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync>> {
        Box::pin(futures::stream::unfold(self, |mut events| async {
            let value = events.next().await?;
            let mut line = serde_json::to_vec(&value).unwrap();
            line.push(b'\n');
            Some((Ok(Frame::data(Bytes::from(line))), events))
        }))
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            let event = tokio::time::timeout_at(self.end, self.receiver.recv()).await;
            let (silent, late) = {
                let state = self.api.lock();
                (state.silent, state.late)
            };
            if silent {
                std::future::pending::<()>().await;
            }
            let event = event.ok()??;
            tokio::time::sleep(late).await;
            let slice: ResourceSlice = serde_json::from_value(event["object"].clone()).unwrap();
            if selects(&self.selector, &slice) {
                return Some(event);
            }
        }
    }
}

impl State {
    fn answer(
        &mut self,
        verb: &str,
        name: &str,
        slice: Option<ResourceSlice>,
        body: &[u8],
    ) -> Response<ResponseBody> {
        let existing = self.slices.get(name).cloned();
        let refused = &self.drops & &Features::from(Feature::REFUSED);
        if slice.as_ref().is_some_and(|slice| !used(&slice.spec).is_disjoint(&refused)) {
            return status(422, "Invalid", None);
        }
        match verb {
            "node" => match self.nodes.get(name) {
                Some(uid) => json_response(
                    200,
                    &json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": { "name": name, "uid": uid } }),
                ),
                None => status(404, "NotFound", None),
            },
            "get" => {
                existing.map_or_else(|| status(404, "NotFound", None), |slice| json_response(200, &slice))
            }
            "create" if existing.is_some() => status(409, "AlreadyExists", None),
            "create" => json_response(201, &self.store(slice.unwrap(), false)),
            "dry-run" if slice.as_ref().is_some_and(|slice| slice.metadata.uid.is_none()) => {
                json_response(201, &self.store(slice.unwrap(), true))
            }
            "update" | "dry-run" => {
                let (Some(old), Some(new)) = (existing, slice) else { return status(404, "NotFound", None) };
                let same = |f: fn(&ResourceSlice) -> &Option<String>| f(&old) == f(&new);
                if !same(|s| &s.metadata.resource_version) || !same(|s| &s.metadata.uid) {
                    return status(409, "Conflict", None);
                }
                json_response(200, &self.store(new, verb == "dry-run"))
            }
            "delete" => {
                let Some(old) = existing else { return status(404, "NotFound", None) };
                let options: Value = serde_json::from_slice(body).unwrap();
                let wanted = &options["preconditions"];
                let metadata = &old.metadata;
                if wanted["uid"] != json!(metadata.uid)
                    || wanted["resourceVersion"] != json!(metadata.resource_version)
                {
                    return status(409, "Conflict", None);
                }
                self.delete(name);
                json_response(200, &old)
            }
            _ => panic!("unexpected {verb}"),
        }
    }

    fn store(&mut self, mut slice: ResourceSlice, dry_run: bool) -> ResourceSlice {
        let name = slice.metadata.name.clone().unwrap();
        let old = self.slices.get(&name);
        // Fields that the slice has already stay.
        let drops = &self.drops - &old.map(|old| used(&old.spec)).unwrap_or_default();
        slice.spec = stored(&slice.spec, &drops, 1_700_000_000);
        if self.mutate {
            let value = k8s_openapi::api::resource::v1::DeviceAttribute {
                int: i64::try_from(self.version).ok(),
                ..Default::default()
            };
            for device in slice.spec.devices.iter_mut().flatten() {
                device.attributes.get_or_insert_default().insert("webhook".into(), value.clone());
            }
        }
        // A write that changes nothing is none.
        if let Some(old) = old.filter(|old| {
            old.spec == slice.spec && old.metadata.owner_references == slice.metadata.owner_references
        }) {
            return old.clone();
        }
        if dry_run {
            return slice;
        }
        self.version += 1;
        slice.metadata.resource_version = Some(self.version.to_string());
        slice.metadata.uid =
            old.map_or_else(|| Some(format!("uid-{}", self.version)), |old| old.metadata.uid.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.slices.insert(name, slice.clone());
        self.tell(kind, &slice);
        slice
    }

    fn delete(&mut self, name: &str) {
        let Some(mut slice) = self.slices.remove(name) else { return };
        self.version += 1;
        slice.metadata.resource_version = Some(self.version.to_string());
        self.tell("DELETED", &slice);
    }

    fn tell(&mut self, kind: &str, slice: &ResourceSlice) {
        let event = json!({ "type": kind, "object": slice });
        self.history.push((self.version, event.clone()));
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
    }
}

fn selects(selector: &str, slice: &ResourceSlice) -> bool {
    selector.split(',').filter_map(|term| term.split_once('=')).all(|(field, value)| {
        let found = match field {
            "spec.driver" => slice.spec.driver.as_str(),
            "spec.nodeName" => slice.spec.node_name.as_deref().unwrap_or_default(),
            "spec.pool.name" => slice.spec.pool.name.as_str(),
            other => panic!("unexpected selector {other}"),
        };
        found == value
    })
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let decoded = value.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
    Some((key.to_owned(), decoded))
}

fn json_response(code: u16, value: &impl serde::Serialize) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(serde_json::to_vec(value).unwrap())).boxed();
    Response::builder().status(code).body(body).unwrap()
}

fn status(code: u16, reason: &str, retry_after: Option<u32>) -> Response<ResponseBody> {
    let details = json!({ "retryAfterSeconds": retry_after.unwrap_or(0) });
    let mut response = json_response(
        code,
        &json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason, "details": details }),
    );
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("Retry-After", seconds.into());
    }
    response
}
