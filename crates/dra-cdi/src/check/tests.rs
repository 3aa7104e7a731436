use std::ffi::OsStr;

use super::*;
use crate::edits::HookName;
use crate::name::{DeviceName, Kind};
use crate::spec::Spec;

fn good() -> (DeviceName, ContainerEdits) {
    ("a".parse().unwrap(), ContainerEdits::new().env("A", "1"))
}

fn kind() -> Kind {
    "vendor.com/class".parse().unwrap()
}

fn named(name: &str) -> DeviceName {
    name.parse().unwrap()
}

fn spec(edits: ContainerEdits) -> Result<Spec, InvalidSpec> {
    Spec::new(kind(), ContainerEdits::new(), [good(), (named("b"), edits)])
}

/// Both places where edits can stand refuse them, and say where.
fn refused(edits: ContainerEdits, field: &str, rule: &str) {
    let error = spec(edits.clone()).unwrap_err();
    assert_eq!(error.field, format!("devices[1].containerEdits.{field}"));
    assert!(error.rule.contains(rule), "{error}");
    let error = Spec::new(kind(), edits, [good()]).unwrap_err();
    assert_eq!(error.field, format!("containerEdits.{field}"));
}

fn node(path: &str) -> ContainerEdits {
    ContainerEdits::new().device_node(DeviceNode::new("/dev/good")).device_node(DeviceNode::new(path))
}

fn mounted(mount: Mount) -> ContainerEdits {
    ContainerEdits::new().mount(mount)
}

fn rdt(rdt: IntelRdt) -> ContainerEdits {
    ContainerEdits::new().intel_rdt(rdt)
}

#[test]
fn a_spec_needs_a_device() {
    let none: [(DeviceName, ContainerEdits); 0] = [];
    let error = Spec::new(kind(), ContainerEdits::new().env("A", "1"), none);
    assert_eq!(error.unwrap_err().field, "devices");
}

#[test]
fn a_device_needs_edits_even_if_there_are_common_ones() {
    let error = Spec::new(kind(), ContainerEdits::new().env("A", "1"), [(named("a"), ContainerEdits::new())]);
    assert_eq!(error.unwrap_err().field, "devices[0].containerEdits");
}

#[test]
fn two_devices_of_one_name_are_refused() {
    let error = Spec::new(kind(), ContainerEdits::new(), [good(), good()]);
    let error = error.unwrap_err();
    assert_eq!((error.field.as_str(), error.value.as_str()), ("devices[1].name", "a"));
}

#[test]
fn paths_are_absolute_and_have_one_spelling() {
    for (path, rule) in [
        ("", "absolute"),
        ("dev/a", "absolute"),
        ("./a", "absolute"),
        ("/dev/../a", "'..'"),
        ("/", "below /"),
        ("/dev/a\nb", "control"),
        ("/dev/a\u{0}", "control"),
        ("/dev/a\u{7f}", "control"),
        ("/dev/a\u{85}", "control"),
    ] {
        refused(node(path), "deviceNodes[1].path", rule);
        let host = ContainerEdits::new().device_node(DeviceNode::new("/dev/good").host_path(path));
        refused(host, "deviceNodes[0].hostPath", rule);
        refused(mounted(Mount::new("/a", path)), "mounts[0].containerPath", rule);
        if path != "/" {
            refused(mounted(Mount::new(path, "/a")), "mounts[0].hostPath", rule);
        }
        refused(ContainerEdits::new().hook(Hook::new(HookName::Poststop, path)), "hooks[0].path", rule);
    }
}

#[test]
fn redundant_slashes_and_dots_are_tidied_away() {
    let spec = spec(node("//dev/./nvidia0/")).unwrap();
    assert_eq!(spec.devices()[1].edits().device_nodes[1].path.to_str(), Some("/dev/nvidia0"));
}

