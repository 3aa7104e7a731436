//! Removes sockets that dead instances of this driver left behind: the kubelet would go on dialling them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use dra_resourceslice::DriverName;
use tokio::{net::UnixStream, sync::watch};

use super::Registration;
use crate::{
    paths::{Paths, is_dra_socket, is_registration_socket_of},
    socket::inode_of,
};

/// A socket is dead if it refuses twice, this far apart, and is the same file both times: one that is just being
/// made may refuse once.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Sweeps once the plugin is registered, and every ten minutes: the kubelet goes on dialling sockets of dead instances.
pub(crate) async fn keep_swept(
    driver: DriverName,
    paths: Paths,
    mut registration: watch::Receiver<Registration>,
) {
    if registration.wait_for(Registration::is_registered).await.is_err() {
        return;
    }
    let ours = |name: &str| is_registration_socket_of(&driver, name);
    loop {
        let sweeps = [
            Sweep { folder: &paths.registry, ours: &ours },
            Sweep { folder: &paths.data, ours: &is_dra_socket },
        ];
        sweep_dead_sockets(&sweeps).await;
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// A folder to sweep, and which names in it may be touched.
pub(crate) struct Sweep<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) ours: &'a (dyn Fn(&str) -> bool + Sync),
}

/// Removes dead sockets. What cannot be read or removed is left and told in the log.
pub(crate) async fn sweep_dead_sockets(sweeps: &[Sweep<'_>]) -> Vec<PathBuf> {
    let mut suspects = Vec::new();
    for Sweep { folder, ours } in sweeps {
        for path in sockets_in(folder, *ours) {
            if let Ok(inode) = inode_of(&path)
                && refuses(&path).await
            {
                suspects.push((path, inode));
            }
        }
    }
    if suspects.is_empty() {
        return Vec::new();
    }
    tokio::time::sleep(BETWEEN_TRIES).await;
    let mut removed = Vec::new();
    for (path, inode) in suspects {
        if !refuses(&path).await || inode_of(&path).ok() != Some(inode) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "removed the socket of a dead instance");
                removed.push(path);
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot remove the socket of a dead instance");
            }
        }
    }
    removed
}

fn sockets_in(folder: &Path, ours: &(dyn Fn(&str) -> bool + Sync)) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt as _;
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "cannot look for dead sockets");
            return Vec::new();
        }
    };
    let sockets = entries.filter_map(Result::ok).filter(|entry| {
        entry.file_name().to_str().is_some_and(ours) && entry.file_type().is_ok_and(|kind| kind.is_socket())
    });
    sockets.map(|entry| entry.path()).collect()
}

/// Nobody listens. A listener that is too busy to answer does not refuse.
async fn refuses(path: &Path) -> bool {
    let dialled = tokio::time::timeout(BETWEEN_TRIES, UnixStream::connect(path)).await;
    matches!(dialled, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_dead_sockets_of_ours_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("dead.ours")).unwrap());
        drop(UnixListener::bind(at("dead.other")).unwrap());
        let _alive = UnixListener::bind(at("alive.ours")).unwrap();
        fs::write(at("file.ours"), "no socket").unwrap();
        let ours = |name: &str| name.strip_suffix(".ours").is_some();
        let removed = sweep_dead_sockets(&[Sweep { folder: folder.path(), ours: &ours }]).await;
        assert_eq!(removed, [at("dead.ours")]);
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["alive.ours", "dead.other", "file.ours"]);
    }
}
