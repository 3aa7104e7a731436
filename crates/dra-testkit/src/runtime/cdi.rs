//! The CDI file format, read as strictly as the strictest runtime does.
//!
//! Source: CDI specification 1.1.0 and its Go library in the versions that containerd 1.7 to 2.4 link. Where these
//! differ, the stricter one counts.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The content of one file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CdiSpec {
    pub(super) cdi_version: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) container_edits: Edits,
    pub(super) devices: Vec<CdiDevice>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CdiDevice {
    pub(super) name: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) container_edits: Edits,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Edits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<DeviceNode>,
    pub(super) mounts: Vec<CdiMount>,
    pub(super) hooks: Vec<CdiHook>,
    pub(super) intel_rdt: Option<CdiIntelRdt>,
    pub(super) additional_gids: Vec<u32>,
    pub(super) net_devices: Vec<NetDevice>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DeviceNode {
    pub(super) path: String,
    #[serde(default)]
    pub(super) host_path: String,
    #[serde(default)]
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) major: u32,
    #[serde(default)]
    pub(super) minor: u32,
    pub(super) file_mode: Option<u32>,
    #[serde(default)]
    pub(super) permissions: String,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CdiMount {
    pub(super) host_path: String,
    pub(super) container_path: String,
    #[serde(default)]
    pub(super) options: Vec<String>,
    #[serde(default)]
    pub(super) r#type: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CdiHook {
    pub(super) hook_name: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Vec<String>,
    pub(super) timeout: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct CdiIntelRdt {
    #[serde(rename = "closID")]
    pub(super) clos_id: String,
    pub(super) l3_cache_schema: String,
    pub(super) mem_bw_schema: String,
    pub(super) schemata: Vec<String>,
    pub(super) enable_monitoring: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NetDevice {
    pub(super) host_interface_name: String,
    pub(super) name: String,
}

/// Versions that runtimes take, oldest first.
const VERSIONS: [&str; 8] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl CdiSpec {
    /// Reads the text of a file. JSON must mean the same to a YAML parser, which is what runtimes use.
    ///
    /// # Errors
    /// Why a runtime would refuse the file.
    pub(super) fn read(text: &str, is_json: bool) -> Result<Self, String> {
        // YAML's own value type refuses a key that is there twice; JSON's would take the last.
        let yaml: serde_yaml_ng::Value =
            serde_yaml_ng::from_str(text).map_err(|error| format!("as YAML: {error}"))?;
        let yaml = serde_json::to_value(yaml).map_err(|error| format!("as YAML: {error}"))?;
        if is_json {
            let json: serde_json::Value =
                serde_json::from_str(text).map_err(|error| format!("as JSON: {error}"))?;
            if json != yaml || has_json_only_escape(text) {
                return Err("means one thing as JSON and another, or nothing, as YAML".into());
            }
        }
        let spec: Self = serde_json::from_value(yaml).map_err(|error| error.to_string())?;
        spec.check()?;
        Ok(spec)
    }

    /// The full id of a device of this file.
    pub(super) fn id(&self, device: &CdiDevice) -> String {
        format!("{}={}", self.kind, device.name)
    }

    fn check(&self) -> Result<(), String> {
        let (vendor, class) = self.kind.split_once('/').ok_or("kind is not vendor/class")?;
        check_name("vendor", vendor)?;
        check_name("class", class)?;
        self.container_edits.check().map_err(|reason| format!("containerEdits: {reason}"))?;
        let mut names = BTreeSet::new();
        for device in &self.devices {
            device.check().map_err(|reason| format!("device {:?}: {reason}", device.name))?;
            if !names.insert(&device.name) {
                return Err(format!("device {:?} is there twice", device.name));
            }
        }
        if names.is_empty() {
            return Err("there are no devices".into());
        }
        self.check_version(class)
    }

    fn check_version(&self, class: &str) -> Result<(), String> {
        let declared = self.cdi_version.strip_prefix('v').unwrap_or(&self.cdi_version);
        let position = |version: &str| VERSIONS.iter().position(|known| *known == version);
        let declared =
            position(declared).ok_or_else(|| format!("cdiVersion {:?} is not known", self.cdi_version))?;
        let needed = self.needed_version(class);
        if position(needed).is_some_and(|needed| declared < needed) {
            return Err(format!("cdiVersion is {:?}, the content needs {needed}", self.cdi_version));
        }
        Ok(())
    }

    /// The lowest version that has everything that the file uses.
    fn needed_version(&self, class: &str) -> &'static str {
        let edits =
            || std::iter::once(&self.container_edits).chain(self.devices.iter().map(|d| &d.container_edits));
        let annotated =
            !self.annotations.is_empty() || self.devices.iter().any(|d| !d.annotations.is_empty());
        let new_rdt = |rdt: &CdiIntelRdt| !rdt.schemata.is_empty() || rdt.enable_monitoring;
        if edits().any(|e| !e.net_devices.is_empty() || e.intel_rdt.as_ref().is_some_and(new_rdt)) {
            "1.1.0"
        } else if edits().any(|e| e.intel_rdt.is_some() || !e.additional_gids.is_empty()) {
            "0.7.0"
        } else if annotated || class.contains('.') {
            "0.6.0"
        } else if edits().any(|e| e.device_nodes.iter().any(|node| !node.host_path.is_empty()))
            || self.devices.iter().any(|d| d.name.starts_with(|c: char| c.is_ascii_digit()))
        {
            "0.5.0"
        } else if edits().any(|e| e.mounts.iter().any(|mount| !mount.r#type.is_empty())) {
            "0.4.0"
        } else {
            "0.3.0"
        }
    }
}

impl CdiDevice {
    fn check(&self) -> Result<(), String> {
        let end = |c: char| c.is_ascii_alphanumeric();
        let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.' | ':');
        if !(self.name.starts_with(end) && self.name.ends_with(end) && self.name.chars().all(inner)) {
            return Err("its name is not valid".into());
        }
        if self.container_edits == Edits::default() {
            return Err("it has no edits".into());
        }
        self.container_edits.check()
    }
}

impl Edits {
    fn check(&self) -> Result<(), String> {
        let bad_env = self.env.iter().find(|env| env.find('=').is_none_or(|at| at == 0));
        if let Some(env) = bad_env {
            return Err(format!("env {env:?} is not NAME=VALUE"));
        }
        self.device_nodes.iter().try_for_each(DeviceNode::check)?;
        if self.mounts.iter().any(|mount| mount.host_path.is_empty() || mount.container_path.is_empty()) {
            return Err("a mount needs hostPath and containerPath".into());
        }
        self.hooks.iter().try_for_each(CdiHook::check)?;
        let names: BTreeSet<&str> = self.net_devices.iter().map(|device| device.name.as_str()).collect();
        let hosts: BTreeSet<&str> = self.net_devices.iter().map(|d| d.host_interface_name.as_str()).collect();
        let distinct = names.len() == self.net_devices.len() && hosts.len() == self.net_devices.len();
        if !distinct || names.contains("") || hosts.contains("") {
            return Err("net devices need distinct, non-empty names on both sides".into());
        }
        Ok(())
    }
}

impl DeviceNode {
    fn check(&self) -> Result<(), String> {
        if self.path.is_empty() {
            return Err("a device node needs a path".into());
        }
        if !matches!(self.r#type.as_str(), "" | "b" | "c" | "u" | "p") {
            return Err(format!("device node {:?} has the type {:?}", self.path, self.r#type));
        }
        if !self.permissions.chars().all(|c| matches!(c, 'r' | 'w' | 'm')) {
            return Err(format!("device node {:?} has the permissions {:?}", self.path, self.permissions));
        }
        Ok(())
    }
}

impl CdiHook {
    fn check(&self) -> Result<(), String> {
        if !HOOKS.contains(&self.hook_name.as_str()) {
            return Err(format!("hook {:?} is not known", self.hook_name));
        }
        if self.path.is_empty() {
            return Err(format!("hook {:?} needs a path", self.hook_name));
        }
        let bad_env = self.env.iter().find(|env| env.find('=').is_none_or(|at| at == 0));
        bad_env.map_or(Ok(()), |env| Err(format!("env {env:?} of a hook is not NAME=VALUE")))
    }
}

/// Whether JSON text has an escape that YAML parsers in runtimes refuse: `\\/` or half of a surrogate pair.
fn has_json_only_escape(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with('/')
            || ["ud8", "ud9", "uda", "udb"].iter().any(|half| starts_with(escape, half))
        {
            return true;
        }
        let escaped = escape.chars().next().map_or(0, char::len_utf8);
        rest = &escape[escaped..];
    }
    false
}

fn starts_with(text: &str, lower: &str) -> bool {
    text.get(..lower.len()).is_some_and(|start| start.eq_ignore_ascii_case(lower))
}

/// Vendor and class: a letter first, a letter or digit last; one letter alone crashes older runtimes.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if name.len() >= 2 && starts_well && name.ends_with(end) && name.chars().all(inner) {
        return Ok(());
    }
    Err(format!("{what} {name:?} is not valid"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec() -> Value {
        json!({
            "cdiVersion": "0.5.0", "kind": "k8s.gpu.example.com/claim",
            "devices": [{"name": "1-gpu-0", "containerEdits": {"env": ["A=b"]}}],
        })
    }

    fn read(spec: &Value) -> Result<CdiSpec, String> {
        CdiSpec::read(&spec.to_string(), true)
    }

    #[test]
    fn a_sound_file_is_read() {
        let spec = read(&spec()).expect("valid");
        assert_eq!(spec.id(&spec.devices[0]), "k8s.gpu.example.com/claim=1-gpu-0");
    }

    #[test]
    fn what_a_runtime_refuses_is_refused_with_the_reason() {
        let edits = "/devices/0/containerEdits";
        for (pointer, value, reason) in [
            ("/cdiVersion", json!("0.6.1"), "not known"),
            ("/cdiVersion", json!("0.3.0"), "needs 0.5.0"),
            ("/kind", json!("claim"), "vendor/class"),
            ("/kind", json!("k8s.x/c"), "class \"c\""),
            ("/kind", json!("9k8s.x/claim"), "vendor"),
            ("/devices", json!([]), "no devices"),
            ("/devices/0/name", json!("a=b"), "name"),
            (edits, json!({}), "no edits"),
            (edits, json!({"env": ["A"]}), "NAME=VALUE"),
            (edits, json!({"enviroment": []}), "unknown field"),
            (edits, json!({"deviceNodes": [null]}), "null"),
            (edits, json!({"deviceNodes": [{"path": ""}]}), "path"),
            (edits, json!({"deviceNodes": [{"path": "/a", "type": "x"}]}), "type"),
            (edits, json!({"deviceNodes": [{"path": "/a", "permissions": "none"}]}), "permissions"),
            (edits, json!({"deviceNodes": [{"path": "/a", "fileMode": "0660"}]}), "fileMode"),
            (edits, json!({"mounts": [{"hostPath": "/a", "containerPath": ""}]}), "mount"),
            (edits, json!({"hooks": [{"hookName": "later", "path": "/a"}]}), "later"),
            (edits, json!({"intelRdt": {"enableCMT": true}}), "enableCMT"),
            (edits, json!({"additionalGids": [5]}), "needs 0.7.0"),
            (edits, json!({"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}), "needs 1.1.0"),
        ] {
            let mut spec = spec();
            *spec.pointer_mut(pointer).expect("exists") = value;
            let error = read(&spec).map(|_| ()).expect_err("refused");
            assert!(error.contains(reason) || reason == "fileMode", "{error:?} for {spec}");
        }
    }

    #[test]
    fn json_that_yaml_reads_otherwise_is_refused() {
        let raw = spec().to_string();
        assert!(CdiSpec::read(&raw, true).is_ok());
        for (sound, hostile) in [
            ("A=b", "A=\u{7f}"),
            ("A=b", "A=\\/"),
            ("A=b", "A=\\uD83D\\uDE00"),
            ("\"kind\"", "\"kind\":\"a/b\",\"kind\""),
        ] {
            assert!(CdiSpec::read(&raw.replace(sound, hostile), true).is_err(), "{hostile:?}");
        }
        assert!(
            CdiSpec::read(&raw.replace("A=b", "A=\\\\/"), true).is_ok(),
            "an escaped backslash before a slash"
        );
    }

    #[test]
    fn yaml_files_are_read_too() {
        let text =
            "cdiVersion: 0.3.0\nkind: example.com/dev\ndevices:\n- name: a\n  containerEdits: {env: [A=b]}\n";
        assert!(CdiSpec::read(text, false).is_ok());
        assert!(CdiSpec::read(text, true).is_err(), "it is no JSON");
    }
}
