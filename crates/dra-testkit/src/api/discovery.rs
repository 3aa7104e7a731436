//! What clients ask before they know the server: version, health, groups and kinds.

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind, VERSION};

/// The answer to a discovery path, if it is one.
pub(crate) fn answer(path: &str, minor: u32) -> Option<Value> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["version"] => {
            let version = format!("v1.{minor}.0-dra-testkit");
            Some(json!({"major": "1", "minor": minor.to_string(), "gitVersion": version}))
        }
        ["healthz" | "livez" | "readyz"] => Some(json!("ok")),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": [VERSION]})),
        ["apis"] => {
            let mut groups: Vec<&str> =
                KINDS.iter().map(|kind| kind.group).filter(|group| !group.is_empty()).collect();
            groups.dedup();
            let groups: Vec<Value> = groups.into_iter().map(group).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", VERSION] => Some(resources("")),
        ["apis", name] if is_served(name) => Some(group(name)),
        ["apis", name, VERSION] if is_served(name) => Some(resources(name)),
        _ => None,
    }
}

fn is_served(group: &str) -> bool {
    !group.is_empty() && KINDS.iter().any(|kind| kind.group == group)
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/{VERSION}"), "version": VERSION});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str) -> Value {
    let kinds = KINDS.iter().filter(|kind| kind.group == group);
    let resources: Vec<Value> =
        kinds.flat_map(|kind| [entry(kind, ""), entry(kind, "/status")]).flatten().collect();
    let version = if group.is_empty() { VERSION.into() } else { format!("{group}/{VERSION}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
}

fn entry(kind: &Kind, subresource: &str) -> Option<Value> {
    let verbs: &[&str] = match subresource {
        "" => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        _ if kind.has_status() => &["get", "patch", "update"],
        _ => return None,
    };
    let name = format!("{}{subresource}", kind.plural);
    let singular = kind.kind.to_lowercase();
    Some(json!({
        "name": name, "singularName": singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs,
    }))
}
