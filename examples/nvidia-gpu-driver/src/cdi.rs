//! How a GPU gets into a container, without NVIDIA's toolkit: device nodes, and what of the driver a program needs.

mod driver_files;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use dra_kubeletplugin::{ContainerEdits, DeviceNode};

use crate::driver_root::DriverRoot;

pub(crate) use driver_files::{DriverFiles, libraries};

/// Of all GPUs together.
const COMMON_NODES: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// Where device nodes and the kernel's files about them are.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// As this process sees it: has `dev` in it.
    pub(crate) here: PathBuf,
    /// As the container runtime sees it.
    pub(crate) on_host: PathBuf,
    /// `/proc`, or a stand-in.
    pub(crate) proc: PathBuf,
}

impl Nodes {
    /// The nodes of a GPU.
    ///
    /// # Errors
    /// The GPU's own node is not there.
    pub(crate) fn of_gpu(&self, minor: u32) -> anyhow::Result<ContainerEdits> {
        let own = Path::new("/dev").join(format!("nvidia{minor}"));
        ensure!(
            self.is_there(&own),
            "device node {} is not there; does `nvidia-smi` or `nvidia-modprobe` make it?",
            self.here.join(own.strip_prefix("/").unwrap_or(&own)).display()
        );
        let common = COMMON_NODES.iter().map(|name| Path::new("/dev").join(name));
        let common = common.filter(|node| self.is_there(node));
        Ok(common.fold(ContainerEdits::new().device_node(self.node(&own)), |edits, node| {
            edits.device_node(self.node(&node))
        }))
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
        let mig = self.proc.join(format!("driver/nvidia/capabilities/gpu{minor}/mig"));
        let instance = mig.join(format!("gi{gpu_instance}"));
        let files = [instance.join("access"), instance.join(format!("ci{compute_instance}/access"))];
        files.iter().try_fold(ContainerEdits::new(), |edits, file| {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("capability of a MIG device: reading {}", file.display()))?;
            let number = device_file_minor(&text).with_context(|| {
                format!("capability of a MIG device: no DeviceFileMinor in {}", file.display())
            })?;
            let node = Path::new("/dev/nvidia-caps").join(format!("nvidia-cap{number}"));
            Ok(edits.device_node(self.node(&node)))
        })
    }

    fn node(&self, path: &Path) -> DeviceNode {
        let below_root = path.strip_prefix("/").unwrap_or(path);
        DeviceNode::new(path).host_path(self.on_host.join(below_root))
    }

    fn is_there(&self, path: &Path) -> bool {
        self.here.join(path.strip_prefix("/").unwrap_or(path)).exists()
    }
}

/// What every container with a GPU that NVIDIA's driver has gets, whichever it is.
pub(crate) fn common(root: &DriverRoot, files: &DriverFiles) -> ContainerEdits {
    no_others(files.edits(root))
}

/// An old runtime hook that looks at this variable must not inject the GPUs of its own choice as well.
pub(crate) fn no_others(edits: ContainerEdits) -> ContainerEdits {
    edits.env("NVIDIA_VISIBLE_DEVICES", "void")
}

fn device_file_minor(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn nodes(folder: &Path) -> Nodes {
        Nodes { here: folder.to_owned(), on_host: "/host".into(), proc: folder.join("proc") }
    }

    fn paths(edits: &ContainerEdits) -> Vec<&str> {
        edits.device_nodes.iter().map(|node| node.path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_gpu_has_its_own_node_and_those_common_ones_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dev")).unwrap();
        for node in ["nvidia3", "nvidiactl", "nvidia-uvm"] {
            fs::write(folder.path().join("dev").join(node), "").unwrap();
        }
        let edits = nodes(folder.path()).of_gpu(3).unwrap();
        assert_eq!(paths(&edits), ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]);
        assert_eq!(edits.device_nodes[0].host_path.as_deref(), Some(Path::new("/host/dev/nvidia3")));
        let error = nodes(folder.path()).of_gpu(4).unwrap_err().to_string();
        assert!(error.contains("dev/nvidia4 is not there"), "{error}");
    }

    #[test]
    fn a_partition_has_the_capabilities_that_the_kernel_tells() {
        let folder = tempfile::tempdir().unwrap();
        let instance = folder.path().join("proc/driver/nvidia/capabilities/gpu0/mig/gi9");
        fs::create_dir_all(instance.join("ci0")).unwrap();
        let access = |minor: u32| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n");
        fs::write(instance.join("access"), access(84)).unwrap();
        fs::write(instance.join("ci0/access"), access(85)).unwrap();
        let edits = nodes(folder.path()).of_mig(0, 9, 0).unwrap();
        assert_eq!(paths(&edits), ["/dev/nvidia-caps/nvidia-cap84", "/dev/nvidia-caps/nvidia-cap85"]);
        let error = nodes(folder.path()).of_mig(0, 8, 0).unwrap_err();
        assert!(error.to_string().contains("gpu0/mig/gi8/access"), "{error}");
        fs::write(instance.join("access"), "nothing").unwrap();
        let error = nodes(folder.path()).of_mig(0, 9, 0).unwrap_err();
        assert!(error.to_string().contains("no DeviceFileMinor"), "{error}");
    }
}
