//! Create, update, apply and delete: the rules of the server, over the [`Store`].

use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::{self, Managers};
use super::gates::Gates;
use super::identity;
use super::kinds::{Kind, StatusRule};
use super::normalize::{drop_empty, normalize};
use super::status::ApiStatus;
use super::store::{Entry, Key, Store};
use super::validate::validate;

/// Result of a write: the object as it is now stored.
pub(crate) type Written = Result<Arc<Value>, ApiStatus>;

/// Which part of the object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status alone.
    Status,
}

/// A server-side apply.
#[derive(Debug)]
pub(crate) struct Apply<'a> {
    pub(crate) manager: &'a str,
    pub(crate) config: Value,
    pub(crate) force: bool,
}

/// Conditions of a delete.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// Creates an object. With `dry_run` the answer is the same, and nothing changes.
pub(crate) fn create(
    store: &mut Store,
    kind: &Kind,
    namespace: Option<&str>,
    object: Value,
    dry_run: bool,
) -> Written {
    create_with(store, kind, namespace, object, Managers::new(), dry_run)
}

fn create_with(
    store: &mut Store,
    kind: &Kind,
    namespace: Option<&str>,
    mut object: Value,
    applied: Managers,
    dry_run: bool,
) -> Written {
    set_type(kind, &mut object)?;
    set_namespace(namespace, &mut object)?;
    if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(ApiStatus::bad_request("metadata.resourceVersion must not be set on a new object"));
    }
    let name = identity::name_for(&mut object, |name| store.get(&Key::new(kind, namespace, name)).is_some())
        .ok_or_else(|| {
            let cause = super::status::Cause::required("metadata.name", "name or generateName must be set");
            ApiStatus::invalid(kind, "", vec![cause])
        })?;
    if kind.status == StatusRule::DroppedOnCreate {
        remove(&mut object, "status");
    }
    identity::stamp_new(kind, &mut object);
    let object = admit(&store.gates, kind, None, object)?;
    let key = Key::new(kind, namespace, &name);
    if store.get(&key).is_some() {
        return Err(ApiStatus::already_exists(kind, &name));
    }
    let mut entry = Entry { object: Arc::new(object), applied, applied_status: Managers::new() };
    record_managers(kind, &mut entry);
    Ok(if dry_run { entry.object } else { store.put(key, entry) })
}

/// Replaces one part of an object.
pub(crate) fn update(
    store: &mut Store,
    kind: &Kind,
    key: &Key,
    object: Value,
    part: Part,
    dry_run: bool,
) -> Written {
    let entry = existing(store, kind, key)?;
    replace(store, kind, key, entry, object, part, dry_run)
}

/// Applies a JSON merge patch (RFC 7396) to one part of an object.
pub(crate) fn merge(
    store: &mut Store,
    kind: &Kind,
    key: &Key,
    patch: &Value,
    part: Part,
    dry_run: bool,
) -> Written {
    let entry = existing(store, kind, key)?;
    let mut object = (*entry.object).clone();
    // Without a version in the patch there is no check of it.
    remove(&mut object["metadata"], "resourceVersion");
    merge_value(&mut object, patch);
    replace(store, kind, key, entry, object, part, dry_run)
}

/// Applies a configuration; creates the object if it does not exist.
pub(crate) fn apply(
    store: &mut Store,
    kind: &Kind,
    key: &Key,
    request: Apply<'_>,
    part: Part,
    dry_run: bool,
) -> Written {
    let Apply { manager, mut config, force } = request;
    set_type(kind, &mut config)?;
    let metadata = &config["metadata"];
    if metadata["name"].as_str().is_some_and(|name| name != key.name) {
        return Err(ApiStatus::bad_request(format!(
            "metadata.name is not {:?}, the name of the path",
            key.name
        )));
    }
    let Some(mut entry) = store.get(key).cloned() else {
        if part == Part::Status {
            return Err(ApiStatus::not_found(kind, &key.name));
        }
        config["metadata"]["name"] = json!(key.name);
        let mut managers = Managers::new();
        let _ = apply::apply(&mut json!({}), &mut managers, manager, &owned(&config), force);
        let namespace = kind.namespaced.then_some(key.namespace.as_str());
        return create_with(store, kind, namespace, config, managers, dry_run);
    };
    let mut object = (*entry.object).clone();
    match config["metadata"]["resourceVersion"].as_str() {
        Some(version) => object["metadata"]["resourceVersion"] = json!(version),
        None => remove(&mut object["metadata"], "resourceVersion"),
    }
    let managers = if part == Part::Status { &mut entry.applied_status } else { &mut entry.applied };
    apply::apply(&mut object, managers, manager, &owned(&config), force).map_err(|conflicts| {
        let list: Vec<String> = conflicts.iter().map(|c| format!("{} of {:?}", c.field, c.manager)).collect();
        ApiStatus::conflict(format!("apply conflicts with fields of others: {}", list.join(", ")))
    })?;
    replace(store, kind, key, entry, object, part, dry_run)
}