#[test]
fn a_field_that_was_set_by_hand_is_checked_as_well() {
    let mut bent = DeviceNode::new("/dev/a");
    bent.path = "/dev//a".into();
    refused(ContainerEdits::new().device_node(bent.clone()), "deviceNodes[0].path", "'//'");
    bent = DeviceNode::new("/dev/a");
    bent.major = Some(1);
    refused(ContainerEdits::new().device_node(bent), "deviceNodes[0].major", "together");
}

#[test]
fn paths_that_are_not_utf_8_are_refused() {
    let path = Path::new(OsStr::from_bytes(b"/dev/\xff"));
    refused(ContainerEdits::new().device_node(DeviceNode::new(path)), "deviceNodes[0].path", "UTF-8");
    refused(mounted(Mount::new(path, "/a").mount_type("x")), "mounts[0].hostPath", "UTF-8");
}

#[test]
fn environment_names_are_checked_and_values_never_shown() {
    let env = |name: &str, value: &str| ContainerEdits::new().env(name, value);
    refused(env("", "x"), "env[0]", "needs a name");
    refused(env("A=B", "x"), "env[0]", "'='");
    refused(env("A\nB", "x"), "env[0]", "control");
    refused(env("A\0", "x"), "env[0]", "control");
    refused(env("A", "secret\0"), "env[0]", "NUL");
    let error = spec(env("TOKEN", "secret\0")).unwrap_err();
    assert!(error.to_string().contains("TOKEN") && !error.to_string().contains("secret"), "{error}");
    assert!(spec(env("A", "two\nlines\t=")).is_ok());
}

#[test]
fn device_numbers_and_modes_that_a_runtime_would_misread_are_refused() {
    let with = |node: DeviceNode| ContainerEdits::new().device_node(node);
    let node = || DeviceNode::new("/dev/a");
    refused(with(node().major_minor(0, 3)), "deviceNodes[0].major", "not given");
    refused(with(node().file_mode(0o1000)), "deviceNodes[0].fileMode", "0o777");
    refused(with(node().file_mode(0o4755)), "deviceNodes[0].fileMode", "0o777");
    assert!(spec(with(node().major_minor(195, 0).file_mode(0o777).uid(0).gid(0))).is_ok());
    assert!(spec(with(node().major_minor(u32::MAX, u32::MAX))).is_ok());
}

