//! Symbolic links as host paths of device nodes.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::edits::{ContainerEdits, DeviceType};

/// A device node's path on the host that could not be followed.
#[derive(Debug, thiserror::Error)]
#[error("the device node {path:?} of the host cannot be used: {source}")]
#[non_exhaustive]
pub struct ResolveError {
    /// The path that the edits name.
    pub path: PathBuf,
    /// What is wrong with it.
    pub source: io::Error,
}

/// Replaces symbolic links as host paths of device nodes by what they point to.
///
/// A runtime looks at a device node's host path without following a link, and fails if it is one, as `/dev/dri/by-path/…` are.
/// A node with its type and numbers given, or that is a pipe, need not exist, so such a node is left as it is.
///
/// `root` is where this process sees the root of the host: `/`, or the mount point of a host root in a container. Absolute links
/// are followed below it.
///
/// # Errors
/// [`ResolveError`] when a node does not exist below `root`, or links lead in a circle.
///
/// ```
/// use dra_cdi::{ContainerEdits, DeviceNode, resolve_host_paths};
/// # let host = tempfile::tempdir()?;
/// # let root = host.path();
/// # std::fs::create_dir_all(root.join("dev/by-path"))?;
/// # std::fs::write(root.join("dev/gpu7"), "")?;
/// std::os::unix::fs::symlink("../gpu7", root.join("dev/by-path/pci-3b"))?;
/// let mut edits = ContainerEdits::new().device_node(DeviceNode::new("/dev/by-path/pci-3b"));
/// resolve_host_paths(&mut edits, root)?;
/// let wanted = DeviceNode::new("/dev/by-path/pci-3b").host_path("/dev/gpu7");
/// assert_eq!(edits.device_nodes, [wanted]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn resolve_host_paths(edits: &mut ContainerEdits, root: &Path) -> Result<(), ResolveError> {
    for node in &mut edits.device_nodes {
        // As runtimes have it: a pipe has no numbers.
        if node.device_type == Some(DeviceType::Fifo) || node.device_type.is_some() && node.major.is_some() {
            continue;
        }
        let named = node.host_path.as_ref().unwrap_or(&node.path);
        let resolved = resolve(named, root).map_err(|source| ResolveError { path: named.clone(), source })?;
        if resolved != *named {
            *node = node.clone().host_path(resolved);
        }
    }
    Ok(())
}

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// `path` with every link in it followed, as a process would see it whose root is `root`.
fn resolve(path: &Path, root: &Path) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::from("/");
    let mut links = 0;
    let mut todo: VecDeque<OsString> = parts(path).map(OsStr::to_owned).collect();
    while let Some(part) = todo.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let candidate = resolved.join(&part);
        // `resolved` is absolute, and joining an absolute path would replace the root.
        let seen = root.join(candidate.strip_prefix("/").unwrap_or(&candidate));
        if !std::fs::symlink_metadata(&seen)?.is_symlink() {
            resolved = candidate;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many symbolic links, or a circle of them"));
        }
        let target = std::fs::read_link(&seen)?;
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            todo.push_front(part.to_owned());
        }
    }
    Ok(resolved)
}

fn parts(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::edits::DeviceNode;

    fn host() -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        let dev = host.path().join("dev");
        std::fs::create_dir_all(dev.join("by-path")).unwrap();
        std::fs::write(dev.join("gpu7"), "").unwrap();
        symlink("../gpu7", dev.join("by-path/relative")).unwrap();
        symlink("/dev/by-path/relative", dev.join("absolute")).unwrap();
        symlink("by-path", dev.join("folder")).unwrap();
        symlink("circle", dev.join("circle")).unwrap();
        symlink("nothing", dev.join("dangling")).unwrap();
        host
    }

    #[test]
    fn links_are_followed_below_the_root_of_the_host() {
        let host = host();
        for link in ["/dev/by-path/relative", "/dev/absolute", "/dev/folder/relative"] {
            let mut edits = ContainerEdits::new().device_node(DeviceNode::new("/dev/gpu").host_path(link));
            resolve_host_paths(&mut edits, host.path()).unwrap();
            assert_eq!(edits.device_nodes, [DeviceNode::new("/dev/gpu").host_path("/dev/gpu7")], "{link}");
        }
    }

    #[test]
    fn a_node_that_is_no_link_stays_as_it_is() {
        let host = host();
        let edits = ContainerEdits::new().device_node(DeviceNode::new("/dev/gpu7"));
        let mut resolved = edits.clone();
        resolve_host_paths(&mut resolved, host.path()).unwrap();
        assert_eq!(resolved, edits);
    }

    #[test]
    fn a_node_with_type_and_numbers_need_not_exist() {
        let node = |path: &str| DeviceNode::new(path).device_type(DeviceType::Char).major_minor(195, 0);
        let edits =
            ContainerEdits::new().device_node(node("/dev/absolute")).device_node(node("/dev/missing"));
        let mut resolved = edits.clone();
        resolve_host_paths(&mut resolved, host().path()).unwrap();
        assert_eq!(resolved, edits);
    }

    #[test]
    fn missing_nodes_and_circles_are_errors_that_name_the_path() {
        let host = host();
        for path in ["/dev/missing", "/dev/dangling", "/dev/circle"] {
            let mut edits = ContainerEdits::new().device_node(DeviceNode::new(path));
            let error = resolve_host_paths(&mut edits, host.path()).unwrap_err();
            assert_eq!(error.path, Path::new(path));
        }
    }
}
