//! Direct access to the objects for tests: typed, without HTTP, without faults and not in the call log.

use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::kinds::{self, Kind, StatusRule};
use super::select::Selector;
use super::status::ApiStatus;
use super::store::Key;
use super::write::{self, Part, Preconditions};
use super::{ApiServer, lock};

/// Names an object: `"node-1"` for a cluster-scoped kind, `("default", "claim-1")` for a namespaced one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ObjectKey {
    /// Namespace, `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl From<&str> for ObjectKey {
    fn from(name: &str) -> Self {
        Self { namespace: None, name: name.to_owned() }
    }
}

impl From<(&str, &str)> for ObjectKey {
    fn from((namespace, name): (&str, &str)) -> Self {
        Self { namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A manifest could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The text is no YAML.
    #[error("document {document} cannot be read as YAML: {reason}; correct its syntax")]
    Syntax {
        /// Which document of the text, counted from 1.
        document: usize,
        /// What the parser says.
        reason: String,
    },
    /// The stand-in does not serve the kind.
    #[error(
        "document {document} is of kind {kind:?} in {api_version:?}, which the stand-in does not serve; leave it out"
    )]
    UnknownKind {
        /// Which document of the text, counted from 1.
        document: usize,
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// The server refused the object.
    #[error("document {document}, {kind} {name:?}, was refused: {status}")]
    Refused {
        /// Which document of the text, counted from 1.
        document: usize,
        /// Its `kind`.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        status: Box<ApiStatus>,
    },
}

/// What a test waited for did not come.
#[derive(Debug, thiserror::Error)]
#[error("waited {} ms for: {what}; it did not come", .waited.as_millis())]
#[non_exhaustive]
pub struct WaitError {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
}

/// Direct access.
impl ApiServer {
    /// Creates or replaces every object of a YAML text with one or more documents, like `kubectl apply`.
    ///
    /// Namespaced objects without a namespace go to `default`. Returns what was stored, in order.
    ///
    /// # Errors
    /// If a document is no YAML, of a kind that is not served, or refused by validation. Earlier documents stay.
    pub fn apply_yaml(&self, text: &str) -> Result<Vec<ObjectKey>, ManifestError> {
        let mut stored = Vec::new();
        for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
            let document_number = index + 1;
            let object: Value = serde::Deserialize::deserialize(document).map_err(|error| {
                ManifestError::Syntax { document: document_number, reason: error.to_string() }
            })?;
            if !object.is_null() {
                stored.push(self.apply_document(document_number, object)?);
            }
        }
        Ok(stored)
    }

