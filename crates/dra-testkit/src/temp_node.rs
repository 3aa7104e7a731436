//! The folders of a node, in a temporary place.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Longest temporary folder that leaves room for sockets below it: their paths are limited to 107 bytes.
const MAX_BASE: usize = 8;

/// The folders of a node under a short temporary path; removed when dropped.
///
/// The path is short because the paths of Unix sockets are limited to 107 bytes: if the system's temporary folder
/// is too deep, `/tmp` is used.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let node = dra_testkit::TempNode::new()?;
/// assert!(node.plugins_registry().is_dir());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TempNode {
    root: TempDir,
}

impl TempNode {
    /// Makes the folders.
    ///
    /// # Errors
    /// If no folder can be made in the temporary place.
    pub fn new() -> io::Result<Self> {
        let usual = std::env::temp_dir();
        let base = if usual.as_os_str().len() <= MAX_BASE { usual } else { PathBuf::from("/tmp") };
        let root = tempfile::Builder::new().prefix("dra-").tempdir_in(base)?;
        let node = Self { root };
        for folder in [node.plugins(), node.plugins_registry(), node.cdi()] {
            std::fs::create_dir_all(folder)?;
        }
        Ok(node)
    }

    /// The folder that holds all others.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The kubelet's root, `/var/lib/kubelet` on a real node.
    #[must_use]
    pub fn kubelet(&self) -> PathBuf {
        self.root().join("kubelet")
    }

    /// Where drivers keep their data.
    #[must_use]
    pub fn plugins(&self) -> PathBuf {
        self.kubelet().join("plugins")
    }

    /// Where drivers put their registration sockets.
    #[must_use]
    pub fn plugins_registry(&self) -> PathBuf {
        self.kubelet().join("plugins_registry")
    }

    /// Where drivers put CDI files, `/var/run/cdi` on a real node.
    #[must_use]
    pub fn cdi(&self) -> PathBuf {
        self.root().join("cdi")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_while_the_node_lives() {
        let node = TempNode::new().expect("a folder");
        let root = node.root().to_owned();
        assert!(node.plugins().is_dir() && node.cdi().is_dir());
        assert!(node.plugins_registry().as_os_str().len() <= 48, "{}", node.plugins_registry().display());
        drop(node);
        assert!(!root.exists());
    }
}
