//! A stand-in for the Kubernetes API server: stateful, in memory, for the kinds that a DRA driver needs.
//!
//! It serves `resource.k8s.io/v1` (slices, claims, claim templates, device classes), nodes, pods and events:
//! get, list, watch, create, update, patch, delete, the `status` subresource, selectors, pages, generated names,
//! conflicts, finalizers, dry runs, and the main limits of the real server's validation. Objects are stored as
//! the real server stores them: typed, with one spelling of quantities (`1024Mi` → `1Gi`) and with the defaults
//! filled in (`timeAdded` of taints), and without the fields of feature gates that are off.
//!
//! What differs from the real server: strategic merge patches are merged as JSON; server-side apply knows only
//! other appliers; label selectors know no sets; nothing checks access; owners' dependents are not collected;
//! pods end at once.

mod apply;
mod calls;
mod discovery;
mod faults;
mod gates;
mod handler;
mod identity;
mod kinds;
mod list;
mod normalize;
mod objects;
mod request;
mod select;
mod serve;
mod status;
mod store;
mod validate;
mod watch;
mod write;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

pub use calls::{Call, Matcher, Verb};
pub use faults::FaultGuard;
pub use objects::{ManifestError, ObjectKey, WaitError};
pub use serve::ServedApi;
pub use status::{ApiStatus, Cause};

use faults::{Effect, Faults};
use gates::Gates;
use kinds::Kind;
use select::Selector;
use store::Store;
use watch::Wakeups;
use write::Preconditions;

/// The API server stand-in. Cheap to clone: all clones are the same server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dra_testkit::api::{ApiServer, ApiStatus, Matcher, Verb};
/// use k8s_openapi::api::core::v1::Node;
///
/// let api = ApiServer::new();
/// api.node("node-1")?;
///
/// // A kube client, as the driver has one.
/// let nodes: kube::Api<Node> = kube::Api::all(api.client());
/// assert_eq!(nodes.get("node-1").await?.metadata.name.as_deref(), Some("node-1"));
///
/// // The next read fails, and all requests are on record.
/// api.fail_next(Matcher::any().verb(Verb::Get), ApiStatus::unavailable());
/// assert!(nodes.get("node-1").await.is_err());
/// assert_eq!(api.calls().len(), 2);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<Mutex<Store>>,
    faults: Faults,
    calls: Mutex<CallLog>,
    wakeups: Wakeups,
    reachable: AtomicBool,
    /// Strings of answers, as JSON, and what stands in their place.
    raw: Mutex<Vec<(String, String)>>,
}

/// The log, and how many calls have been taken out of it.
#[derive(Debug, Default)]
struct CallLog {
    taken: usize,
    calls: Vec<Call>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// An empty server of the newest version, with all feature gates on.
    #[must_use]
    pub fn new() -> Self {
        Self::with_gates(Gates::all_on())
    }

    /// An empty server like Kubernetes 1.`minor` without configuration: from 34 on, with that version's feature gates as they are
    /// by default. Fields of slices behind gates that are off are dropped without a word, as the real server does.
    ///
    /// Only slices differ between versions here; everything else is as in the newest.
    #[must_use]
    pub fn of_version(minor: u32) -> Self {
        Self::with_gates(Gates::of_version(minor))
    }

    fn with_gates(gates: Gates) -> Self {
        let store = Store::new(gates);
        let version = tokio::sync::watch::Sender::new(store.version());
        Self {
            inner: Arc::new(Inner {
                store: Arc::new(Mutex::new(store)),
                faults: Faults::new(),
                calls: Mutex::default(),
                wakeups: Wakeups { version, ended: tokio::sync::watch::Sender::new(0) },
                reachable: AtomicBool::new(true),
                raw: Mutex::default(),
            }),
        }
    }

    /// A client that talks to this server inside the process. Must be called within a tokio runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            handler::handle(server.clone(), request)
        });
        kube::Client::new(service, "default")
    }

    /// Serves on a free local port, for a driver in another process.
    ///
    /// # Errors
    /// If no local port can be had.
    ///
    /// # Cancel safety
    /// Safe: a call that is dropped leaves no port open.
    pub async fn serve(&self) -> io::Result<ServedApi> {
        ServedApi::start(self.clone()).await
    }

    fn is_reachable(&self) -> bool {
        self.inner.reachable.load(Ordering::SeqCst)
    }

    /// Runs a write on the store and wakes the watches.
    fn change<T>(&self, write: impl FnOnce(&mut Store) -> T) -> T {
        let result = write(&mut lock(&self.inner.store));
        self.notify();
        result
    }

    fn notify(&self) {
        let version = lock(&self.inner.store).version();
        self.inner.wakeups.version.send_if_modified(|known| {
            let is_newer = version > *known;
            *known = version.max(*known);
            is_newer
        });
    }

    fn delete_selected(&self, kind: &'static Kind, selector: &Selector) -> Vec<Arc<Value>> {
        self.change(|store| {
            let selected = store.of_kind(kind).filter(|(_, object)| selector.matches(object));
            let keys: Vec<store::Key> = selected.map(|(key, _)| key.clone()).collect();
            let none = Preconditions::default();
            keys.iter().filter_map(|key| write::delete(store, kind, key, &none, false).ok()).collect()
        })
    }
}

