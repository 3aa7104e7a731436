//! Applies the edits of CDI files to a container configuration.

use super::cdi::{CdiHook, CdiIntelRdt, CdiMount, DeviceNode, Edits};
use super::host;
use super::oci::{DeviceRule, Hook, IntelRdt, Mount, OciDevice, OciSpec};

/// Applies edits in their order.
///
/// # Errors
/// If a device node of the host is missing or not what the edits say.
pub(super) fn apply(spec: &mut OciSpec, edits: &Edits) -> Result<(), String> {
    for entry in &edits.env {
        set_env(spec, entry);
    }
    for node in &edits.device_nodes {
        add_device(spec, host::complete(node)?);
    }
    for device in &edits.net_devices {
        spec.net_devices.insert(device.host_interface_name.clone(), device.name.clone());
    }
    for mount in &edits.mounts {
        spec.mounts.retain(|other| other.destination != mount.container_path);
        spec.mounts.push(mount.into());
    }
    if !edits.mounts.is_empty() {
        spec.mounts.sort_by_key(|mount| depth(&mount.destination));
    }
    for hook in &edits.hooks {
        spec.hooks.entry(hook.hook_name.clone()).or_default().push(hook.into());
    }
    if let Some(rdt) = &edits.intel_rdt {
        spec.intel_rdt = Some(rdt.into());
    }
    for gid in &edits.additional_gids {
        if *gid != 0 && !spec.additional_gids.contains(gid) {
            spec.additional_gids.push(*gid);
        }
    }
    Ok(())
}

/// Replaces a variable in its place, or adds it.
fn set_env(spec: &mut OciSpec, entry: &str) {
    let name = entry.split('=').next().unwrap_or_default();
    let same = |other: &&mut String| other.split('=').next() == Some(name);
    match spec.env.iter_mut().find(same) {
        Some(other) => entry.clone_into(other),
        None => spec.env.push(entry.to_owned()),
    }
}

fn add_device(spec: &mut OciSpec, node: DeviceNode) {
    let owner = |own: Option<u32>, process: u32| own.or_else(|| (process > 0).then_some(process));
    if matches!(node.r#type.as_str(), "b" | "c") {
        let access = if node.permissions.is_empty() { "rwm".to_owned() } else { node.permissions };
        let (r#type, major, minor) = (node.r#type.clone(), node.major, node.minor);
        spec.device_rules.push(DeviceRule { r#type, major, minor, access });
    }
    spec.devices.retain(|other| other.path != node.path);
    spec.devices.push(OciDevice {
        path: node.path,
        r#type: node.r#type,
        major: node.major,
        minor: node.minor,
        file_mode: node.file_mode,
        uid: owner(node.uid, spec.uid),
        gid: owner(node.gid, spec.gid),
    });
}

/// How many parts a path has.
fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}

impl From<&CdiMount> for Mount {
    fn from(mount: &CdiMount) -> Self {
        Self {
            source: mount.host_path.clone(),
            destination: mount.container_path.clone(),
            r#type: mount.r#type.clone(),
            options: mount.options.clone(),
        }
    }
}

impl From<&CdiHook> for Hook {
    fn from(hook: &CdiHook) -> Self {
        Self {
            path: hook.path.clone(),
            args: hook.args.clone(),
            env: hook.env.clone(),
            timeout: hook.timeout,
        }
    }
}

impl From<&CdiIntelRdt> for IntelRdt {
    fn from(rdt: &CdiIntelRdt) -> Self {
        Self {
            clos_id: rdt.clos_id.clone(),
            l3_cache_schema: rdt.l3_cache_schema.clone(),
            mem_bw_schema: rdt.mem_bw_schema.clone(),
            schemata: rdt.schemata.clone(),
            enable_monitoring: rdt.enable_monitoring,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn after(mut spec: OciSpec, edits: Value) -> OciSpec {
        apply(&mut spec, &serde_json::from_value(edits).expect("edits")).expect("applied");
        spec
    }

    #[test]
    fn a_later_variable_takes_the_place_of_an_earlier_one() {
        let spec = OciSpec { env: vec!["A=1".into(), "AB=2".into()], ..OciSpec::default() };
        let spec = after(spec, json!({"env": ["A=3", "C=4", "C=5"]}));
        assert_eq!(spec.env, ["A=3", "AB=2", "C=5"]);
        assert_eq!(spec.env("C"), Some("5"));
    }

    #[test]
    fn a_device_replaces_one_of_the_same_path_and_gets_the_users_of_the_process() {
        let spec = OciSpec { uid: 1000, ..OciSpec::default() };
        let node = json!({"path": "/dev/gpu", "type": "c", "major": 195, "minor": 300});
        let spec = after(spec, json!({"deviceNodes": [node]}));
        let node =
            json!({"path": "/dev/gpu", "type": "c", "major": 195, "minor": 1, "permissions": "rw", "uid": 0});
        let spec = after(spec, json!({"deviceNodes": [node]}));
        assert_eq!(spec.devices.len(), 1);
        assert_eq!((spec.devices[0].minor, spec.devices[0].uid, spec.devices[0].gid), (1, Some(0), None));
        let access: Vec<&str> = spec.device_rules.iter().map(|rule| rule.access.as_str()).collect();
        assert_eq!(access, ["rwm", "rw"]);
    }

    #[test]
    fn mounts_are_replaced_and_sorted_by_depth() {
        let mount = |host: &str, path: &str| json!({"hostPath": host, "containerPath": path});
        let spec = after(OciSpec::default(), json!({"mounts": [mount("/1", "/a/b"), mount("/2", "/c")]}));
        let spec = after(spec, json!({"mounts": [mount("/3", "/a/b"), mount("/4", "/d")]}));
        let shown: Vec<(&str, &str)> =
            spec.mounts.iter().map(|mount| (mount.source.as_str(), mount.destination.as_str())).collect();
        assert_eq!(shown, [("/2", "/c"), ("/4", "/d"), ("/3", "/a/b")]);
    }

    #[test]
    fn groups_are_not_repeated_and_the_last_rdt_wins() {
        let spec =
            after(OciSpec::default(), json!({"additionalGids": [5, 0, 5], "intelRdt": {"closID": "a"}}));
        let spec = after(spec, json!({"additionalGids": [5, 6], "intelRdt": {"closID": "b"}}));
        assert_eq!(spec.additional_gids, [5, 6]);
        assert_eq!(spec.intel_rdt.map(|rdt| rdt.clos_id), Some("b".into()));
    }

    #[test]
    fn hooks_and_interfaces_are_added() {
        let hook = json!({"hookName": "createContainer", "path": "/bin/hook", "args": ["hook"]});
        let net = json!({"hostInterfaceName": "eth5", "name": "net0"});
        let spec = after(OciSpec::default(), json!({"hooks": [hook], "netDevices": [net]}));
        assert_eq!(spec.hooks["createContainer"][0].path, "/bin/hook");
        assert_eq!(spec.net_devices["eth5"], "net0");
    }
}
