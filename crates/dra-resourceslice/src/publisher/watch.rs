//! The watch: a list, then events, and both again whenever that is needed.
//!
//! `kube`'s watcher has no deadline on its list, and cannot fall back to a wider selector, so this is our own. It
//! never takes silence for peace: each watch is ended by the server after 50 s and by us after 55 s.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{WatchEvent, WatchParams};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};

use super::{
    api::{Listed, SliceApi, within},
    backoff::Backoff,
};
use crate::{Action, PublishError, observed::ObservedSlice};

/// For how long the API server is asked to watch, in seconds.
const WATCH_SECONDS: u32 = 50;
/// After this time a watch is given up, even if the server has not ended it.
const LONGEST_WATCH: Duration = Duration::from_secs(55);
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
    Watching,
    /// It is tried again.
    Failed(PublishError),
}

/// Watches until nobody listens any more.
pub(super) async fn run(api: SliceApi, events: mpsc::Sender<Event>) {
    let mut watch = Watch { api, events, with_pool: true, backoff: Backoff::default() };
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
    backoff: Backoff,
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
            match self.watch(&mut version).await {
                End::Resume if start.elapsed() >= SHORT_WATCH => self.backoff.reset(),
                End::Resume => sleep(self.backoff.next(None)).await,
                End::Expired => {
                    if start.elapsed() < SHORT_WATCH {
                        sleep(self.backoff.next(None)).await;
                    }
                    return;
                }
                End::Failed(error) => {
                    let list_again = error.http_status().is_some();
                    self.failed(error).await;
                    if list_again {
                        return;
                    }
                }
            }
        }
    }

    async fn watch(&self, version: &mut String) -> End {
        let params = WatchParams::default().fields(&self.selector()).timeout(WATCH_SECONDS);
        let deadline = Instant::now() + LONGEST_WATCH;
        let request = self.api.slices().watch(&params, version);
        let mut stream = match within(Action::Watch, || "ResourceSlices".to_owned(), request).await {
            Ok(stream) => {
                self.send(Event::Watching).await;
                Box::pin(stream)
            }
            Err(error) => return end(error),
        };
        loop {
            let event = match timeout_at(deadline, stream.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) | Err(_) => return End::Resume,
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
        // Before 1.37 the API server does not know the pool's field; all slices of the scope have to do.
        if error.http_status() == Some(400) && self.with_pool && self.api.scope().pool_name().is_some() {
            self.with_pool = false;
            return;
        }
        let delay = self.backoff.next(error.retry_after());
        self.send(Event::Failed(error)).await;
        sleep(delay).await;
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
    if error.http_status() == Some(410) { End::Expired } else { End::Failed(error) }
}
