//! The cgroups of a cluster's containers: they lie outside the namespaces and outlive what was in them.
//!
//! The kubelet is told to manage no cgroups (hosts differ too much), so containerd puts each container in
//! `/k8s.io/<container>` of every hierarchy, beside those of other clusters on the machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::process::Process;

const ROOT: &str = "/sys/fs/cgroup";
const PARENT: &str = "k8s.io";

/// The cgroups of containers that live in the cluster with this process 1, as paths below a hierarchy.
pub(crate) fn of_containers(init: Process) -> Vec<PathBuf> {
    // Each container has a folder here for as long as its shim has not cleaned up, which is what removes its cgroup.
    let tasks = format!("/proc/{}/root/run/containerd/io.containerd.runtime.v2.task/{PARENT}", init.pid());
    let Ok(entries) = fs::read_dir(tasks) else { return Vec::new() };
    entries.filter_map(|entry| Some(Path::new(PARENT).join(entry.ok()?.file_name()))).collect()
}

/// Removes cgroups from every hierarchy, of cgroup v1 or v2, and their parent if no other cluster uses it.
///
/// # Errors
/// A process is still in one.
pub(crate) fn remove(cgroups: &[PathBuf]) -> Result<()> {
    // v2 has its one hierarchy at the top, v1 has one below it for each controller.
    let mut hierarchies = vec![PathBuf::from(ROOT)];
    for entry in fs::read_dir(ROOT).with_context(|| format!("reading {ROOT}"))? {
        hierarchies.push(entry?.path());
    }
    for hierarchy in hierarchies {
        for cgroup in cgroups.iter().map(|cgroup| hierarchy.join(cgroup)).filter(|cgroup| cgroup.is_dir()) {
            remove_tree(&cgroup).with_context(|| format!("removing the cgroup {}", cgroup.display()))?;
        }
        // Fails where it is not there, or in use.
        let _ = fs::remove_dir(hierarchy.join(PARENT));
    }
    Ok(())
}

/// Only folders can be removed there; their files go with them.
fn remove_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
