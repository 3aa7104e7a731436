//! What a spec means for a container, and what a container got, both as a set of sentences that can be compared.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use dra_cdi::{ContainerEdits, DeviceNode, DeviceType, Hook, Mount, Spec};
use serde_json::{Value, json};

/// How a sentence about a node's mode begins.
pub(super) const MODE: &str = "mode of ";

/// What a container gets that uses all devices of `spec`.
pub(super) fn meant(spec: &Spec) -> BTreeSet<String> {
    let mut edits = spec.edits().clone();
    for device in spec.devices() {
        edits = edits.merge(device.edits().clone());
    }
    let mut facts = BTreeSet::new();
    facts.extend(edits.env.iter().map(|var| format!("env {}={}", var.name, var.value)));
    facts.extend(edits.device_nodes.iter().flat_map(device_node));
    facts.extend(edits.mounts.iter().map(mount));
    facts.extend(hooks(&edits));
    facts.extend(edits.additional_gids.iter().map(|gid| format!("gid {gid}")));
    facts.extend(
        edits.net_devices.iter().map(|net| format!("net {} as {}", net.host_interface_name, net.name)),
    );
    if let Some(rdt) = &edits.intel_rdt {
        let text = |value: &Option<String>| json!(value.clone().unwrap_or_default());
        facts.insert(rdt_fact(
            &text(&rdt.clos_id),
            &text(&rdt.l3_cache_schema),
            &text(&rdt.mem_bw_schema),
            &json!(rdt.schemata),
            rdt.enable_monitoring,
        ));
    }
    facts
}

/// What stands in the OCI configuration of a container.
pub(super) fn injected(oci: &Value) -> Result<BTreeSet<String>> {
    let mut facts = BTreeSet::new();
    for var in items(&oci["process"]["env"]) {
        facts.insert(format!("env {}", var.as_str().context("a variable is no text")?));
    }
    for node in items(&oci["linux"]["devices"]) {
        let path = &node["path"];
        facts.insert(format!(
            "node {path} {} {}:{} uid {} gid {}",
            node["type"], node["major"], node["minor"], node["uid"], node["gid"]
        ));
        facts.insert(format!("{MODE}{path} {}", node["fileMode"]));
    }
    for rule in items(&oci["linux"]["resources"]["devices"]) {
        facts.insert(format!(
            "access {} {} {}:{} {}",
            rule["allow"], rule["type"], rule["major"], rule["minor"], rule["access"]
        ));
    }
    for mount in items(&oci["mounts"]) {
        facts.insert(format!(
            "mount {} at {} type {} options {}",
            mount["source"], mount["destination"], mount["type"], mount["options"]
        ));
    }
    for (name, list) in oci["hooks"].as_object().into_iter().flatten() {
        for (i, hook) in items(list).enumerate() {
            facts.insert(format!(
                "hook {name} {i} {} args {} env {} timeout {}",
                hook["path"], hook["args"], hook["env"], hook["timeout"]
            ));
        }
    }
    facts.extend(items(&oci["process"]["user"]["additionalGids"]).map(|gid| format!("gid {gid}")));
    for (host, net) in oci["linux"]["netDevices"].as_object().into_iter().flatten() {
        facts.insert(format!("net {host} as {}", net["name"].as_str().unwrap_or_default()));
    }
    if let Some(rdt) = oci["linux"].get("intelRdt") {
        let text = |key: &str| rdt.get(key).cloned().unwrap_or_else(|| json!(""));
        let schemata = rdt.get("schemata").cloned().unwrap_or_else(|| json!([]));
        let monitored = rdt["enableMonitoring"] == true;
        facts.insert(rdt_fact(
            &text("closID"),
            &text("l3CacheSchema"),
            &text("memBwSchema"),
            &schemata,
            monitored,
        ));
    }
    Ok(facts)
}

/// The node, and the access to it. Type and numbers that the spec leaves out come from the node of the host.
fn device_node(node: &DeviceNode) -> Vec<String> {
    let host = super::generate::host_node(node.host_path.as_ref().unwrap_or(&node.path));
    let device_type = node.device_type.map_or_else(|| json!(host.device_type), |t| json!(t));
    let (major, minor) = (node.major.unwrap_or(host.major), node.minor.unwrap_or(host.minor));
    let access = node.permissions.map_or_else(|| "rwm".to_owned(), |permissions| permissions.to_string());
    let path = json!(node.path);
    let number = |value: Option<u32>| json!(value);
    let mut facts = vec![format!(
        "node {path} {device_type} {major}:{minor} uid {} gid {}",
        number(node.uid),
        number(node.gid)
    )];
    // The device cgroup knows no pipes.
    if node.device_type != Some(DeviceType::Fifo) {
        facts.push(format!("access true {device_type} {major}:{minor} {}", json!(access)));
    }
    facts.extend(node.file_mode.map(|mode| format!("{MODE}{path} {mode}")));
    facts
}

fn mount(mount: &Mount) -> String {
    let options = if mount.options.is_empty() { Value::Null } else { json!(mount.options) };
    format!(
        "mount {} at {} type {} options {options}",
        json!(mount.host_path),
        json!(mount.container_path),
        json!(mount.mount_type)
    )
}

fn hooks(edits: &ContainerEdits) -> Vec<String> {
    let mut facts = Vec::new();
    for (i, hook) in edits.hooks.iter().enumerate() {
        let place = edits.hooks[..i].iter().filter(|earlier| earlier.hook_name == hook.hook_name).count();
        facts.push(hook_fact(hook, place));
    }
    facts
}

fn hook_fact(hook: &Hook, place: usize) -> String {
    let list = |value: Value| if value == json!([]) { Value::Null } else { value };
    format!(
        "hook {} {place} {} args {} env {} timeout {}",
        json!(hook.hook_name).as_str().unwrap_or_default(),
        json!(hook.path),
        list(json!(hook.args)),
        list(json!(hook.env)),
        json!(hook.timeout)
    )
}

fn rdt_fact(id: &Value, l3: &Value, bandwidth: &Value, schemata: &Value, monitored: bool) -> String {
    format!("rdt {id} l3 {l3} bandwidth {bandwidth} schemata {schemata} monitored {monitored}")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
