//! The lowest CDI version that a spec's content needs.
//!
//! A runtime refuses a version that it does not know, even if it knows all that the file says: containerd 2.1 refuses 1.1.0.
//! So a file never says more than it must. Versions 0.8.0 and 1.0.0 added no field and are never the lowest.
//! Source: the history of the type definitions in `tags.cncf.io/container-device-interface/specs-go`.

use std::fmt;

use crate::edits::{ContainerEdits, DeviceNode, IntelRdt, Mount};
use crate::spec::Spec;

/// A version of the CDI specification that introduced something, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 0.3.0: environment, device nodes, mounts, hooks.
    V0_3_0,
    /// 0.4.0: a mount's type.
    V0_4_0,
    /// 0.5.0: a device node's host path; device names that begin with a digit.
    V0_5_0,
    /// 0.6.0: annotations; a dot in the class.
    V0_6_0,
    /// 0.7.0: Intel RDT, additional groups.
    V0_7_0,
    /// 1.1.0: network devices, RDT schemata and monitoring, the RDT class `/`.
    V1_1_0,
}

impl Version {
    /// The version as a CDI file writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_4_0 => "0.4.0",
            Self::V0_5_0 => "0.5.0",
            Self::V0_6_0 => "0.6.0",
            Self::V0_7_0 => "0.7.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The lowest version for `spec`: the highest that any of its parts needs.
pub(crate) fn minimum(spec: &Spec) -> Version {
    let mut needs = vec![of_edits(spec.edits())];
    if spec.kind().class().as_str().contains('.') || !spec.annotations().is_empty() {
        needs.push(Version::V0_6_0);
    }
    for device in spec.devices() {
        needs.push(of_edits(device.edits()));
        if device.name().as_str().starts_with(|c: char| c.is_ascii_digit()) {
            needs.push(Version::V0_5_0);
        }
    }
    needs.into_iter().max().unwrap_or(Version::V0_3_0)
}

fn of_edits(edits: &ContainerEdits) -> Version {
    // Every field by name: a new one does not compile until its version is said here.
    let ContainerEdits { env: _, device_nodes, net_devices, hooks: _, mounts, intel_rdt, additional_gids } =
        edits;
    let mut needs = vec![Version::V0_3_0];
    needs.extend(device_nodes.iter().map(of_device_node));
    needs.extend(mounts.iter().map(of_mount));
    needs.extend(intel_rdt.iter().map(of_intel_rdt));
    if !additional_gids.is_empty() {
        needs.push(Version::V0_7_0);
    }
    if !net_devices.is_empty() {
        needs.push(Version::V1_1_0);
    }
    needs.into_iter().max().unwrap_or(Version::V0_3_0)
}

fn of_device_node(node: &DeviceNode) -> Version {
    if node.host_path.is_some() { Version::V0_5_0 } else { Version::V0_3_0 }
}

fn of_mount(mount: &Mount) -> Version {
    if mount.mount_type.is_some() { Version::V0_4_0 } else { Version::V0_3_0 }
}

fn of_intel_rdt(rdt: &IntelRdt) -> Version {
    // No specification says so of the class `/`, but libraries that do not know 1.1.0 refuse it.
    let root_class = rdt.clos_id.as_deref() == Some("/");
    let needs_newest = rdt.enable_monitoring || root_class || !rdt.schemata.is_empty();
    if needs_newest { Version::V1_1_0 } else { Version::V0_7_0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::{Hook, HookName, NetDevice};

    fn spec(kind: &str, common: ContainerEdits, devices: &[(&str, ContainerEdits)]) -> Spec {
        let devices = devices.iter().map(|(name, edits)| (name.parse().unwrap(), edits.clone()));
        Spec::new(kind.parse().unwrap(), common, devices).unwrap()
    }

    fn features() -> Vec<(ContainerEdits, Version)> {
        let edits = ContainerEdits::new;
        vec![
            (edits().env("A", "1"), Version::V0_3_0),
            (edits().device_node(DeviceNode::new("/dev/a").host_path("/dev/a")), Version::V0_3_0),
            (edits().mount(Mount::new("/a", "/b").read_only()), Version::V0_3_0),
            (edits().hook(Hook::new(HookName::Poststop, "/bin/true")), Version::V0_3_0),
            (edits().mount(Mount::new("tmpfs", "/b").mount_type("tmpfs")), Version::V0_4_0),
            (edits().device_node(DeviceNode::new("/dev/a").host_path("/dev/b")), Version::V0_5_0),
            (edits().additional_gid(1), Version::V0_7_0),
            (edits().intel_rdt(IntelRdt::new()), Version::V0_7_0),
            (edits().intel_rdt(IntelRdt::new().clos_id("a").enable_monitoring(false)), Version::V0_7_0),
            (edits().intel_rdt(IntelRdt::new().enable_monitoring(true)), Version::V1_1_0),
            (edits().intel_rdt(IntelRdt::new().clos_id("/")), Version::V1_1_0),
            (edits().intel_rdt(IntelRdt::new().schemata(["L3:0=f"])), Version::V1_1_0),
            (edits().net_device(NetDevice::new("eth1", "eth0")), Version::V1_1_0),
        ]
    }

    #[test]
    fn the_lowest_version_is_that_of_the_newest_feature_wherever_it_stands() {
        let plain = ContainerEdits::new().env("X", "1");
        for (edits, version) in features() {
            let common = spec("vendor.com/class", edits.clone(), &[("a", plain.clone())]);
            assert_eq!(common.version(), version, "as common edits: {edits:?}");
            for devices in
                [[("a", edits.clone()), ("b", plain.clone())], [("a", plain.clone()), ("b", edits.clone())]]
            {
                let spec = spec("vendor.com/class", ContainerEdits::new(), &devices);
                assert_eq!(spec.version(), version, "{spec:?}");
            }
        }
    }

    #[test]
    fn names_and_annotations_raise_the_version() {
        let plain = || ContainerEdits::new().env("X", "1");
        let version = |kind, device| spec(kind, ContainerEdits::new(), &[(device, plain())]).version();
        assert_eq!(version("vendor.com/class", "a0"), Version::V0_3_0);
        assert_eq!(version("vendor.com/class", "0a"), Version::V0_5_0);
        assert_eq!(version("vendor.com/cl.ass", "a0"), Version::V0_6_0);
        let annotated = spec("vendor.com/class", plain(), &[("a", plain())]).with_annotations([("k", "v")]);
        assert_eq!(annotated.unwrap().version(), Version::V0_6_0);
    }

    #[test]
    fn only_versions_that_every_library_knows_are_written_without_a_new_feature() {
        for (_, version) in features().into_iter().filter(|(_, version)| *version < Version::V1_1_0) {
            assert!(["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0"].contains(&version.as_str()));
        }
    }
}
