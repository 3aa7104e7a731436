//! The watch: a list, then events, and both again whenever that is needed.
//!
//! `kube`'s watcher has no deadline on its list, and cannot fall back to a wider selector, so this is our own. It
//! never takes silence for peace: each watch is ended by the server after some 50 s, and by us 5 s later. The time differs, so
//! that the drivers of a cluster, which an API server's restart has started at once, do not come at once for ever.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{WatchEvent, WatchParams};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    api::{Listed, SliceApi, within},
    retry::{Retry, random},
};
use crate::{Action, PublishError, observed::ObservedSlice};

/// For how long the API server is asked to watch, in seconds.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 40..=60;
/// After this time more a watch is given up, even if the server has not ended it.
const OVERTIME: Duration = Duration::from_secs(5);
/// A watch that ends earlier than asked by more than this was ended by the API server, as by one that stops.
const EARLY: Duration = Duration::from_secs(2);
/// After this time without an answer a watch is given up.
const ANSWER: Duration = Duration::from_secs(10);
/// A watch that ends earlier than this counts as a failure, so that there is no hot loop. A list alone does not
/// end a series of failures.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// What was seen.
#[derive(Debug)]
pub(super) enum Event {
    Listed(Listed),
    Applied(Box<ObservedSlice>),
    Deleted {
        name: String,
        uid: Option<String>,
    },
    /// Watching works (again).
    Watching {
        /// It was broken: the API server may have been restarted, or be another one.
        after_break: bool,
    },
    /// It is tried again.
    Failed(PublishError),
}

/// Watches until nobody listens any more.
pub(super) async fn run(api: SliceApi, events: mpsc::Sender<Event>) {
    let mut watch =
        Watch { api, events, with_pool: true, retry: Retry::default(), broken: false, expired: false };
    while !watch.events.is_closed() {
        if let Some(version) = watch.list().await {
            watch.follow(version).await;
        }
    }
}

struct Watch {
    api: SliceApi,
    events: mpsc::Sender<Event>,
    /// Whether the API server is asked to select by the pool's name, which it can since 1.37.
    with_pool: bool,
    retry: Retry,
    /// The last watch did not end as asked.
    broken: bool,
    /// The last watch began from a version that is too old.
    expired: bool,
}

/// How a watch ended.
enum End {
    /// It can go on from the last version.
    Resume,
    /// The last version is too old: a new list is needed.
    Expired,
    Failed(PublishError),
}

impl Watch {
    fn selector(&self) -> String {
        self.api.scope().field_selector(self.with_pool)
    }

    /// Sends events; nobody listening is noticed by the loop in `run`.
    async fn send(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// Lists, and returns the version to watch from; `None` after a failure.
    async fn list(&mut self) -> Option<String> {
        match self.api.list(&self.selector()).await {
            Ok(listed) => {
                let version = listed.version.clone();
                self.send(Event::Listed(listed)).await;
                Some(version)
            }
            Err(error) => {
                self.failed(error).await;
                None
            }
        }
    }

    /// Watches from a version on, until a new list is needed.
    async fn follow(&mut self, mut version: String) {
        while !self.events.is_closed() {
            let start = Instant::now();
            let end = self.watch(&mut version).await;
            let (short, expired) = (start.elapsed() < SHORT_WATCH, matches!(end, End::Expired));
            let again = std::mem::replace(&mut self.expired, expired);
            match end {
                End::Failed(error) => self.failed(error).await,
                // After one list, not after each.
                End::Expired if short && !again => {}
                _ if short => sleep_until(self.retry.ended(Instant::now())).await,
                _ => self.retry.succeeded(),
            }
            if expired {
                return;
            }
        }
    }

    async fn watch(&mut self, version: &mut String) -> End {
        let (start, seconds) = (Instant::now(), watch_seconds(random()));
        let asked = Duration::from_secs(seconds.into());
        let params = WatchParams::default().fields(&self.selector()).timeout(seconds);
        let deadline = start + asked + OVERTIME;
        let request = self.api.slices().watch(&params, version);
        let what = || "ResourceSlices".to_owned();
        let mut stream = match within(ANSWER, Action::Watch, what, request).await {
            Ok(stream) => {
                let after_break = std::mem::take(&mut self.broken);
                self.send(Event::Watching { after_break }).await;
                Box::pin(stream)
            }
            Err(error) => return end(error),
        };
        loop {
            let event = match timeout_at(deadline, stream.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) | Err(_) => {
                    self.broken = start.elapsed() + EARLY < asked;
                    return End::Resume;
                }
                Ok(Err(source)) => return end(failure(source)),
            };
            match event {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    remember(version, slice.metadata.resource_version.as_ref());
                    self.send(Event::Applied(Box::new(ObservedSlice::of(slice)))).await;
                }
                WatchEvent::Deleted(slice) => {
                    remember(version, slice.metadata.resource_version.as_ref());
                    let ObjectMeta { name, uid, .. } = slice.metadata;
                    self.send(Event::Deleted { name: name.unwrap_or_default(), uid }).await;
                }
                WatchEvent::Bookmark(bookmark) => {
                    remember(version, Some(&bookmark.metadata.resource_version));
                }
                WatchEvent::Error(status) => return end(failure(kube::Error::Api(status.boxed()))),
            }
        }
    }

    async fn failed(&mut self, error: PublishError) {
        self.broken = true;
        // Before 1.37 the API server does not know the pool's field; all slices of the scope have to do.
        if error.http_status() == Some(400) && self.with_pool && self.api.scope().pool_name().is_some() {
            self.with_pool = false;
            return;
        }
        let next = self.retry.failed(&error, Instant::now());
        self.send(Event::Failed(error)).await;
        sleep_until(next).await;
    }
}

fn remember(version: &mut String, seen: Option<&String>) {
    if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
        version.clone_from(seen);
    }
}

fn failure(source: kube::Error) -> PublishError {
    PublishError::Api { action: Action::Watch, object: "ResourceSlices".to_owned(), source: source.into() }
}

fn end(error: PublishError) -> End {
    // 504: the version is one that the API server has not reached, as after a restore of etcd.
    if matches!(error.http_status(), Some(410 | 504)) { End::Expired } else { End::Failed(error) }
}

fn watch_seconds(random: u32) -> u32 {
    let (first, last) = WATCH_SECONDS.into_inner();
    first + random % (last - first + 1)
}
