//! Makes a world smaller while something holds of it.

use anyhow::Result;
use serde_json::Value;

use super::world::World;

/// The world without all parts that do not matter for `holds`. A part is an element of a list, or a field.
pub(crate) fn smallest(world: &World, mut holds: impl FnMut(&World) -> Result<bool>) -> Result<World> {
    let mut best = serde_json::to_value(world)?;
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        let mut paths = Vec::new();
        removable(&best, "", &mut paths);
        // Whole objects go before their fields.
        paths.sort_by_key(|path| path.matches('/').count());
        for path in paths {
            let Some(candidate) = without(&best, &path) else { continue };
            let Ok(world) = serde_json::from_value::<World>(candidate.clone()) else { continue };
            if is_readable(&world) && holds(&world)? {
                best = candidate;
                is_smaller = true;
            }
        }
    }
    Ok(serde_json::from_value(best)?)
}

/// Whether all objects could be the API's: Go reads some more.
fn is_readable(world: &World) -> bool {
    use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
    fn all<T: serde::de::DeserializeOwned>(objects: &[Value]) -> bool {
        objects.iter().all(|object| serde_json::from_value::<T>(object.clone()).is_ok())
    }
    !world.claims.is_empty()
        && all::<DeviceClass>(&world.classes)
        && all::<ResourceSlice>(&world.slices)
        && all::<ResourceClaim>(&world.held)
        && all::<ResourceClaim>(&world.claims)
}

/// Fields without which an object would not have passed the API server.
const NEEDED: [&str; 26] = [
    "cel",
    "exactly",
    "expression",
    "firstAvailable",
    "counters",
    "counterSet",
    "min",
    "devices",
    "metadata",
    "spec",
    "name",
    "driver",
    "pool",
    "request",
    "device",
    "allocationMode",
    "count",
    "key",
    "effect",
    "operator",
    "deviceClassName",
    "value",
    "generation",
    "resourceSliceCount",
    "default",
    "nodeName",
];

fn removable(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            for (index, element) in list.iter().enumerate().rev() {
                paths.push(format!("{path}/{index}"));
                removable(element, &format!("{path}/{index}"), paths);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                if !NEEDED.contains(&name.as_str()) {
                    paths.push(path.clone());
                }
                removable(field, &path, paths);
            }
        }
        _ => {}
    }
}

fn without(value: &Value, path: &str) -> Option<Value> {
    let mut value = value.clone();
    let (parent, last) = path.rsplit_once('/')?;
    match value.pointer_mut(parent)? {
        Value::Array(items) => {
            let index: usize = last.parse().ok()?;
            let is_last_alternative = parent.ends_with("/firstAvailable") && items.len() == 1;
            if index >= items.len() || is_last_alternative {
                return None;
            }
            items.remove(index);
        }
        Value::Object(fields) => {
            fields.remove(&last.replace("~1", "/").replace("~0", "~"))?;
        }
        _ => return None,
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_matter_is_removed() {
        let device = |name: &str| json!({"name": name, "attributes": {"a.test/b": {"int": 1}}});
        let spec = json!({"driver": "d", "allNodes": true, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [device("x"), device("y")]});
        let slice = json!({"metadata": {"name": "s"}, "spec": spec});
        let world = World {
            node: json!({"metadata": {"name": "n"}}),
            classes: vec![json!({"metadata": {"name": "c"}, "spec": {}})],
            slices: vec![slice.clone(), slice],
            held: Vec::new(),
            claims: vec![json!({"metadata": {"name": "c"}, "spec": {}})],
        };
        let has_y = |world: &World| Ok(json!(world).to_string().contains("\"y\""));
        let smallest = smallest(&world, has_y).unwrap();
        assert_eq!(smallest.classes, Vec::<Value>::new());
        assert_eq!(smallest.slices.len(), 1);
        assert_eq!(smallest.slices[0]["spec"]["devices"], json!([{"name": "y"}]));
    }
}
