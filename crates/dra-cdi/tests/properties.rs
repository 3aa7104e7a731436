//! What holds for every spec: it reads back equal, its bytes are stable, its version never falls.

#![expect(clippy::unwrap_used, reason = "helpers of tests may")]

use std::num::NonZeroU32;

use dra_cdi::{
    ContainerEdits, DeviceName, DeviceNode, DeviceType, Hook, HookName, IntelRdt, Kind, Mount, NetDevice,
    Permissions, Spec,
};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

fn kind() -> impl Strategy<Value = Kind> {
    ("[a-zA-Z][a-zA-Z0-9._-]{0,20}[a-zA-Z0-9]", "[a-z][a-z0-9._-]{0,10}[a-z0-9]")
        .prop_map(|(vendor, class)| format!("{vendor}/{class}").parse().unwrap())
}

fn device_name() -> impl Strategy<Value = DeviceName> {
    "[a-zA-Z0-9]([a-zA-Z0-9._:-]{0,30}[a-zA-Z0-9])?".prop_map(|name| name.parse().unwrap())
}

/// Any text that a value may hold, with the characters that JSON and YAML read differently.
fn text() -> impl Strategy<Value = String> {
    let odd = select(vec![
        '\u{1}', '\t', '\n', '\r', '"', '\\', '/', '=', '#', '\u{7f}', '\u{85}', '\u{2028}', '\u{feff}',
        '\u{fffe}', '\u{ffff}', '😀',
    ]);
    let allowed = any::<char>().prop_filter("NUL is refused", |c| *c != '\0');
    vec(prop_oneof![3 => allowed, 1 => odd], 0..30).prop_map(String::from_iter)
}

