//! When a driver's slices come and go, as the API server tells it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
};
use tokio::{sync::mpsc, task::JoinHandle};

/// How long the API server keeps a watch open; longer than any measurement.
const WATCH_SECONDS: u32 = 290;

/// Hears of one driver's slices until it is dropped.
pub(crate) struct SliceWatch {
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<Result<()>>,
    /// The names of those that are there.
    there: BTreeSet<String>,
}

struct Event {
    at: Instant,
    name: String,
    gone: bool,
}

impl SliceWatch {
    /// Begins to listen.
    pub(crate) async fn start(client: &Client, driver: &str) -> Result<Self> {
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let selector = format!("spec.driver={driver}");
        let listed = slices.list(&ListParams::default().fields(&selector)).await;
        let listed = listed.context("listing ResourceSlices")?;
        let version = listed.metadata.resource_version.context("a list without a version")?;
        let there = listed.items.into_iter().filter_map(|slice| slice.metadata.name).collect();
        let (sender, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let params = WatchParams::default().fields(&selector).timeout(WATCH_SECONDS);
            let mut heard = Box::pin(slices.watch(&params, &version).await?);
            while let Some(event) = heard.try_next().await? {
                let at = Instant::now();
                let (slice, gone) = match event {
                    WatchEvent::Added(slice) | WatchEvent::Modified(slice) => (slice, false),
                    WatchEvent::Deleted(slice) => (slice, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => bail!("watching ResourceSlices: {status:?}"),
                };
                let name = slice.metadata.name.context("a slice without a name")?;
                if sender.send(Event { at, name, gone }).is_err() {
                    return Ok(());
                }
            }
            Ok(())
        });
        Ok(Self { events, task, there })
    }

    /// Waits until so many are there; gives when that was heard. At once if they are there by now.
    pub(crate) async fn wait_there(&mut self, count: usize, within: Duration) -> Result<Instant> {
        let what = format!("{count} slices are there");
        self.wait(&what, within, |there| there.len() == count).await
    }

    /// Waits until one of those that are there is gone.
    pub(crate) async fn wait_one_gone(&mut self, within: Duration) -> Result<Instant> {
        let before = self.there.len();
        self.wait("a slice is gone", within, |there| there.len() < before).await
    }

    async fn wait(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&BTreeSet<String>) -> bool,
    ) -> Result<Instant> {
        let mut heard = Instant::now();
        let deadline = tokio::time::Instant::now() + within;
        while !wanted(&self.there) {
            let event = tokio::time::timeout_at(deadline, self.events.recv()).await;
            let Some(event) = event.with_context(|| format!("not within {within:?}: {what}"))? else {
                (&mut self.task).await.context("watching ResourceSlices")??;
                bail!("the watch of ResourceSlices has ended before {what}");
            };
            heard = event.at;
            if event.gone {
                self.there.remove(&event.name);
            } else {
                self.there.insert(event.name);
            }
        }
        Ok(heard)
    }
}

impl Drop for SliceWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Removes all slices.
pub(crate) async fn remove_all(client: &Client) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let removed = slices.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    removed.map(drop).context("removing ResourceSlices")
}