#[test]
fn an_owner_of_zero_is_written_and_no_owner_is_not() {
    let text = |node: DeviceNode| {
        String::from_utf8(spec(ContainerEdits::new().device_node(node)).unwrap().encode()).unwrap()
    };
    let owned = text(DeviceNode::new("/dev/a").uid(0).gid(0));
    assert!(owned.contains(r#""uid":0,"gid":0"#), "{owned}");
    let plain = text(DeviceNode::new("/dev/a"));
    assert!(plain.contains(r#"[{"path":"/dev/a"}]"#), "{plain}");
}

#[test]
fn mounts_without_a_type_must_bind() {
    refused(mounted(Mount::new("/a", "/b").options(["ro"])), "mounts[0].options", "bind");
    refused(mounted(Mount::new("/a", "/b").options(["bind", ""])), "mounts[0].options[1]", "empty");
    refused(mounted(Mount::new("/a", "/b").options(["bind", "a\nb"])), "mounts[0].options[1]", "control");
    assert!(spec(mounted(Mount::new("/", "/host").options(["bind"]).read_only())).is_ok());
}

#[test]
fn mounts_of_a_file_system_name_what_that_takes() {
    assert!(spec(mounted(Mount::new("tmpfs", "/b").mount_type("tmpfs"))).is_ok());
    refused(mounted(Mount::new("", "/b").mount_type("tmpfs")), "mounts[0].hostPath", "empty");
    refused(mounted(Mount::new("a\n", "/b").mount_type("tmpfs")), "mounts[0].hostPath", "control");
    refused(mounted(Mount::new("a", "/b").mount_type("bind")), "mounts[0].hostPath", "absolute");
    refused(mounted(Mount::new("a", "/b").mount_type("")), "mounts[0].type", "empty");
    refused(mounted(Mount::new("a", "/b").mount_type("t\u{1}")), "mounts[0].type", "control");
}

#[test]
fn hooks_hold_no_nul() {
    let hook = || Hook::new(HookName::CreateRuntime, "/bin/true");
    refused(ContainerEdits::new().hook(hook().args(["a", "b\0"])), "hooks[0].args[1]", "NUL");
    refused(ContainerEdits::new().hook(hook().env("", "x")), "hooks[0].env[0]", "needs a name");
    refused(ContainerEdits::new().hook(hook().env("A", "x\0")), "hooks[0].env[0]", "NUL");
}

#[test]
fn group_zero_is_refused_because_a_runtime_ignores_it() {
    refused(ContainerEdits::new().additional_gid(1).additional_gid(0), "additionalGids[1]", "ignores");
}

#[test]
fn network_devices_have_names_that_linux_allows_and_stand_once() {
    let net = |host: &str, name: &str| ContainerEdits::new().net_device(NetDevice::new(host, name));
    for bad in ["", ".", "..", "a/b", "a:b", "a b", "0123456789abcdef", "a\u{1}"] {
        refused(net(bad, "eth0"), "netDevices[0].hostInterfaceName", "1 to 15 bytes");
        refused(net("eth0", bad), "netDevices[0].name", "1 to 15 bytes");
    }
    let good = net("eth0", "n0");
    refused(good.clone().merge(net("eth0", "n1")), "netDevices[1].hostInterfaceName", "twice");
    refused(good.clone().merge(net("eth1", "n0")), "netDevices[1].name", "twice");
    assert!(spec(good.merge(net("n0", "eth0"))).is_ok());
}

#[test]
fn an_rdt_class_is_a_file_name_or_the_root() {
    for bad in ["", ".", "..", "../x", "a/b", "a\n", &"c".repeat(256)] {
        let error = spec(rdt(IntelRdt::new().clos_id(bad))).unwrap_err();
        assert_eq!(error.field, "devices[1].containerEdits.intelRdt.closID");
    }
    assert!(spec(rdt(IntelRdt::new().clos_id("/"))).is_ok());
    refused(rdt(IntelRdt::new().l3_cache_schema("\0")), "intelRdt.l3CacheSchema", "NUL");
    refused(rdt(IntelRdt::new().mem_bw_schema("\0")), "intelRdt.memBwSchema", "NUL");
    refused(rdt(IntelRdt::new().schemata(["a", "\0"])), "intelRdt.schemata[1]", "NUL");
}

#[test]
fn annotations_follow_the_rules_of_kubernetes() {
    let with = |key: &str, value: &str| {
        spec(ContainerEdits::new().env("A", "1")).unwrap().with_annotations([(key, value)])
    };
    for key in ["a", "example.com/A_b.c-d", &format!("{}/{}", "a".repeat(253), "n".repeat(63))] {
        assert!(with(key, "any\ntext").is_ok(), "{key}");
    }
    for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "A.com/a", "a b", "é", &"n".repeat(64)] {
        assert_eq!(with(key, "x").unwrap_err().value, key);
    }
    assert_eq!(with(&format!("{}/n", "a".repeat(254)), "x").unwrap_err().value.len(), 128);
    assert_eq!(with("a", "\0").unwrap_err().field, "annotations[a]");
    assert!(with("k", &"v".repeat(262_143)).is_ok());
    assert_eq!(with("k", &"v".repeat(262_144)).unwrap_err().value, "262145 bytes");
}

#[test]
fn an_error_reads_as_one_line_with_place_value_and_rule() {
    let error = spec(node("dev/a")).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"devices[1].containerEdits.deviceNodes[1].path = "dev/a": it must be an absolute path"#
    );
}
