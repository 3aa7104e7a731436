//! Server-side apply in a simple form: each manager owns the fields that it applied last.
//!
//! Fields that a manager stops applying disappear unless another manager applies them. Two managers that
//! apply different values conflict; with `force` the last one wins and the other no longer owns the field.
//! Lists are replaced whole, but for the few that the DRA kinds merge by key ([`list_keys`]). Plain updates
//! own nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What each manager applied last, by field.
pub(crate) type Managers = BTreeMap<String, Fields>;

/// The leaves of an applied configuration.
pub(crate) type Fields = BTreeMap<Path, Value>;

type Path = Vec<Step>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A field of an object.
    Field(String),
    /// An item of a list that merges by key: its keys as JSON.
    Item(String),
}

/// A field that another manager applied with another value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) manager: String,
    pub(crate) field: String,
}

/// Applies `config` of `manager` to `live`.
///
/// # Errors
/// The conflicts, if there are any and `force` is false; nothing has changed then.
pub(crate) fn apply(
    live: &mut Value,
    managers: &mut Managers,
    manager: &str,
    config: &Value,
    force: bool,
) -> Result<(), Vec<Conflict>> {
    let mut wanted = Fields::new();
    flatten(config, &mut Vec::new(), &mut wanted);
    let conflicts = conflicts(managers, manager, &wanted);
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for (_, fields) in managers.iter_mut().filter(|(name, _)| *name != manager) {
        fields.retain(|path, value| wanted.get(path).is_none_or(|wanted| wanted == value));
    }
    let before = managers.insert(manager.to_owned(), wanted.clone()).unwrap_or_default();
    for path in before.keys() {
        if let Some(gone) = released(path, managers) {
            remove(live, &gone);
        }
    }
    for (path, value) in wanted {
        set(live, &path, value);
    }
    Ok(())
}

/// The `managedFields` entries of these managers; `status` tells entries of the subresource.
pub(crate) fn managed_fields(managers: &Managers, api_version: &str, status: bool) -> Vec<Value> {
    let entry = |(manager, fields): (&String, &Fields)| {
        let mut tree = json!({});
        for path in fields.keys() {
            let keys = path.iter().map(|step| match step {
                Step::Field(name) => format!("f:{name}"),
                Step::Item(keys) => format!("k:{keys}"),
            });
            keys.fold(&mut tree, |at, key| child(at, key));
        }
        let mut entry = json!({
            "manager": manager, "operation": "Apply", "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": tree,
        });
        if status {
            entry["subresource"] = json!("status");
        }
        entry
    };
    managers.iter().map(entry).collect()
}

fn conflicts(managers: &Managers, manager: &str, wanted: &Fields) -> Vec<Conflict> {
    let others = managers.iter().filter(|(name, _)| *name != manager);
    let differing =
        others.flat_map(|(name, fields)| fields.iter().map(move |(path, value)| (name, path, value)));
    differing
        .filter(|(_, path, value)| wanted.get(*path).is_some_and(|wanted| wanted != *value))
        .map(|(name, path, _)| Conflict { manager: name.clone(), field: display(path) })
        .collect()
}

/// The part of `path` that no manager applies any more: a list item whole, else the field alone.
fn released(path: &[Step], managers: &Managers) -> Option<Path> {
    let applied =
        |prefix: &[Step]| managers.values().flat_map(BTreeMap::keys).any(|path| path.starts_with(prefix));
    let items = (1..=path.len()).filter(|end| matches!(path[end - 1], Step::Item(_)));
    items.chain([path.len()]).map(|end| &path[..end]).find(|prefix| !applied(prefix)).map(<[Step]>::to_vec)
}

fn display(path: &[Step]) -> String {
    path.iter().fold(String::new(), |text, step| match step {
        Step::Field(name) => format!("{text}.{name}"),
        Step::Item(keys) => format!("{text}[{keys}]"),
    })
}

/// The key fields of a list that merges by key, told by the names of the list and of its parent.
fn list_keys(path: &[Step]) -> Option<&'static [&'static str]> {
    match path {
        [.., Step::Field(parent), Step::Field(list)] => match (parent.as_str(), list.as_str()) {
            ("status", "devices") => Some(&["device", "driver", "pool", "shareID"]),
            ("status", "reservedFor") | ("metadata", "ownerReferences") => Some(&["uid"]),
            (_, "conditions") => Some(&["type"]),
            _ => None,
        },
        [.., Step::Item(_), Step::Field(list)] if list == "conditions" => Some(&["type"]),
        _ => None,
    }
}

fn keys_of(item: &Value, keys: &[&str]) -> String {
    let picked: Map<String, Value> = keys
        .iter()
        .filter(|key| !item[**key].is_null())
        .map(|key| ((*key).to_owned(), item[*key].clone()))
        .collect();
    Value::Object(picked).to_string()
}