    fn apply_document(&self, document: usize, object: Value) -> Result<ObjectKey, ManifestError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind_name) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let Some(kind) = kinds::by_type(&api_version, &kind_name) else {
            return Err(ManifestError::UnknownKind { document, api_version, kind: kind_name });
        };
        let stored = self.put_value(kind, object);
        stored.map(|stored| key_of(&stored)).map_err(|status| {
            let kind = kind.kind.to_owned();
            ManifestError::Refused { document, kind, name, status: Box::new(status) }
        })
    }

    /// The node of this name; created if there is none.
    ///
    /// # Errors
    /// If the name is no DNS subdomain.
    pub fn node(&self, name: &str) -> Result<Node, ApiStatus> {
        if let Some(node) = self.get::<Node>(name) {
            return Ok(node);
        }
        let hostname = json!({"kubernetes.io/hostname": name});
        let node: Node = decode(&json!({"metadata": {"name": name, "labels": hostname}}))?;
        self.put(&node)
    }

    /// The object, if there is one.
    pub fn get<K: Resource + DeserializeOwned>(&self, key: impl Into<ObjectKey>) -> Option<K> {
        let key = store_key(kind_of::<K>().ok()?, &key.into());
        let object = lock(&self.inner.store).get(&key)?.object.clone();
        decode(&object).ok()
    }

    /// All objects of the kind, in order of namespace and name.
    #[must_use]
    pub fn list<K: Resource + DeserializeOwned>(&self) -> Vec<K> {
        let Ok(kind) = kind_of::<K>() else { return Vec::new() };
        let store = lock(&self.inner.store);
        store.of_kind(kind).filter_map(|(_, object)| decode(object).ok()).collect()
    }

    /// Creates the object, or replaces it; also its status, if it has one.
    ///
    /// A `resourceVersion` in the object must be the current one. Namespaced objects without a namespace go to
    /// `default`.
    ///
    /// # Errors
    /// What the server answers to such a request: refused fields, a conflict, a kind that is not served.
    pub fn put<K: Resource + Serialize + DeserializeOwned>(&self, object: &K) -> Result<K, ApiStatus> {
        let object =
            serde_json::to_value(object).map_err(|error| ApiStatus::bad_request(error.to_string()))?;
        decode(&self.put_value(kind_of::<K>()?, object)?)
    }

    /// Deletes the object as a client would: one with finalizers stays, marked as being deleted.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn delete<K: Resource>(&self, key: impl Into<ObjectKey>) -> Result<(), ApiStatus> {
        let kind = kind_of::<K>()?;
        let key = store_key(kind, &key.into());
        self.change(|store| write::delete(store, kind, &key, &Preconditions::default(), false)).map(drop)
    }

    /// Removes the object at once, finalizers or not; returns whether it was there.
    pub fn remove<K: Resource>(&self, key: impl Into<ObjectKey>) -> bool {
        let Ok(kind) = kind_of::<K>() else { return false };
        let key = store_key(kind, &key.into());
        let removed = lock(&self.inner.store).remove(&key).is_some();
        self.notify();
        removed
    }

    /// Deletes all objects of the kind that the field selector picks, as the kubelet does with slices.
    ///
    /// # Errors
    /// If the selector names a field by which the kind cannot be selected.
    pub fn delete_where<K: Resource>(&self, field_selector: &str) -> Result<usize, ApiStatus> {
        let kind = kind_of::<K>()?;
        let selector = Selector::parse(kind, None, field_selector, "")?;
        Ok(self.delete_selected(kind, &selector).len())
    }

    /// Waits until `look` finds something; it is asked again after each change.
    ///
    /// # Errors
    /// After `timeout`, saying `what` was waited for.
    ///
    /// # Cancel safety
    /// Safe: nothing but the wait is lost.
    pub async fn wait_until<T>(
        &self,
        what: &str,
        timeout: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut version = self.inner.wakeups.version.subscribe();
        let search = async {
            loop {
                version.mark_unchanged();
                if let Some(found) = look(self) {
                    return found;
                }
                // The sender lives as long as `self`, so this cannot fail.
                let _ = version.changed().await;
            }
        };
        let found = tokio::time::timeout(timeout, search).await;
        found.map_err(|_| WaitError { what: what.to_owned(), waited: timeout })
    }

    fn put_value(&self, kind: &'static Kind, mut object: Value) -> Result<Value, ApiStatus> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut namespace = None;
        if kind.namespaced {
            let given = text(&object["metadata"]["namespace"]);
            namespace = Some(if given.is_empty() { "default".to_owned() } else { given });
        }
        let name = text(&object["metadata"]["name"]);
        let key = Key::new(kind, namespace.as_deref(), &name);
        let status = object.get("status").cloned().filter(|status| !status.is_null());
        self.change(|store| {
            let mut stored = if store.get(&key).is_some() {
                write::update(store, kind, &key, object.take(), Part::Main, false)?
            } else {
                write::create(store, kind, namespace.as_deref(), object.take(), false)?
            };
            let needs_status =
                kind.status == StatusRule::DroppedOnCreate || stored.get("status") != status.as_ref();
            if let Some(status) = status
                && kind.has_status()
                && needs_status
            {
                let key = Key::new(kind, namespace.as_deref(), &text(&stored["metadata"]["name"]));
                let with_status = json!({"metadata": {}, "status": status});
                stored = write::update(store, kind, &key, with_status, Part::Status, false)?;
            }
            Ok((*stored).clone())
        })
    }
}

fn kind_of<K: Resource>() -> Result<&'static Kind, ApiStatus> {
    kinds::by_type(K::API_VERSION, K::KIND).ok_or_else(|| {
        ApiStatus::bad_request(format!("the stand-in does not serve {} of {}", K::KIND, K::API_VERSION))
    })
}

/// The key of an object; a namespaced one without a namespace is in `default`.
fn store_key(kind: &Kind, key: &ObjectKey) -> Key {
    let namespace = kind.namespaced.then(|| key.namespace.as_deref().unwrap_or("default"));
    Key::new(kind, namespace, &key.name)
}

fn key_of(object: &Value) -> ObjectKey {
    let metadata = &object["metadata"];
    ObjectKey {
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: metadata["name"].as_str().unwrap_or_default().to_owned(),
    }
}

fn decode<K: DeserializeOwned>(object: &Value) -> Result<K, ApiStatus> {
    serde_json::from_value(object.clone()).map_err(|error| ApiStatus::bad_request(error.to_string()))
}
