//! Requests to the API server, each with a deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};

use crate::{Action, PublishError, Scope, observed::ObservedSlice};

/// For how long an answer is waited for at first. An API server that is there answers sooner, but for slow webhooks.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest time that is waited for an answer: as long as an API server waits for two or three webhooks, which have
/// 10 s each by default. A page of a list has it at once, as it can be a megabyte.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// How many slices a page has. A slice of 128 devices takes half a megabyte until it is read.
const PAGE: u32 = 16;

/// The slices of a scope, in the API.
#[derive(Clone, Debug)]
pub(super) struct SliceApi {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    scope: Scope,
    /// How many writes have been answered.
    written: Arc<AtomicU64>,
    /// The deadline in force, in milliseconds.
    deadline: Arc<AtomicU64>,
}

/// A list of slices, and the version of the collection that it shows.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) slices: Vec<ObservedSlice>,
    pub(super) version: String,
    /// How many of our writes had been answered when the list began.
    pub(super) began: u64,
}

impl SliceApi {
    pub(super) fn new(client: kube::Client, scope: Scope) -> Self {
        let deadline = Arc::new(AtomicU64::new(0));
        let written = Arc::default();
        Self { slices: Api::all(client.clone()), nodes: Api::all(client), scope, written, deadline }
    }

    /// How many of our writes have been answered.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn slices(&self) -> &Api<ResourceSlice> {
        &self.slices
    }

    /// Lists all slices that the selector selects, page by page.
    pub(super) async fn list(&self, selector: &str) -> Result<Listed, PublishError> {
        let mut params = ListParams::default().fields(selector).limit(PAGE);
        let mut slices = Vec::new();
        let began = self.written();
        loop {
            let request = self.slices.list(&params);
            let page = within(LONGEST, Action::List, || "ResourceSlices".to_owned(), request).await?;
            slices.extend(page.items.into_iter().map(ObservedSlice::of));
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                let version = page.metadata.resource_version.unwrap_or_default();
                return Ok(Listed { slices, version, began });
            };
            params.continue_token = Some(token);
        }
    }

    /// Reads a slice; `None` if there is none of that name.
    pub(super) async fn get(&self, name: &str) -> Result<Option<ResourceSlice>, PublishError> {
        self.ask(Action::Get, || object(name), self.slices.get_opt(name)).await
    }

    /// Creates a slice.
    pub(super) async fn create(&self, slice: &ResourceSlice) -> Result<ResourceSlice, PublishError> {
        self.count(self.create_with(slice, &PostParams::default()).await)
    }

    /// Replaces a slice.
    pub(super) async fn update(&self, slice: &ResourceSlice) -> Result<ResourceSlice, PublishError> {
        self.count(self.update_with(slice, &PostParams::default()).await)
    }

    /// Lets the API server say what it would store: in place of the slice, if that is there already.
    pub(super) async fn dry_run(&self, slice: &ResourceSlice) -> Result<ResourceSlice, PublishError> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        match slice.metadata.uid {
            Some(_) => self.update_with(slice, &params).await,
            None => self.create_with(slice, &params).await,
        }
    }

    async fn create_with(
        &self,
        slice: &ResourceSlice,
        params: &PostParams,
    ) -> Result<ResourceSlice, PublishError> {
        self.ask(Action::Create, || object(name_of(slice)), self.slices.create(params, slice)).await
    }

    async fn update_with(
        &self,
        slice: &ResourceSlice,
        params: &PostParams,
    ) -> Result<ResourceSlice, PublishError> {
        let name = name_of(slice);
        self.ask(Action::Update, || object(name), self.slices.replace(name, params, slice)).await
    }

    /// Deletes a slice if it is still the one that was seen. One that is gone already is fine.
    pub(super) async fn delete(
        &self,
        name: &str,
        uid: Option<String>,
        resource_version: Option<String>,
    ) -> Result<(), PublishError> {
        let preconditions = Some(Preconditions { uid, resource_version });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let deleted = self.ask(Action::Delete, || object(name), self.slices.delete(name, &params)).await;
        match self.count(deleted) {
            Ok(_) => Ok(()),
            Err(error) if error.http_status() == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The UID of the scope's node.
    pub(super) async fn node_uid(&self, node: &str) -> Result<String, PublishError> {
        let request = self.nodes.get_metadata(node);
        let found = self.ask(Action::Get, || format!("node {node:?}"), request).await?;
        Ok(found.metadata.uid.unwrap_or_default())
    }

    fn count<T>(&self, answer: T) -> T {
        self.written.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Waits until the deadline in force, which depends on what the last answers took.
    async fn ask<T>(
        &self,
        action: Action,
        object: impl Fn() -> String,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, PublishError> {
        let deadline = Duration::from_millis(self.deadline.load(Ordering::Relaxed)).max(DEADLINE);
        let start = tokio::time::Instant::now();
        let answer = within(deadline, action, object, request).await;
        let late = matches!(answer, Err(PublishError::Timeout { .. }));
        let next = next_deadline(deadline, (!late).then(|| start.elapsed()));
        self.deadline.store(u64::try_from(next.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        answer
    }
}

fn name_of(slice: &ResourceSlice) -> &str {
    slice.metadata.name.as_deref().unwrap_or_default()
}

fn object(name: &str) -> String {
    format!("ResourceSlice {name:?}")
}

/// The deadline after an answer that `took` this long, or none in time. An API server that has been slow may be so again.
fn next_deadline(deadline: Duration, took: Option<Duration>) -> Duration {
    match took {
        None => (2 * deadline).min(LONGEST),
        Some(took) if took < DEADLINE / 2 => DEADLINE,
        Some(_) => deadline,
    }
}

/// Waits for an answer until the deadline.
pub(super) async fn within<T>(
    after: Duration,
    action: Action,
    object: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, PublishError> {
    match tokio::time::timeout(after, request).await {
        Ok(answer) => {
            answer.map_err(|source| PublishError::Api { action, object: object(), source: Arc::new(source) })
        }
        Err(_) => Err(PublishError::Timeout { action, object: object(), after }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_grows_with_silence_and_falls_with_a_quick_answer() {
        let seconds = Duration::from_secs;
        let mut deadline = DEADLINE;
        let table = [
            (None, 10),
            (None, 20),
            (Some(6), 20),
            (None, 30),
            (None, 30),
            (Some(3), 30),
            (Some(2), 5),
            (Some(4), 5),
        ];
        for (took, expected) in table {
            deadline = next_deadline(deadline, took.map(seconds));
            assert_eq!(deadline, seconds(expected), "{took:?}");
        }
    }
}