fn path() -> impl Strategy<Value = String> {
    vec("[a-zA-Zé日 0-9_:+-][^/\\p{C}]{0,10}", 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn device_node() -> impl Strategy<Value = DeviceNode> {
    let types = select(vec![DeviceType::Block, DeviceType::Char, DeviceType::Fifo]);
    let permissions =
        select(vec!["r", "w", "m", "rw", "rwm", "wm"]).prop_map(|p| p.parse::<Permissions>().unwrap());
    let owner = (of(any::<u32>()), of(any::<u32>()));
    (path(), of(path()), of(types), of((1_u32.., any::<u32>())), of(0..=0o777_u32), of(permissions), owner)
        .prop_map(|(path, host_path, device_type, numbers, mode, permissions, (uid, gid))| {
            let mut node = DeviceNode::new(path);
            node = host_path.into_iter().fold(node, DeviceNode::host_path);
            node = device_type.into_iter().fold(node, DeviceNode::device_type);
            node = numbers.into_iter().fold(node, |node, (major, minor)| node.major_minor(major, minor));
            node = mode.into_iter().fold(node, DeviceNode::file_mode);
            node = permissions.into_iter().fold(node, DeviceNode::permissions);
            node = uid.into_iter().fold(node, DeviceNode::uid);
            gid.into_iter().fold(node, DeviceNode::gid)
        })
}

fn mount() -> impl Strategy<Value = Mount> {
    (path(), path(), of(vec("[a-z=]{1,8}", 0..3)), any::<bool>(), of("[a-z]{3,6}")).prop_map(
        |(host, container, options, read_only, mount_type)| {
            let mut mount = Mount::new(host, container);
            mount = mount_type.into_iter().fold(mount, Mount::mount_type);
            mount = options
                .into_iter()
                .fold(mount, |mount, more| mount.options(["bind".to_owned()].into_iter().chain(more)));
            if read_only { mount.read_only() } else { mount }
        },
    )
}

fn hook() -> impl Strategy<Value = Hook> {
    let names = select(vec![
        HookName::Prestart,
        HookName::CreateRuntime,
        HookName::CreateContainer,
        HookName::StartContainer,
        HookName::Poststart,
        HookName::Poststop,
    ]);
    (names, path(), vec(text(), 0..3), vec((variable(), text()), 0..2), of(any::<NonZeroU32>())).prop_map(
        |(name, path, args, env, timeout)| {
            let hook = Hook::new(name, path).args(args);
            let hook = env.into_iter().fold(hook, |hook, (name, value)| hook.env(name, value));
            timeout.into_iter().fold(hook, Hook::timeout)
        },
    )
}

fn rdt() -> impl Strategy<Value = IntelRdt> {
    let id = of(prop_oneof![Just("/".to_owned()), "[a-z]{1,9}"]);
    (id, of(text()), of(text()), vec(text(), 0..2), any::<bool>()).prop_map(
        |(id, l3, bandwidth, schemata, on)| {
            let rdt = IntelRdt::new().schemata(schemata).enable_monitoring(on);
            let rdt = id.into_iter().fold(rdt, IntelRdt::clos_id);
            let rdt = l3.into_iter().fold(rdt, IntelRdt::l3_cache_schema);
            bandwidth.into_iter().fold(rdt, IntelRdt::mem_bw_schema)
        },
    )
}

fn variable() -> impl Strategy<Value = String> {
    "[A-Za-z_][A-Za-z0-9_.é]{0,10}"
}

fn edits() -> impl Strategy<Value = ContainerEdits> {
    let net_devices = btree_map("[a-z][a-z0-9@.-]{0,14}", "[a-z]{3}", 0..2)
        .prop_filter("unique names", |devices| {
            devices.values().collect::<std::collections::BTreeSet<_>>().len() == devices.len()
        });
    let lists =
        (vec((variable(), text()), 0..3), vec(device_node(), 0..3), vec(mount(), 0..3), vec(hook(), 0..2));
    (lists, of(rdt()), vec(1_u32.., 0..2), net_devices).prop_map(
        |((env, nodes, mounts, hooks), rdt, gids, net_devices)| {
            let edits = ContainerEdits::new();
            let edits = env.into_iter().fold(edits, |edits, (name, value)| edits.env(name, value));
            let edits = nodes.into_iter().fold(edits, ContainerEdits::device_node);
            let edits = mounts.into_iter().fold(edits, ContainerEdits::mount);
            let edits = hooks.into_iter().fold(edits, ContainerEdits::hook);
            let edits = rdt.into_iter().fold(edits, ContainerEdits::intel_rdt);
            let edits = gids.into_iter().fold(edits, ContainerEdits::additional_gid);
            net_devices
                .into_iter()
                .fold(edits, |edits, (host, name)| edits.net_device(NetDevice::new(host, name)))
        },
    )
}

fn spec() -> impl Strategy<Value = Spec> {
    let devices =
        btree_map(device_name(), edits().prop_filter("a device needs edits", |e| !e.is_empty()), 1..4);
    let annotations = btree_map("[a-z]{1,5}(/[a-zA-Z]{1,5})?", text(), 0..2);
    (kind(), edits(), devices, annotations).prop_map(|(kind, common, devices, annotations)| {
        Spec::new(kind, common, devices).unwrap().with_annotations(annotations).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spec_reads_back_equal(spec in spec()) {
        prop_assert_eq!(Spec::parse(&spec.encode()), Ok(spec));
    }

    #[test]
    fn equal_specs_give_equal_bytes_in_whatever_order_the_devices_came(spec in spec()) {
        let reversed = spec.devices().iter().rev().map(|device| (device.name().clone(), device.edits().clone()));
        let again = Spec::new(spec.kind().clone(), spec.edits().clone(), reversed).unwrap();
        let again = again.with_annotations(spec.annotations().clone()).unwrap();
        prop_assert_eq!(again.encode(), spec.encode());
    }

    #[test]
    fn the_version_never_falls_when_something_is_added(spec in spec(), name in device_name(), more in edits()) {
        let devices = || spec.devices().iter().map(|device| (device.name().clone(), device.edits().clone()));
        let mut added = more.clone();
        // A second RDT replaces the first, which is no addition.
        added.intel_rdt = added.intel_rdt.filter(|_| spec.edits().intel_rdt.is_none());
        let common = spec.edits().clone().merge(added);
        if let Ok(wider) = Spec::new(spec.kind().clone(), common, devices()) {
            let wider = wider.with_annotations(spec.annotations().clone()).unwrap();
            prop_assert!(wider.version() >= spec.version());
        }
        if let Ok(longer) = Spec::new(spec.kind().clone(), spec.edits().clone(), devices().chain([(name, more)])) {
            prop_assert!(longer.with_annotations(spec.annotations().clone()).unwrap().version() >= spec.version());
        }
    }

    #[test]
    fn a_file_is_printable_and_holds_no_escape_that_yaml_lacks(spec in spec()) {
        let text = String::from_utf8(spec.encode()).unwrap();
        let body = text.strip_suffix('\n').unwrap();
        prop_assert!(!body.contains(char::is_control), "{body}");
        let without_escaped_backslashes = body.replace("\\\\", "");
        prop_assert!(!without_escaped_backslashes.contains("\\/"), "{body}");
        prop_assert!(!without_escaped_backslashes.contains("\\ud"), "{body}");
    }

    #[test]
    fn reading_any_bytes_gives_a_spec_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(spec) = Spec::parse(&bytes) {
            prop_assert!(!spec.devices().is_empty());
        }
    }

    #[test]
    fn reading_a_damaged_file_gives_a_valid_spec_or_an_error(spec in spec(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = spec.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(read) = Spec::parse(&bytes) {
            prop_assert_eq!(Spec::parse(&read.encode()), Ok(read));
        }
    }
}
