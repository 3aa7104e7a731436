//! Lists, whole or by pages.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::request::Query;
use super::select::Selector;
use super::status::ApiStatus;
use super::store::{Key, Store};
use super::watch::parse_version;

/// One page of the selected objects.
///
/// A page that continues an earlier one shows the objects as they are now, under the version of the first page:
/// a watch from that version brings everything that happened in between.
pub(crate) fn page(
    store: &Store,
    kind: &Kind,
    selector: &Selector,
    query: &Query,
) -> Result<Value, ApiStatus> {
    if !matches!(query.resource_version.as_str(), "" | "0") {
        let version = parse_version(&query.resource_version)?;
        if version > store.version() {
            let message =
                format!("resource version {version} is too large, the newest is {}", store.version());
            return Err(ApiStatus::new(504, "Timeout", message));
        }
    }
    let (version, after) = match query.continue_token.as_str() {
        "" => (store.version(), None),
        token => {
            let (version, key) = read_token(kind, token)?;
            if !store.remembers(version) {
                return Err(ApiStatus::expired("the continue token is too old: list from the start"));
            }
            (version, Some(key))
        }
    };
    let left = store
        .of_kind(kind)
        .filter(|(key, object)| after.as_ref().is_none_or(|after| *key > after) && selector.matches(object));
    let mut left: Vec<(&Key, &Value)> = left.map(|(key, object)| (key, object.as_ref())).collect();
    let rest = if query.limit == 0 { 0 } else { left.len().saturating_sub(query.limit) };
    left.truncate(left.len() - rest);
    let mut list = whole(kind, left.iter().map(|(_, object)| *object), version);
    if rest > 0
        && let Some((last, _)) = left.last()
    {
        list["metadata"]["continue"] = json!(token(version, last));
        list["metadata"]["remainingItemCount"] = json!(rest);
    }
    Ok(list)
}

/// A list object. As on the real server, its items do not repeat their kind.
pub(crate) fn whole<'a>(kind: &Kind, objects: impl Iterator<Item = &'a Value>, version: u64) -> Value {
    let items: Vec<Value> = objects.map(without_type).collect();
    json!({
        "apiVersion": kind.api_version(), "kind": format!("{}List", kind.kind),
        "metadata": {"resourceVersion": version.to_string()}, "items": items,
    })
}

fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object {
        map.remove("apiVersion");
        map.remove("kind");
    }
    object
}

fn token(version: u64, last: &Key) -> String {
    format!("{version}_{}_{}", last.namespace, last.name)
}

/// Namespaces and names have no underscore, so the token splits in one way only.
fn read_token(kind: &Kind, token: &str) -> Result<(u64, Key), ApiStatus> {
    let mut parts = token.splitn(3, '_');
    let (version, namespace, name) = (parts.next(), parts.next(), parts.next());
    match (version.and_then(|version| version.parse().ok()), namespace, name) {
        (Some(version), Some(namespace), Some(name)) => Ok((version, Key::new(kind, Some(namespace), name))),
        _ => Err(ApiStatus::bad_request(format!("{token:?} is no continue token"))),
    }
}
