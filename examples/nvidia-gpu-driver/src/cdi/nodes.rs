//! Device nodes, by the numbers that the kernel tells. Nodes are given with type, numbers and mode, so none has to be there
//! on the host: the kernel makes none, and what `nvidia-modprobe` makes in a container is only in that container.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use dra_kubeletplugin::{
    ContainerEdits, DeviceNode,
    cdi::{DeviceType, Permissions},
};

/// The minor number of `/dev/nvidiactl` (open-gpu-kernel-modules, `nv.h`: `NV_CONTROL_DEVICE_MINOR`).
const CONTROL: u32 = 255;
/// That of `/dev/nvidia-modeset` (`nvidia-modeset-os-interface.h`).
const MODESET: u32 = 254;
/// What `nvidia-modprobe` gives nodes unless the module's parameters say otherwise.
const USUAL_MODE: u32 = 0o666;

/// The kernel's files about drivers and devices: `/proc` and `/sys`, or stand-ins.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) proc: PathBuf,
    pub(crate) sysfs: PathBuf,
}

impl Nodes {
    /// The nodes of a GPU, and those that all GPUs have together.
    ///
    /// # Errors
    /// A module is not loaded without which no program can compute.
    pub(crate) fn of_gpu(&self, minor: u32) -> anyhow::Result<ContainerEdits> {
        let majors = self.majors()?;
        let access = self.access();
        let gpus = required(
            &majors,
            &["nvidia", "nvidia-frontend"],
            "`modprobe nvidia`, or install NVIDIA's driver",
        )?;
        let uvm = required(
            &majors,
            &["nvidia-uvm"],
            "`nvidia-modprobe -u -c 0` or `modprobe nvidia-uvm` on the node",
        )?;
        let mut nodes = vec![
            (format!("nvidia{minor}"), gpus, minor),
            ("nvidiactl".to_owned(), gpus, CONTROL),
            ("nvidia-uvm".to_owned(), uvm, 0),
            ("nvidia-uvm-tools".to_owned(), uvm, 1),
        ];
        // For displays and Vulkan alone: a program that computes does without.
        if let Some(modeset) = majors.get("nvidia-modeset") {
            nodes.push(("nvidia-modeset".to_owned(), *modeset, MODESET));
        }
        let nodes = nodes.into_iter().map(|(name, major, minor)| access.node(&name, major, minor));
        Ok(nodes.fold(ContainerEdits::new(), ContainerEdits::device_node))
    }

    /// The nodes by which a partition may be used, beside those of its GPU.
    ///
    /// # Errors
    /// The kernel does not tell their numbers.
    pub(crate) fn of_mig(
        &self,
        minor: u32,
        gpu_instance: u32,
        compute_instance: u32,
    ) -> anyhow::Result<ContainerEdits> {
        let what = "capability of a MIG device";
        let major =
            required(&self.majors()?, &["nvidia-caps"], "NVIDIA's driver, of version 450 or later, again")?;
        let mig = self.proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig"));
        let instance = mig.join(format!("gi{gpu_instance}"));
        let files = [instance.join("access"), instance.join(format!("ci{compute_instance}/access"))];
        files.iter().try_fold(ContainerEdits::new(), |edits, file| {
            let text =
                fs::read_to_string(file).with_context(|| format!("{what}: reading {}", file.display()))?;
            let number = field(&text, "DeviceFileMinor");
            let number =
                number.with_context(|| format!("{what}: no DeviceFileMinor in {}", file.display()))?;
            let access = Access { mode: field(&text, "DeviceFileMode").unwrap_or(USUAL_MODE), gid: None };
            Ok(edits.device_node(access.node(&format!("nvidia-caps/nvidia-cap{number}"), major, number)))
        })
    }

    /// The nodes of the kernel's graphics interface for the GPU at this address: names below `/dev/dri`, as sysfs lists them.
    /// A GPU without the module for it has none.
    pub(crate) fn of_graphics(&self, pci: &str) -> (Vec<String>, ContainerEdits) {
        let folder = self.sysfs.join("bus/pci/devices").join(pci).join("drm");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let numbers = fs::read_to_string(entry.path().join("dev")).ok()?;
            let (major, minor) = numbers.trim().split_once(':')?;
            Some((entry.file_name().into_string().ok()?, major.parse().ok()?, minor.parse().ok()?))
        });
        let mut found: Vec<(String, u32, u32)> = found.collect();
        found.sort();
        let access = Access { mode: USUAL_MODE, gid: None };
        let edits = found.iter().fold(ContainerEdits::new(), |edits, (name, major, minor)| {
            edits.device_node(access.node(&format!("dri/{name}"), *major, *minor))
        });
        (found.into_iter().map(|(name, ..)| name).collect(), edits)
    }

    /// Major numbers of character devices, by name.
    fn majors(&self) -> anyhow::Result<BTreeMap<String, u32>> {
        let path = self.proc.join("devices");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(majors(&text))
    }

    /// With what mode and group nodes of GPUs are made.
    fn access(&self) -> Access {
        let text = fs::read_to_string(self.proc.join("driver/nvidia/params")).unwrap_or_default();
        Access {
            mode: field(&text, "DeviceFileMode").filter(|mode| *mode <= 0o777).unwrap_or(USUAL_MODE),
            gid: field(&text, "DeviceFileGID").filter(|gid| *gid != 0),
        }
    }
}

/// Who may use a node.
#[derive(Clone, Copy, Debug)]
struct Access {
    mode: u32,
    gid: Option<u32>,
}