/// Feature gates.
impl ApiServer {
    /// Switches a feature gate that fields of slices depend on, such as `DRADeviceTaints`, as a restart of the real server would.
    ///
    /// # Errors
    /// If this version has no such gate, or the stand-in knows nothing that depends on it.
    pub fn set_feature_gate(&self, gate: &str, on: bool) -> Result<(), ApiStatus> {
        let mut store = lock(&self.inner.store);
        let minor = store.gates.minor;
        store.gates.set(gate, on).ok_or_else(|| {
            ApiStatus::bad_request(format!("Kubernetes 1.{minor} has no feature gate {gate:?} for slices"))
        })
    }

    /// The feature gates that are on, of those that fields of slices depend on.
    #[must_use]
    pub fn feature_gates(&self) -> Vec<&'static str> {
        lock(&self.inner.store).gates.on().collect()
    }
}

/// Faults.
impl ApiServer {
    /// Refuses the next request that matches; nothing of it is done.
    pub fn fail_next(&self, matcher: Matcher, status: ApiStatus) {
        self.fail_times(1, matcher, status);
    }

    /// Refuses the next `times` requests that match; nothing of them is done.
    pub fn fail_times(&self, times: usize, matcher: Matcher, status: ApiStatus) {
        self.inner.faults.add(matcher, Effect::Refuse(status), times);
    }

    /// Refuses all requests that match while the guard lives.
    pub fn fail_while(&self, matcher: Matcher, status: ApiStatus) -> FaultGuard {
        self.inner.faults.hold(matcher, Effect::Refuse(status))
    }

    /// Does what the next matching request asks, but answers with `status`: the client cannot know that it worked.
    pub fn lose_next_answer(&self, matcher: Matcher, status: ApiStatus) {
        self.inner.faults.add(matcher, Effect::LoseAnswer(status), 1);
    }

    /// Cuts the connection of the next matching request without doing or answering anything.
    pub fn cut_next(&self, matcher: Matcher) {
        self.inner.faults.add(matcher, Effect::Cut, 1);
    }

    /// Serves matching requests after a pause while the guard lives.
    pub fn delay(&self, matcher: Matcher, pause: Duration) -> FaultGuard {
        self.inner.faults.hold(matcher, Effect::Delay(pause))
    }

    /// Leaves matching requests unanswered while the guard lives, then serves them. Open watches that match fall
    /// silent, as behind a connection that the network forgot.
    pub fn hang(&self, matcher: Matcher) -> FaultGuard {
        self.inner.faults.hold(matcher, Effect::Hang)
    }

    /// Makes the server reachable or not. While it is not, connections are cut without an answer, and open
    /// watches have ended.
    pub fn set_reachable(&self, reachable: bool) {
        self.inner.reachable.store(reachable, Ordering::SeqCst);
        if !reachable {
            self.drop_watches();
        }
    }

    /// From now on, answers have this JSON wherever an object has the string `placeholder`: for `opaque.parameters` that Go
    /// accepts and `serde_json` refuses. The real server stores them as bytes (`runtime.RawExtension`) and never reads them.
    /// Watches are not changed.
    pub fn set_raw_json(&self, placeholder: &str, json: &str) {
        lock(&self.inner.raw).push((Value::from(placeholder).to_string(), json.to_owned()));
    }

    /// Ends all open watches, as the real server does now and then.
    pub fn drop_watches(&self) {
        self.inner.wakeups.ended.send_modify(|count| *count += 1);
    }

    /// Forgets the history of changes: a watch or a list that wants to continue from any version seen so far is
    /// refused with 410 and must start again. Ends the open watches.
    pub fn expire_history(&self) {
        self.change(Store::forget_history);
        self.drop_watches();
    }
}

/// The call log.
impl ApiServer {
    /// All requests so far, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.inner.calls).calls.clone()
    }

    /// How many requests so far match.
    #[must_use]
    pub fn count(&self, matcher: &Matcher) -> usize {
        lock(&self.inner.calls).calls.iter().filter(|call| matcher.matches(call)).count()
    }

    /// Empties the log and returns what was in it.
    #[must_use = "`clear_calls` only empties the log"]
    pub fn take_calls(&self) -> Vec<Call> {
        let mut log = lock(&self.inner.calls);
        log.taken += log.calls.len();
        std::mem::take(&mut log.calls)
    }

    /// Empties the log.
    pub fn clear_calls(&self) {
        drop(self.take_calls());
    }

    /// Logs a call and returns its number.
    fn log(&self, call: Call) -> usize {
        tracing::trace!(?call, "request");
        let mut log = lock(&self.inner.calls);
        log.calls.push(call);
        log.taken + log.calls.len() - 1
    }

    fn log_answer(&self, number: usize, code: u16) {
        let mut log = lock(&self.inner.calls);
        let index = number.checked_sub(log.taken);
        if let Some(call) = index.and_then(|index| log.calls.get_mut(index)) {
            call.answer = Some(code);
        }
    }
}

/// A test that panicked while it held the lock has failed already; the data is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
