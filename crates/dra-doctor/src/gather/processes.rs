//! What `/proc` tells of kubelets and UNIX sockets.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::snapshot::{Kubelet, UnixSocket};

/// The kubelets among the processes.
///
/// # Errors
/// If there is none, or the folder cannot be read.
pub(super) fn kubelets(proc: &Path) -> Result<Vec<Kubelet>, String> {
    let mut found = Vec::new();
    for pid in pids(proc)? {
        // Processes end while they are looked at, and kernel threads have no command line.
        let Ok(command) = fs::read(proc.join(pid.to_string()).join("cmdline")) else { continue };
        if let Some(root) = root_of(&command) {
            let real_root = root.canonicalize().unwrap_or_else(|_| root.clone());
            found.push(Kubelet { pid, root, real_root });
        }
    }
    if found.is_empty() {
        return Err(format!(
            "there is no kubelet in {}: start it, or run this among the host's processes. K3s and MicroK8s have theirs in \
             a process of another name, which is not looked for",
            proc.display()
        ));
    }
    Ok(found)
}

/// The sockets with a path in all network namespaces that processes are in.
///
/// # Errors
/// If not even the own ones can be read.
pub(super) fn unix_sockets(proc: &Path) -> Result<Vec<UnixSocket>, String> {
    let mut namespaces = BTreeSet::new();
    let mut found = Vec::new();
    for pid in pids(proc)? {
        let process = proc.join(pid.to_string());
        let Ok(namespace) = fs::read_link(process.join("ns/net")) else { continue };
        if !namespaces.insert(namespace) {
            continue;
        }
        if let Ok(table) = fs::read_to_string(process.join("net/unix")) {
            found.extend(sockets_in(&table));
        }
    }
    if namespaces.is_empty() {
        return Err(format!("no process in {} may be looked at: run this as root", proc.display()));
    }
    Ok(found)
}

fn pids(proc: &Path) -> Result<Vec<u32>, String> {
    let entries = fs::read_dir(proc).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| format!("reading {}: {error}", proc.display()))?;
    Ok(entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The root of a kubelet with this command line, or nothing for another program.
fn root_of(command: &[u8]) -> Option<PathBuf> {
    let mut arguments = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = arguments.next()?;
    if Path::new(program.as_ref()).file_name()? != "kubelet" {
        return None;
    }
    let mut root = PathBuf::from("/var/lib/kubelet");
    while let Some(argument) = arguments.next() {
        let flag = argument.trim_start_matches('-');
        if flag == "root-dir" && argument.starts_with('-') {
            root = arguments.next()?.as_ref().into();
        } else if let Some(value) = flag.strip_prefix("root-dir=") {
            root = value.into();
        }
    }
    Some(root)
}

/// The sockets in a table as `/proc/net/unix` is one: number, references, protocol, flags, type, state, inode, path.
fn sockets_in(table: &str) -> impl Iterator<Item = UnixSocket> {
    const LISTENS: u32 = 0x1_0000;
    const CONNECTED: &str = "03";
    table.lines().skip(1).filter_map(|line| {
        let mut rest = line;
        let mut columns = Vec::new();
        for _ in 0..7 {
            let (column, behind) = rest.trim_start().split_once(' ')?;
            columns.push(column);
            rest = behind;
        }
        let is_listening = u32::from_str_radix(columns[3], 16).ok()? & LISTENS != 0;
        let path = rest.trim_start();
        let counts = path.starts_with('/') && (is_listening || columns[5] == CONNECTED);
        counts.then(|| UnixSocket { path: path.into(), is_listening })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_command_line_or_the_usual_one() {
        for (command, root) in [
            ("/usr/bin/kubelet\0--v=4\0", Some("/var/lib/kubelet")),
            ("kubelet\0--root-dir=/data/kubelet\0", Some("/data/kubelet")),
            ("kubelet\0--root-dir\0/data/kubelet\0--v=4\0", Some("/data/kubelet")),
            ("kubelet\0-root-dir=/data/kubelet\0", Some("/data/kubelet")),
            ("/bin/sh\0kubelet\0", None),
            ("", None),
        ] {
            assert_eq!(root_of(command.as_bytes()), root.map(PathBuf::from), "{command}");
        }
    }

    #[test]
    fn listeners_and_connections_are_told_apart() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             ffff8880: 00000002 00000000 00010000 0001 01 4711 /run/with space.sock\n\
             ffff8881: 00000003 00000000 00000000 0001 03 4712 /run/b.sock\n\
             ffff8882: 00000003 00000000 00000000 0001 03 4713\n\
             ffff8883: 00000002 00000000 00010000 0001 01 4714 @abstract\n\
             ffff8884: 00000002 00000000 00000000 0002 01 4715 /run/datagram.sock\n";
        let sockets: Vec<_> = sockets_in(table).map(|socket| (socket.path, socket.is_listening)).collect();
        assert_eq!(sockets, [("/run/with space.sock".into(), true), ("/run/b.sock".into(), false)]);
    }

    #[test]
    fn a_folder_of_processes_is_read() {
        let proc = tempfile::tempdir().unwrap();
        assert!(kubelets(proc.path()).is_err() && unix_sockets(proc.path()).is_err());
        let process = proc.path().join("42");
        fs::create_dir_all(process.join("ns")).unwrap();
        fs::create_dir_all(process.join("net")).unwrap();
        fs::write(process.join("cmdline"), "kubelet\0--root-dir=/k\0").unwrap();
        std::os::unix::fs::symlink("net:[1]", process.join("ns/net")).unwrap();
        let table = "Num\nf: 00000002 00000000 00010000 0001 01 4711 /a.sock\n";
        fs::write(process.join("net/unix"), table).unwrap();
        assert_eq!(
            kubelets(proc.path()),
            Ok(vec![Kubelet { pid: 42, root: "/k".into(), real_root: "/k".into() }])
        );
        assert_eq!(unix_sockets(proc.path()).map(|sockets| sockets.len()), Ok(1));
    }
}