impl Access {
    fn node(self, name: &str, major: u32, minor: u32) -> DeviceNode {
        let node = DeviceNode::new(Path::new("/dev").join(name))
            .device_type(DeviceType::Char)
            .major_minor(major, minor)
            .file_mode(self.mode)
            .permissions(Permissions::READ_WRITE_MKNOD);
        self.gid.into_iter().fold(node, DeviceNode::gid)
    }
}

fn required(majors: &BTreeMap<String, u32>, names: &[&str], what_to_do: &str) -> anyhow::Result<u32> {
    let found = names.iter().find_map(|name| majors.get(*name).copied());
    let name = names.first().copied().unwrap_or_default();
    found.ok_or_else(|| {
        anyhow!("device nodes: the kernel lists no device {name} in /proc/devices, so its module is not loaded; run {what_to_do}")
    })
}

/// Of the first part of `/proc/devices`: lines of a number and a name. The numbers of block devices are others.
fn majors(text: &str) -> BTreeMap<String, u32> {
    let characters = text.lines().skip_while(|line| !line.starts_with("Character")).skip(1);
    let lines = characters.take_while(|line| !line.starts_with("Block"));
    let entries = lines.filter_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        Some((name.trim().to_owned(), number.parse().ok()?))
    });
    entries.collect()
}

/// A number behind this name and a colon.
fn field(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n237 nvidia-caps\n\n\
                           Block devices:\n  7 nvidia-modeset\n";

    fn nodes(devices: &str) -> (tempfile::TempDir, Nodes) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("driver/nvidia")).unwrap();
        fs::write(folder.path().join("devices"), devices).unwrap();
        let nodes = Nodes { proc: folder.path().to_owned(), sysfs: folder.path().join("sys") };
        (folder, nodes)
    }

    fn told(edits: &ContainerEdits) -> Vec<(&str, u32, u32, u32)> {
        let told = edits.device_nodes.iter().map(|node| {
            assert_eq!(node.device_type, Some(DeviceType::Char), "{node:?}");
            let numbers = (node.major.unwrap(), node.minor.unwrap());
            (node.path.to_str().unwrap(), numbers.0, numbers.1, node.file_mode.unwrap())
        });
        told.collect()
    }

    #[test]
    fn a_gpu_has_its_own_node_and_the_common_ones_by_number_without_any_being_there() {
        let (folder, nodes) = nodes(DEVICES);
        let expected = [
            ("/dev/nvidia3", 195, 3, 0o666),
            ("/dev/nvidiactl", 195, 255, 0o666),
            ("/dev/nvidia-uvm", 511, 0, 0o666),
            ("/dev/nvidia-uvm-tools", 511, 1, 0o666),
        ];
        assert_eq!(told(&nodes.of_gpu(3).unwrap()), expected);
        fs::write(folder.path().join("driver/nvidia/params"), "DeviceFileGID: 44\nDeviceFileMode: 432\n")
            .unwrap();
        fs::write(folder.path().join("devices"), DEVICES.replace("237", "195 nvidia-modeset\n237")).unwrap();
        let edits = nodes.of_gpu(0).unwrap();
        assert_eq!(told(&edits)[4], ("/dev/nvidia-modeset", 195, 254, 0o660));
        assert!(edits.device_nodes.iter().all(|node| node.gid == Some(44)));
    }

    #[test]
    fn the_nodes_for_graphics_are_those_that_sysfs_lists() {
        let (folder, nodes) = nodes(DEVICES);
        assert_eq!(nodes.of_graphics("0000:65:00.0"), (Vec::new(), ContainerEdits::new()));
        for (name, numbers) in [("card1", "226:1\n"), ("renderD128", "226:128\n")] {
            let place = folder.path().join("sys/bus/pci/devices/0000:65:00.0/drm").join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("dev"), numbers).unwrap();
        }
        let (names, edits) = nodes.of_graphics("0000:65:00.0");
        assert_eq!(names, ["card1", "renderD128"]);
        assert_eq!(
            told(&edits),
            [("/dev/dri/card1", 226, 1, 0o666), ("/dev/dri/renderD128", 226, 128, 0o666)]
        );
    }

    #[test]
    fn a_module_that_is_not_loaded_is_an_error_that_says_what_to_run() {
        for (without, expected) in [
            (
                "511 nvidia-uvm\n",
                "nvidia-uvm in /proc/devices, so its module is not loaded; run `nvidia-modprobe -u -c 0`",
            ),
            ("195 nvidia\n", "nvidia in /proc/devices, so its module is not loaded; run `modprobe nvidia`"),
        ] {
            let (_folder, nodes) = nodes(&DEVICES.replace(without, ""));
            let error = nodes.of_gpu(0).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_partition_has_the_capabilities_that_the_kernel_tells_by_number() {
        let (folder, nodes) = nodes(DEVICES);
        let instance = folder.path().join("driver/nvidia/capabilities/gpu0/mig/gi9");
        fs::create_dir_all(instance.join("ci0")).unwrap();
        let access =
            |minor: u32| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(instance.join("access"), access(84)).unwrap();
        fs::write(instance.join("ci0/access"), access(85)).unwrap();
        let expected =
            [84, 85].map(|number| (format!("/dev/nvidia-caps/nvidia-cap{number}"), 237, number, 0o444));
        let edits = nodes.of_mig(0, 9, 0).unwrap();
        let found: Vec<_> =
            told(&edits).into_iter().map(|(path, a, b, c)| (path.to_owned(), a, b, c)).collect();
        assert_eq!(found, expected);
        let error = nodes.of_mig(0, 8, 0).unwrap_err();
        assert!(error.to_string().contains("gpu0/mig/gi8/access"), "{error}");
        fs::write(instance.join("access"), "nothing").unwrap();
        let error = nodes.of_mig(0, 9, 0).unwrap_err();
        assert!(error.to_string().contains("no DeviceFileMinor"), "{error}");
    }
}
