//! The task that listens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::task::JoinHandle;

use super::{Event, History};

/// Watches the slices of one driver until it is dropped.
pub(crate) struct SliceWatch {
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    history: History,
    /// Why nothing more is heard.
    error: Option<anyhow::Error>,
}

impl SliceWatch {
    /// Begins to listen; what there is by now comes first.
    pub(crate) async fn start(client: &Client, driver: &str) -> Result<Self> {
        let selector = format!("spec.driver={driver}");
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        let listed = slices.list(&ListParams::default().fields(&selector)).await;
        let listed = listed.context("listing ResourceSlices")?;
        let version = listed.metadata.resource_version.context("a list without a version")?;
        let shared = Arc::<Mutex<Shared>>::default();
        for slice in &listed.items {
            lock(&shared).history.push(Event::of(slice, false, true));
        }
        let heard = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let error = listen(&slices, &selector, version, &heard).await;
            lock(&heard).error = error.err();
        });
        Ok(Self { shared, task })
    }

    /// What was heard so far.
    ///
    /// # Errors
    /// The watch has ended, so that something may have been missed.
    pub(crate) fn history(&self) -> Result<History> {
        let mut shared = lock(&self.shared);
        match shared.error.take() {
            Some(error) => Err(error.context("watching ResourceSlices")),
            None => Ok(shared.history.clone()),
        }
    }
}

impl Drop for SliceWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Resumes the watch each time that the API server ends it, which leaves no gap.
async fn listen(
    slices: &Api<ResourceSlice>,
    selector: &str,
    mut version: String,
    heard: &Mutex<Shared>,
) -> Result<()> {
    loop {
        let params = WatchParams::default().fields(selector).timeout(290);
        let mut events = Box::pin(slices.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            let slice = match &event {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) | WatchEvent::Deleted(slice) => slice,
                WatchEvent::Bookmark(bookmark) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(status) => bail!("{status:?}"),
            };
            if let Some(seen) = &slice.metadata.resource_version {
                version.clone_from(seen);
            }
            let (gone, created) =
                (matches!(event, WatchEvent::Deleted(_)), matches!(event, WatchEvent::Added(_)));
            lock(heard).history.push(Event::of(slice, gone, created));
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
