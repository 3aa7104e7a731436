//! A watch: the changes of one kind since a version, as a stream of JSON lines.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, interval_at, sleep_until};

use super::calls::Call;
use super::faults::Faults;
use super::kinds::Kind;
use super::lock;
use super::request::Query;
use super::select::Selector;
use super::status::ApiStatus;
use super::store::{Change, Store};

/// How often a client that asked for bookmarks gets one. The real server does so about every minute.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// How long a watch lasts if the client does not say.
const LONGEST: Duration = Duration::from_secs(3600);

/// What all watches of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Wakeups {
    /// The store's version after each change.
    pub(crate) version: watch::Sender<u64>,
    /// Counts up when all watches must end.
    pub(crate) ended: watch::Sender<u64>,
}

/// A watch about to be served.
pub(crate) struct Watch {
    kind: &'static Kind,
    selector: Selector,
    store: Arc<Mutex<Store>>,
    faults: Faults,
    call: Call,
    /// Changes up to this version have been sent.
    seen: u64,
    lines: VecDeque<Bytes>,
    bookmarks: Option<Interval>,
    deadline: Instant,
    version: watch::Receiver<u64>,
    ended: watch::Receiver<u64>,
    done: bool,
}

impl Watch {
    /// Opens a watch. As on the real server, one from a forgotten version is opened and then ends with an error
    /// event; one from a version of the future waits for it.
    pub(crate) fn open(
        kind: &'static Kind,
        selector: Selector,
        query: &Query,
        store: Arc<Mutex<Store>>,
        faults: Faults,
        call: Call,
        wakeups: &Wakeups,
    ) -> Result<Self, ApiStatus> {
        // Subscribed before the store is read, so that no change falls between.
        let (version, ended) = (wakeups.version.subscribe(), wakeups.ended.subscribe());
        let guard = lock(&store);
        let from_start = query.initial_events || matches!(query.resource_version.as_str(), "" | "0");
        let (seen, mut lines) = if from_start {
            let all = guard.of_kind(kind).filter(|(_, object)| selector.matches(object));
            (guard.version(), all.map(|(_, object)| line("ADDED", object)).collect::<VecDeque<_>>())
        } else {
            (parse_version(&query.resource_version)?, VecDeque::new())
        };
        drop(guard);
        if query.initial_events {
            lines.push_back(bookmark(kind, seen, true));
        }
        let start = Instant::now();
        let bookmarks = query.bookmarks.then(|| interval_at(start + BOOKMARKS, BOOKMARKS));
        let deadline = start + query.timeout.unwrap_or(LONGEST).min(LONGEST);
        Ok(Self {
            kind,
            selector,
            store,
            faults,
            call,
            seen,
            lines,
            bookmarks,
            deadline,
            version,
            ended,
            done: false,
        })
    }

    /// The lines as they become known. Ends at the client's time-out, or when all watches are ended.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next_line().await?;
            Some((Ok(Frame::data(line)), watch))
        })
    }

    async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            self.faults.wait_while_hanging(&self.call).await;
            if self.ended.has_changed().unwrap_or(true) {
                return None;
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.done {
                return None;
            }
            self.version.mark_unchanged();
            self.collect();
            if !self.lines.is_empty() {
                continue;
            }
            tokio::select! {
                _ = self.version.changed() => {}
                _ = self.ended.changed() => return None,
                () = tick(self.bookmarks.as_mut()) => self.lines.push_back(bookmark(self.kind, self.seen, false)),
                () = sleep_until(self.deadline) => {
                    self.done = true;
                    if self.bookmarks.is_some() {
                        self.lines.push_back(bookmark(self.kind, self.seen, false));
                    }
                }
            }
        }
    }

    /// Takes what has changed since the last look.
    fn collect(&mut self) {
        let store = lock(&self.store);
        if !store.remembers(self.seen) {
            let status = ApiStatus::expired(format!("version {} is too old: list again", self.seen));
            self.lines.push_back(line("ERROR", &status.to_json()));
            self.done = true;
            return;
        }
        let events = store.changes_after(self.seen).filter(|change| change.key.is_of(self.kind));
        self.lines.extend(events.filter_map(|change| event(&self.selector, change)));
        self.seen = self.seen.max(store.version());
    }
}

/// The change as a watch with this selector sees it.
fn event(selector: &Selector, change: &Change) -> Option<Bytes> {
    let before = change.before.as_ref().filter(|object| selector.matches(object));
    let after = change.after.as_ref().filter(|object| selector.matches(object));
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => Some(line("ADDED", after)),
        (Some(_), Some(after)) => Some(line("MODIFIED", after)),
        (Some(before), None) => {
            // An object that left the selection is shown as it last was in it, under the version of the change.
            let mut object = (**before).clone();
            object["metadata"]["resourceVersion"] = json!(change.version.to_string());
            Some(line("DELETED", &object))
        }
    }
}

/// Reads a version that a client sent.
pub(crate) fn parse_version(text: &str) -> Result<u64, ApiStatus> {
    text.parse().map_err(|_| ApiStatus::bad_request(format!("{text:?} is no resource version")))
}

fn bookmark(kind: &Kind, version: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata}))
}

fn line(event: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": event, "object": object})))
}

async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}
