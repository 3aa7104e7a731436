//! Lists of objects. Each object is read alone: a claim may carry what another driver's users wrote, and one odd object
//! must not hide the rest.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{Api, Client, Resource, api::ListParams};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::snapshot::Looked;

/// Objects in one answer: a slice with 128 devices may have half a megabyte.
const PAGE: u32 = 100;

/// Lists objects, and keeps the names of those that it cannot read.
pub(super) struct Lists<'a> {
    client: &'a Client,
    left_out: Mutex<Vec<String>>,
}

/// A page of a list, with its objects as they came.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// What an object is called, whatever else it holds.
#[derive(Default, Deserialize)]
struct Named {
    kind: Option<String>,
    #[serde(default)]
    metadata: Names,
}

#[derive(Default, Deserialize)]
struct Names {
    namespace: Option<String>,
    name: Option<String>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self { client, left_out: Mutex::default() }
    }

    pub(super) fn client(&self) -> &'a Client {
        self.client
    }

    /// The objects that could not be read, each with the reason.
    pub(super) fn into_left_out(self) -> Vec<String> {
        let mut objects = self.left_out.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A kind may be listed twice.
        objects.sort();
        objects.dedup();
        objects
    }

    /// All objects of a kind; `what` names it in errors.
    pub(super) async fn all<K>(&self, parameters: ListParams, what: &str) -> Looked<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let listed = self.pages(&Api::<K>::all(self.client.clone()), parameters).await;
        Looked::from_result(listed, &format!("listing {what}"))
    }

    /// All pages of a list.
    pub(super) async fn pages<K>(&self, api: &Api<K>, parameters: ListParams) -> Result<Vec<K>, kube::Error>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let requests = kube::core::Request::new(api.resource_url());
        let mut parameters = parameters.limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let request = requests.list(&parameters).map_err(kube::Error::BuildRequest)?;
            let text = self.client.request_text(request).await?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
            for item in page.items.into_iter().flatten() {
                match serde_json::from_str(item.get()) {
                    Ok(object) => objects.push(object),
                    Err(error) => self.leave_out(named(item, api.resource_url(), &error)),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => return Ok(objects),
            }
        }
    }

    fn leave_out(&self, object: String) {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).push(object);
    }
}

/// An object that cannot be read, and why.
fn named(item: &RawValue, listed: &str, error: &serde_json::Error) -> String {
    let Named { kind, metadata } = serde_json::from_str(item.get()).unwrap_or_default();
    // Objects in lists do not say their kind.
    let kind = kind.unwrap_or_else(|| listed.rsplit('/').next().unwrap_or_default().to_owned());
    let name = metadata.name.unwrap_or_else(|| "without a name".to_owned());
    let namespace = metadata.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{kind} {namespace}{name}: {error}")
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use kube::client::Body;

    use super::*;

    /// As an API server with a claim between two others whose parameters Go takes and Rust does not.
    async fn answer_claims(_: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let claim = |name: &str, parameters: &str| {
            format!(
                r#"{{"metadata": {{"namespace": "ns", "name": "{name}"}}, "spec": {{"devices": {{"config": [{{"opaque": {{"driver": "d", "parameters": {parameters}}}}}]}}}}}}"#
            )
        };
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let items =
            [claim("a", "{}"), claim("b", r#"{"name": "x\ud800y"}"#), claim("c", &deep), claim("d", "{}")];
        let list = format!(
            r#"{{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "metadata": {{}}, "items": [{}]}}"#,
            items.join(", ")
        );
        Ok(Response::new(Body::from(list.into_bytes())))
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_named_and_hides_no_other() {
        let client = Client::new(tower::service_fn(answer_claims), "default");
        let lists = Lists::new(&client);
        let claims: Looked<Vec<ResourceClaim>> = lists.all(ListParams::default(), "ResourceClaims").await;
        let names: Vec<_> =
            claims.seen().unwrap().iter().map(|claim| claim.metadata.name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("d")]);
        let left_out = lists.into_left_out();
        assert_eq!(left_out.len(), 2, "{left_out:?}");
        assert!(left_out[0].starts_with("resourceclaims ns/b: "), "{left_out:?}");
        assert!(left_out[1].starts_with("resourceclaims ns/c: "), "{left_out:?}");
    }
}
