//! The rules for the content of a spec: what a runtime refuses, crashes on, or silently reads as something else.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::edits::{ContainerEdits, DeviceNode, EnvVar, Hook, IntelRdt, Mount, NetDevice};
use crate::name::is_dns_subdomain;
use crate::spec::Device;

/// A part of a spec that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value:?}: {rule}")]
#[non_exhaustive]
pub struct InvalidSpec {
    /// Where it stands, such as `devices[0].containerEdits.deviceNodes[1].path`. Devices count in the order given.
    pub field: String,
    /// What stands there, cut to 128 characters. Never the value of an environment variable, which may be a secret.
    pub value: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

type Checked = Result<(), InvalidSpec>;

/// The most that all annotations together may hold, keys and values, as for Kubernetes objects.
const MAX_ANNOTATIONS: usize = 256 * 1024;

pub(crate) fn devices(devices: &[Device]) -> Checked {
    require(!devices.is_empty(), "devices", "[]", "a spec needs a device; without one write no file")?;
    let mut names = BTreeSet::new();
    for (i, device) in devices.iter().enumerate() {
        let at = format!("devices[{i}]");
        let name = device.name().as_str();
        require(names.insert(name), &format!("{at}.name"), name, "another device of the spec has this name")?;
        let at = format!("{at}.containerEdits");
        require(!device.edits().is_empty(), &at, "{}", "a device needs edits; leave it out, and its ID too")?;
        edits(&at, device.edits())?;
    }
    Ok(())
}

pub(crate) fn edits(at: &str, edits: &ContainerEdits) -> Checked {
    each(at, "env", &edits.env, env_var)?;
    each(at, "deviceNodes", &edits.device_nodes, device_node)?;
    each(at, "netDevices", &edits.net_devices, net_device)?;
    unique_net_devices(at, &edits.net_devices)?;
    each(at, "hooks", &edits.hooks, hook)?;
    each(at, "mounts", &edits.mounts, mount)?;
    edits.intel_rdt.as_ref().map_or(Ok(()), |rdt| intel_rdt(&format!("{at}.intelRdt"), rdt))?;
    each(at, "additionalGids", &edits.additional_gids, |at, gid| {
        require(*gid != 0, at, "0", "a runtime ignores group 0 here")
    })
}

pub(crate) fn annotations(annotations: &BTreeMap<String, String>) -> Checked {
    for (key, value) in annotations {
        require(
            is_qualified_key(key),
            "annotations",
            key,
            "a key must be [<DNS subdomain>/]<name>, the name 1 to 63 letters, digits, '-', '_' and '.'",
        )?;
        no_nul(&format!("annotations[{key}]"), value)?;
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    let rule = "all annotations together may hold 262144 bytes";
    require(size <= MAX_ANNOTATIONS, "annotations", &format!("{size} bytes"), rule)
}

fn env_var(at: &str, var: &EnvVar) -> Checked {
    require(!var.name.is_empty(), at, &var.name, "a variable needs a name")?;
    require(!var.name.contains('='), at, &var.name, "a variable's name must not hold '='")?;
    no_control(at, &var.name)?;
    let value = format!("{}=…", var.name);
    require(!var.value.contains('\0'), at, &value, "the value must not hold NUL")
}

fn device_node(at: &str, node: &DeviceNode) -> Checked {
    below_root(&format!("{at}.path"), &node.path)?;
    if let Some(host_path) = &node.host_path {
        below_root(&format!("{at}.hostPath"), host_path)?;
    }
    let numbers = format!("{:?}:{:?}", node.major, node.minor);
    require(
        node.major.is_some() == node.minor.is_some(),
        &format!("{at}.major"),
        &numbers,
        "major and minor come together",
    )?;
    require(node.major != Some(0), &format!("{at}.major"), "0", "a runtime takes major 0 for \"not given\"")?;
    let mode = node.file_mode.unwrap_or(0);
    require(mode <= 0o777, &format!("{at}.fileMode"), &format!("0o{mode:o}"), "it must be at most 0o777")
}

fn net_device(at: &str, device: &NetDevice) -> Checked {
    let rule = "it must be 1 to 15 bytes without '/', ':' and white space, and not '.' or '..'";
    for (field, name) in [("hostInterfaceName", &device.host_interface_name), ("name", &device.name)] {
        let characters_allowed =
            !name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
        let allowed = characters_allowed && (1..=15).contains(&name.len()) && name != "." && name != "..";
        require(allowed, &format!("{at}.{field}"), name, rule)?;
    }
    Ok(())
}

fn unique_net_devices(at: &str, devices: &[NetDevice]) -> Checked {
    let (mut hosts, mut names) = (BTreeSet::new(), BTreeSet::new());
    each(at, "netDevices", devices, |at, device| {
        let host = &device.host_interface_name;
        require(
            hosts.insert(host),
            &format!("{at}.hostInterfaceName"),
            host,
            "it stands in these edits twice",
        )?;
        require(
            names.insert(&device.name),
            &format!("{at}.name"),
            &device.name,
            "it stands in these edits twice",
        )
    })
}

fn hook(at: &str, hook: &Hook) -> Checked {
    below_root(&format!("{at}.path"), &hook.path)?;
    each(at, "args", &hook.args, |at, arg| no_nul(at, arg))?;
    each(at, "env", &hook.env, env_var)
}

fn mount(at: &str, mount: &Mount) -> Checked {
    let is_bind = mount.mount_type.as_ref().is_none_or(|mount_type| mount_type == "bind");
    let host_at = format!("{at}.hostPath");
    if is_bind {
        absolute(&host_at, &mount.host_path)?;
    } else {
        // What stands here belongs to the file system: `tmpfs`, `server:/export`.
        no_control(&host_at, utf8(&host_at, &mount.host_path)?)?;
        require(!mount.host_path.as_os_str().is_empty(), &host_at, "", "it must not be empty")?;
    }
    below_root(&format!("{at}.containerPath"), &mount.container_path)?;
    each(at, "options", &mount.options, |at, option| {
        require(!option.is_empty(), at, option, "it must not be empty")?;
        no_control(at, option)
    })?;
    let binds = mount.options.iter().any(|option| option == "bind" || option == "rbind");
    require(
        binds || mount.mount_type.is_some(),
        &format!("{at}.options"),
        &mount.options.join(","),
        "a mount without a type needs the option bind or rbind",
    )?;
    let mount_type = mount.mount_type.as_deref().unwrap_or("bind");
    require(!mount_type.is_empty(), &format!("{at}.type"), mount_type, "it must not be empty")?;
    no_control(&format!("{at}.type"), mount_type)
}

fn intel_rdt(at: &str, rdt: &IntelRdt) -> Checked {
    if let Some(id) = &rdt.clos_id {
        let at = format!("{at}.closID");
        let file_name = !id.is_empty() && id.len() < 256 && !id.contains('/') && id != "." && id != "..";
        require(file_name || id == "/", &at, id, "it must be a file name, or '/'")?;
        no_control(&at, id)?;
    }
    for (field, text) in [("l3CacheSchema", &rdt.l3_cache_schema), ("memBwSchema", &rdt.mem_bw_schema)] {
        no_nul(&format!("{at}.{field}"), text.as_deref().unwrap_or(""))?;
    }
    each(at, "schemata", &rdt.schemata, |at, line| no_nul(at, line))
}

fn below_root(at: &str, path: &Path) -> Checked {
    absolute(at, path)?;
    require(path != Path::new("/"), at, "/", "it must name something below /")
}

/// An absolute path in its one spelling, and printable.
fn absolute(at: &str, path: &Path) -> Checked {
    let text = utf8(at, path)?;
    require(path.is_absolute(), at, text, "it must be an absolute path")?;
    let spelling = text == "/" || text[1..].split('/').all(|part| !matches!(part, "" | "." | ".."));
    require(spelling, at, text, "it must not hold '..', '.', '//' or a '/' at its end")?;
    no_control(at, text)
}

fn utf8<'a>(at: &str, path: &'a Path) -> Result<&'a str, InvalidSpec> {
    path.to_str().ok_or_else(|| {
        let value = String::from_utf8_lossy(path.as_os_str().as_bytes());
        invalid(at, &value, "a path in a CDI file must be UTF-8")
    })
}

fn no_nul(at: &str, text: &str) -> Checked {
    require(!text.contains('\0'), at, text, "it must not hold NUL")
}

fn no_control(at: &str, text: &str) -> Checked {
    require(!text.contains(char::is_control), at, text, "it must not hold control characters")
}

/// `[<DNS subdomain>/]<name>`, as Kubernetes has it for annotation keys.
fn is_qualified_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_allowed = prefix.is_none_or(|prefix| prefix.len() <= 253 && is_dns_subdomain(prefix));
    let ends_allowed = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    prefix_allowed && name.len() <= 63 && ends_allowed && name.chars().all(inner)
}

fn each<'a, T>(
    at: &str,
    field: &str,
    items: &'a [T],
    mut check: impl FnMut(&str, &'a T) -> Checked,
) -> Checked {
    items.iter().enumerate().try_for_each(|(i, item)| check(&format!("{at}.{field}[{i}]"), item))
}

fn require(holds: bool, at: &str, value: &str, rule: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(invalid(at, value, rule)) }
}

fn invalid(at: &str, value: &str, rule: &'static str) -> InvalidSpec {
    InvalidSpec { field: at.to_owned(), value: value.chars().take(128).collect(), rule }
}

#[cfg(test)]
mod tests;