fn flatten(value: &Value, path: &mut Path, fields: &mut Fields) {
    match (value, list_keys(path)) {
        (Value::Object(map), _) if !map.is_empty() => {
            for (name, value) in map {
                path.push(Step::Field(name.clone()));
                flatten(value, path, fields);
                path.pop();
            }
        }
        (Value::Array(items), Some(keys)) => {
            for item in items {
                path.push(Step::Item(keys_of(item, keys)));
                flatten(item, path, fields);
                path.pop();
            }
        }
        _ => {
            fields.insert(path.clone(), value.clone());
        }
    }
}

/// Sets a leaf, creating what is missing on the way.
fn set(live: &mut Value, path: &[Step], value: Value) {
    let mut at = live;
    for (depth, step) in path.iter().enumerate() {
        at = match step {
            Step::Field(name) => child(at, name.clone()),
            Step::Item(keys) => item(at, keys, list_keys(&path[..depth]).unwrap_or_default()),
        };
    }
    // An empty object asks only that there is one.
    if !(value == json!({}) && at.is_object()) {
        *at = value;
    }
}

fn child(value: &mut Value, name: String) -> &mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    &mut value[name]
}

fn item<'a>(value: &'a mut Value, wanted: &str, keys: &[&str]) -> &'a mut Value {
    if !value.is_array() {
        *value = json!([]);
    }
    let length = value.as_array().map_or(0, Vec::len);
    let found = (0..length).find(|index| keys_of(&value[*index], keys) == wanted);
    if found.is_none()
        && let Value::Array(items) = value
    {
        // The keys were written by `keys_of`, so they can be read.
        items.push(serde_json::from_str(wanted).unwrap_or_default());
    }
    &mut value[found.unwrap_or(length)]
}

fn remove(live: &mut Value, path: &[Step]) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = live;
    for (depth, step) in parents.iter().enumerate() {
        let next = match (step, at) {
            (Step::Field(name), Value::Object(map)) => map.get_mut(name),
            (Step::Item(wanted), Value::Array(items)) => {
                let keys = list_keys(&path[..depth]).unwrap_or_default();
                items.iter_mut().find(|item| keys_of(item, keys) == *wanted)
            }
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    match (last, at) {
        (Step::Field(name), Value::Object(map)) => {
            map.remove(name);
        }
        (Step::Item(wanted), Value::Array(items)) => {
            let keys = list_keys(parents).unwrap_or_default();
            items.retain(|item| keys_of(item, keys) != *wanted);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, data: i64) -> Value {
        json!({"driver": "d", "pool": "p", "device": name, "data": data})
    }

    #[test]
    fn a_field_that_is_no_longer_applied_disappears() {
        let (mut live, mut managers) = (json!({"spec": {"kept": 1}}), Managers::new());
        apply(&mut live, &mut managers, "a", &json!({"spec": {"x": 1, "y": [1, 2]}}), false)
            .expect("applied");
        assert_eq!(live, json!({"spec": {"kept": 1, "x": 1, "y": [1, 2]}}));
        apply(&mut live, &mut managers, "a", &json!({"spec": {"x": 2}}), false).expect("applied");
        assert_eq!(live, json!({"spec": {"kept": 1, "x": 2}}));
    }

    #[test]
    fn two_managers_conflict_unless_forced() {
        let (mut live, mut managers) = (json!({}), Managers::new());
        apply(&mut live, &mut managers, "a", &json!({"x": 1}), false).expect("applied");
        let conflicts = apply(&mut live, &mut managers, "b", &json!({"x": 2}), false).expect_err("conflict");
        assert_eq!(conflicts, [Conflict { manager: "a".into(), field: ".x".into() }]);
        assert_eq!(live, json!({"x": 1}));
        apply(&mut live, &mut managers, "b", &json!({"x": 2}), true).expect("forced");
        apply(&mut live, &mut managers, "a", &json!({}), false).expect("owns nothing any more");
        assert_eq!(live, json!({"x": 2}));
    }

    #[test]
    fn two_drivers_keep_their_own_device_statuses() {
        let (mut live, mut managers) = (json!({}), Managers::new());
        let config = |devices: &[Value]| json!({"status": {"devices": devices}});
        apply(&mut live, &mut managers, "a", &config(&[device("x", 1), device("y", 1)]), false)
            .expect("applied");
        apply(&mut live, &mut managers, "b", &config(&[device("z", 2)]), false).expect("applied");
        apply(&mut live, &mut managers, "a", &config(&[device("y", 3)]), false).expect("applied");
        assert_eq!(live, config(&[device("y", 3), device("z", 2)]));
    }

    #[test]
    fn managed_fields_name_manager_and_fields() {
        let (mut live, mut managers) = (json!({}), Managers::new());
        apply(&mut live, &mut managers, "a", &json!({"spec": {"x": 1}}), false).expect("applied");
        let entries = managed_fields(&managers, "v1", false);
        assert_eq!(entries[0]["manager"], "a");
        assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:x": null}}));
    }
}
