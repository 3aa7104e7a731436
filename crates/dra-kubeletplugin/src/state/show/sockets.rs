//! The driver's sockets, and whether somebody listens.

use std::{
    fs, io,
    os::unix::{fs::FileTypeExt as _, net::UnixDatagram},
    path::{Path, PathBuf},
    time::SystemTime,
};

use dra_resourceslice::DriverName;
use nix::libc;

use super::{
    read::age,
    snapshot::{InstanceState, Liveness, SocketKind, SocketState},
};
use crate::paths::{instance_in, is_dra_socket, is_go_registration_socket_of, is_registration_socket_of};

/// Those of the driver in the folder of registration sockets and in its own, by path. Blocks.
pub(super) fn sockets(
    driver: &DriverName,
    registry: &Path,
    data: &Path,
) -> Result<Vec<SocketState>, (PathBuf, io::Error)> {
    let in_registry = |name: &str| registration_kind(driver, name);
    let now = SystemTime::now();
    let mut sockets = sockets_in(registry, in_registry, now).map_err(|error| (registry.to_owned(), error))?;
    sockets.extend(sockets_in(data, dra_kind, now).map_err(|error| (data.to_owned(), error))?);
    sockets.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sockets)
}

/// The instances that registration sockets tell of. `pod_uids` are those that are known otherwise: a socket's name has not
/// always room for one.
pub(super) fn instances(sockets: &[SocketState], pod_uids: &[String]) -> Vec<InstanceState> {
    let of_ours = sockets
        .iter()
        .filter(|socket| matches!(socket.kind, SocketKind::Registration | SocketKind::HiddenRegistration));
    let instance = |socket: &SocketState| {
        let (pod_uid, start) = instance_in(socket.path.file_name()?.to_str()?, pod_uids)?;
        let (pod_uid, start) = (pod_uid.map(str::to_owned), start.to_owned());
        Some(InstanceState { pod_uid, start, liveness: socket.liveness })
    };
    of_ours.filter_map(instance).collect()
}

fn registration_kind(driver: &DriverName, name: &str) -> Option<SocketKind> {
    if is_go_registration_socket_of(driver, name) {
        Some(SocketKind::GoRegistration)
    } else if !is_registration_socket_of(driver, name) {
        None
    } else if name.starts_with('.') {
        Some(SocketKind::HiddenRegistration)
    } else {
        Some(SocketKind::Registration)
    }
}

/// The Go helper (0.37) calls its socket `dra.sock`, or `dra-<pod uid>.sock` with rolling updates.
fn dra_kind(name: &str) -> Option<SocketKind> {
    let instance = name.strip_prefix("dra")?.strip_suffix(".sock")?;
    let is_go = instance.is_empty() || instance.starts_with('-');
    if is_dra_socket(name) { Some(SocketKind::Dra) } else { is_go.then_some(SocketKind::GoDra) }
}

/// None if there is no such folder.
fn sockets_in(
    folder: &Path,
    kind_of: impl Fn(&str) -> Option<SocketKind>,
    now: SystemTime,
) -> io::Result<Vec<SocketState>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(kind) = entry.file_name().to_str().and_then(&kind_of) else { continue };
        // What vanishes meanwhile is left out.
        let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
        if !found.file_type().is_socket() {
            continue;
        }
        let Some((liveness, error)) = liveness_of(&entry.path()) else { continue };
        let age = age(found.modified()?, now);
        sockets.push(SocketState { path: entry.path(), kind, liveness, error, age });
    }
    Ok(sockets)
}

/// Asks for a datagram connection, which no gRPC server offers: where one listens, the kernel says that the type is
/// wrong, and nobody has noticed; where none does, it refuses. None if the socket has gone.
fn liveness_of(path: &Path) -> Option<(Liveness, Option<String>)> {
    let error = match UnixDatagram::unbound().and_then(|socket| socket.connect(path)) {
        Ok(()) => return Some((Liveness::Live, None)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ENOENT) => None,
        Some(libc::EPROTOTYPE) => Some((Liveness::Live, None)),
        Some(libc::ECONNREFUSED) => Some((Liveness::Dead, None)),
        _ => Some((Liveness::Unknown, Some(error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_look_tells_live_sockets_from_dead_ones_and_connects_to_none() {
        let root = tempfile::tempdir().unwrap();
        let driver: DriverName = "gpu.example.com".parse().unwrap();
        let (registry, data) = (root.path().join("registry"), root.path().join("data"));
        assert_eq!(sockets(&driver, &registry, &data).unwrap(), []);
        for folder in [&registry, &data] {
            fs::create_dir(folder).unwrap();
        }
        let bind = |path: PathBuf| UnixListener::bind(path).unwrap();
        let live = bind(registry.join("pod-a-00000a@gpu.example.com-reg.sock"));
        live.set_nonblocking(true).unwrap();
        let _go = bind(registry.join("gpu.example.com-reg.sock"));
        for dead in [
            registry.join(".dra-00000b@gpu.example.com-reg.sock"),
            registry.join("other.example.com-reg.sock"),
            data.join("dra-rs-pod-a-00000c.sock"),
            data.join("dra.sock"),
        ] {
            drop(bind(dead));
        }
        fs::write(data.join("dra-rs-file.sock"), "no socket").unwrap();

        let found = sockets(&driver, &registry, &data).unwrap();
        let seen: Vec<_> = found.iter().map(|socket| (socket.kind, socket.liveness)).collect();
        let expected = [
            (SocketKind::Dra, Liveness::Dead),
            (SocketKind::GoDra, Liveness::Dead),
            (SocketKind::HiddenRegistration, Liveness::Dead),
            (SocketKind::GoRegistration, Liveness::Live),
            (SocketKind::Registration, Liveness::Live),
        ];
        assert_eq!(seen, expected);
        assert_eq!(live.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody has called");
        let instance = |pod: Option<&str>, start: &str, liveness| InstanceState {
            pod_uid: pod.map(str::to_owned),
            start: start.to_owned(),
            liveness,
        };
        let expected =
            [instance(None, "00000b", Liveness::Dead), instance(Some("pod-a"), "00000a", Liveness::Live)];
        assert_eq!(instances(&found, &[]), expected);
    }
}
