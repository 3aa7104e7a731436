//! Sockets that appear finished and vanish without touching anybody else's.

use std::{
    fs, io,
    os::unix::{fs::MetadataExt as _, net::UnixListener},
    path::{Path, PathBuf},
};

/// A listening socket; dropping it removes its file, if the path still leads to this very socket.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
    inode: (u64, u64),
}

impl BoundSocket {
    /// Binds `path` and listens.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let inode = inode_of(path)?;
        Ok(Self { listener: Some(listener), path: path.to_owned(), inode })
    }

    /// Renames the socket. Bound under a dot-name first, it shows itself to a watcher of the folder only once it
    /// answers. Both names lie in one folder: another hostPath mount would be another file system.
    pub(crate) fn publish(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// The listener, to be served; the file stays this value's business. None if it was taken before.
    pub(crate) fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }

    /// Where the socket is to be found now.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if inode_of(&self.path).is_ok_and(|inode| inode == self.inode)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "socket could not be removed");
        }
    }
}

/// Device and inode of what lies at `path`, without following a link.
pub(crate) fn inode_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_socket_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (hidden, path) = (folder.path().join(".s"), folder.path().join("s"));
        let mut socket = BoundSocket::bind(&hidden).unwrap();
        socket.publish(&path).unwrap();
        assert!(!hidden.exists() && path.exists());
        drop(socket);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_successor_under_the_same_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let old = BoundSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _new = BoundSocket::bind(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
