//! Requests to the API server, each with a deadline.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};

use crate::{Action, PublishError, Scope, observed::ObservedSlice};

/// The longest time that a request may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The same for a page of a list, which can be a megabyte.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// How many slices a page has. A slice of 128 devices takes half a megabyte until it is read.
const PAGE: u32 = 16;

/// The slices of a scope, in the API.
#[derive(Clone, Debug)]
pub(super) struct SliceApi {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    scope: Scope,
}

/// A list of slices, and the version of the collection that it shows.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) slices: Vec<ObservedSlice>,
    pub(super) version: String,
}

impl SliceApi {
    pub(super) fn new(client: kube::Client, scope: Scope) -> Self {
        Self { slices: Api::all(client.clone()), nodes: Api::all(client), scope }
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
        loop {
            let page =
                within(Action::List, || "ResourceSlices".to_owned(), self.slices.list(&params)).await?;
            slices.extend(page.items.into_iter().map(ObservedSlice::of));
            let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
                return Ok(Listed { slices, version: page.metadata.resource_version.unwrap_or_default() });
            };
            params.continue_token = Some(token);
        }
    }

    /// Reads a slice; `None` if there is none of that name.
    pub(super) async fn get(&self, name: &str) -> Result<Option<ResourceSlice>, PublishError> {
        within(Action::Get, || object(name), self.slices.get_opt(name)).await
    }

    /// Creates a slice.
    pub(super) async fn create(&self, slice: &ResourceSlice) -> Result<ResourceSlice, PublishError> {
        self.create_with(slice, &PostParams::default()).await
    }

    /// Replaces a slice.
    pub(super) async fn update(&self, slice: &ResourceSlice) -> Result<ResourceSlice, PublishError> {
        self.update_with(slice, &PostParams::default()).await
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
        within(Action::Create, || object(name_of(slice)), self.slices.create(params, slice)).await
    }

    async fn update_with(
        &self,
        slice: &ResourceSlice,
        params: &PostParams,
    ) -> Result<ResourceSlice, PublishError> {
        let name = name_of(slice);
        within(Action::Update, || object(name), self.slices.replace(name, params, slice)).await
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
        let deleted = within(Action::Delete, || object(name), self.slices.delete(name, &params)).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) if error.http_status() == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The UID of the scope's node.
    pub(super) async fn node_uid(&self, node: &str) -> Result<String, PublishError> {
        let found = within(Action::Get, || format!("node {node:?}"), self.nodes.get_metadata(node)).await?;
        Ok(found.metadata.uid.unwrap_or_default())
    }
}

fn name_of(slice: &ResourceSlice) -> &str {
    slice.metadata.name.as_deref().unwrap_or_default()
}

fn object(name: &str) -> String {
    format!("ResourceSlice {name:?}")
}

/// Waits for an answer until the deadline.
pub(super) async fn within<T>(
    action: Action,
    object: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, PublishError> {
    let after = if action == Action::List { LIST_DEADLINE } else { DEADLINE };
    match tokio::time::timeout(after, request).await {
        Ok(answer) => {
            answer.map_err(|source| PublishError::Api { action, object: object(), source: Arc::new(source) })
        }
        Err(_) => Err(PublishError::Timeout { action, object: object(), after }),
    }
}