/// Deletes an object, or marks it as being deleted if it has finalizers.
pub(crate) fn delete(
    store: &mut Store,
    kind: &Kind,
    key: &Key,
    only_if: &Preconditions,
    dry_run: bool,
) -> Written {
    let entry = existing(store, kind, key)?;
    let metadata = &entry.object["metadata"];
    for (field, wanted) in [("uid", &only_if.uid), ("resourceVersion", &only_if.resource_version)] {
        if let Some(wanted) = wanted
            && metadata[field] != wanted.as_str()
        {
            let message =
                format!("{} {:?} has {field} {}, not {wanted:?}", kind.resource(), key.name, metadata[field]);
            return Err(ApiStatus::conflict(message));
        }
    }
    if dry_run {
        return Ok(entry.object);
    }
    if metadata["finalizers"].as_array().is_none_or(Vec::is_empty) {
        return store.remove(key).ok_or_else(|| ApiStatus::not_found(kind, &key.name));
    }
    if metadata["deletionTimestamp"].is_string() {
        return Ok(entry.object);
    }
    let mut object = (*entry.object).clone();
    object["metadata"]["deletionTimestamp"] = json!(identity::now());
    object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    Ok(store.put(key.clone(), Entry { object: Arc::new(object), ..entry }))
}

fn existing(store: &Store, kind: &Kind, key: &Key) -> Result<Entry, ApiStatus> {
    store.get(key).cloned().ok_or_else(|| ApiStatus::not_found(kind, &key.name))
}

/// Puts `object` in the place of `entry`, as far as a write of this part may change it.
fn replace(
    store: &mut Store,
    kind: &Kind,
    key: &Key,
    mut entry: Entry,
    mut object: Value,
    part: Part,
    dry_run: bool,
) -> Written {
    let old = Arc::clone(&entry.object);
    set_type(kind, &mut object)?;
    set_namespace(kind.namespaced.then_some(key.namespace.as_str()), &mut object)?;
    identity::check_same(kind, &key.name, &old, &object)?;
    let mut object = match part {
        Part::Main => {
            if kind.has_status() {
                copy(&old, &mut object, "status");
            }
            object
        }
        Part::Status => {
            let mut whole = (*old).clone();
            copy(&object, &mut whole, "status");
            whole
        }
    };
    identity::keep(&old, &mut object);
    let object = admit(&store.gates, kind, Some(&old), object)?;
    entry.object = Arc::new(object);
    record_managers(kind, &mut entry);
    if dry_run || entry.object == old {
        return Ok(entry.object);
    }
    let metadata = &entry.object["metadata"];
    if metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
    {
        store.put(key.clone(), entry);
        return store.remove(key).ok_or_else(|| ApiStatus::not_found(kind, &key.name));
    }
    Ok(store.put(key.clone(), entry))
}

/// Reads, completes and checks an object before it is stored.
fn admit(gates: &Gates, kind: &Kind, old: Option<&Value>, object: Value) -> Result<Value, ApiStatus> {
    let mut object = normalize(kind, object, &identity::now())?;
    if let Some(old) = old.filter(|_| kind.counts_generation) {
        count_generation(old, &mut object);
    }
    if kind.kind == "ResourceSlice" {
        gates.drop_disabled(old.map(|old| &old["spec"]), &mut object["spec"]);
    }
    let causes = validate(gates, kind, old, &object);
    if !causes.is_empty() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(ApiStatus::invalid(kind, name, causes));
    }
    drop_empty(&mut object);
    Ok(object)
}

/// Counts a change of the spec. As on the real server, one that is dropped afterwards counts too.
fn count_generation(old: &Value, object: &mut Value) {
    let mut spec = object["spec"].clone();
    drop_empty(&mut spec);
    if spec != old["spec"] {
        object["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
}

fn set_type(kind: &Kind, object: &mut Value) -> Result<(), ApiStatus> {
    let Value::Object(map) = object else {
        return Err(ApiStatus::bad_request("the body is no JSON object"));
    };
    for (field, wanted) in [("apiVersion", kind.api_version()), ("kind", kind.kind.to_owned())] {
        match map.get(field).and_then(Value::as_str) {
            Some(given) if !given.is_empty() && given != wanted => {
                return Err(ApiStatus::bad_request(format!(
                    "{field} is {given:?}, the path is of {wanted:?}"
                )));
            }
            _ => {
                map.insert(field.into(), wanted.into());
            }
        }
    }
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".into(), json!({}));
    }
    Ok(())
}

fn set_namespace(namespace: Option<&str>, object: &mut Value) -> Result<(), ApiStatus> {
    let metadata = &mut object["metadata"];
    match (namespace, metadata["namespace"].as_str()) {
        (Some(wanted), Some(given)) if !given.is_empty() && given != wanted => {
            Err(ApiStatus::bad_request(format!("metadata.namespace is {given:?}, the path is of {wanted:?}")))
        }
        (Some(wanted), _) => {
            metadata["namespace"] = json!(wanted);
            Ok(())
        }
        (None, _) => {
            remove(metadata, "namespace");
            Ok(())
        }
    }
}

/// What a manager owns of a configuration: not what names the object.
fn owned(config: &Value) -> Value {
    let mut owned = config.clone();
    for field in ["apiVersion", "kind"] {
        remove(&mut owned, field);
    }
    for field in ["name", "namespace", "uid", "resourceVersion", "generateName", "managedFields"] {
        remove(&mut owned["metadata"], field);
    }
    if owned["metadata"] == json!({}) {
        remove(&mut owned, "metadata");
    }
    owned
}

fn record_managers(kind: &Kind, entry: &mut Entry) {
    let version = kind.api_version();
    let mut entries = apply::managed_fields(&entry.applied, &version, false);
    entries.extend(apply::managed_fields(&entry.applied_status, &version, true));
    let object = Arc::make_mut(&mut entry.object);
    if entries.is_empty() {
        remove(&mut object["metadata"], "managedFields");
    } else {
        object["metadata"]["managedFields"] = entries.into();
    }
}

fn merge_value(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            remove(target, field);
        } else {
            merge_value(&mut target[field], value);
        }
    }
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(map) = object {
        map.remove(field);
    }
}
