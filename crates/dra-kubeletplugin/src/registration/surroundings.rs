//! What there is to see on the disk when the kubelet does not register the plugin, and what that tells.

use std::{fs, path::PathBuf};

use crate::paths::Paths;

/// How far the kubelet has come with the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Nothing,
    /// It has connected to the registration socket.
    Dialled,
    /// It has called `GetInfo`.
    Asked,
    /// It had registered the plugin.
    Lost,
}

/// Where the kubelet should look, and what lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    registry: PathBuf,
    socket: PathBuf,
    dra_socket: PathBuf,
    registry_there: bool,
    socket_there: bool,
    dra_socket_there: bool,
    /// Sockets of anybody else in the registry.
    other_sockets: usize,
}

impl Surroundings {
    /// Looks at the disk.
    pub(crate) fn look(paths: &Paths) -> Self {
        use std::os::unix::fs::FileTypeExt as _;
        let entries = fs::read_dir(&paths.registry).into_iter().flatten().filter_map(Result::ok);
        let others = entries.filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_socket()) && entry.path() != paths.registration
        });
        Self {
            registry_there: paths.registry.is_dir(),
            socket_there: paths.registration.exists(),
            dra_socket_there: paths.dra.exists(),
            other_sockets: others.count(),
            registry: paths.registry.clone(),
            socket: paths.registration.clone(),
            dra_socket: paths.dra.clone(),
        }
    }

    /// In words: what the plugin has done, how far the kubelet has come, and what to look at. The kubelet is "it".
    pub(crate) fn tried(&self, progress: Progress) -> String {
        let (registry, socket) = (self.registry.display(), self.socket.display());
        if !self.registry_there {
            return format!(
                "its folder {registry} is gone, and the socket in it: is the folder still mounted? Start the driver anew"
            );
        }
        if !self.socket_there {
            return format!(
                "the registration socket {socket} is gone, somebody has removed it: start the driver anew"
            );
        }
        if !self.dra_socket_there {
            let dra = self.dra_socket.display();
            return format!("the socket {dra} is gone, somebody has removed it: start the driver anew");
        }
        let here = format!("the socket {socket} is served");
        let others = self.other_sockets;
        match progress {
            Progress::Nothing if others == 0 => format!(
                "it has not called GetInfo: {here}, nobody has dialled it, and no other plugin has a socket in {registry}: \
                 is it running, and does it watch this folder?"
            ),
            Progress::Nothing => format!(
                "it has not called GetInfo: {here} and nobody has dialled it; {others} more sockets lie in {registry}: is \
                 it running?"
            ),
            Progress::Dialled => {
                format!("it has dialled the socket and not called GetInfo: {here}; its log says why")
            }
            Progress::Asked => format!("it has called GetInfo and told no outcome: {here}; its log says why"),
            Progress::Lost => {
                format!(
                    "it had registered the plugin and is gone: {here}, it has to dial again: is it running?"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_before_what_the_kubelet_did() {
        let whole = Surroundings {
            registry: "/k/plugins_registry".into(),
            socket: "/k/plugins_registry/s".into(),
            dra_socket: "/k/plugins/d".into(),
            registry_there: true,
            socket_there: true,
            dra_socket_there: true,
            other_sockets: 0,
        };
        let other = Surroundings { other_sockets: 2, ..whole.clone() };
        let no_dra_socket = Surroundings { dra_socket_there: false, ..whole.clone() };
        let no_socket = Surroundings { socket_there: false, ..no_dra_socket.clone() };
        let no_folder = Surroundings { registry_there: false, ..no_socket.clone() };
        for (surroundings, progress, expected) in [
            (&whole, Progress::Nothing, "no other plugin has a socket in /k/plugins_registry"),
            (&other, Progress::Nothing, "2 more sockets lie in /k/plugins_registry"),
            (&whole, Progress::Dialled, "dialled the socket and not called GetInfo"),
            (&whole, Progress::Asked, "called GetInfo and told no outcome"),
            (&whole, Progress::Lost, "had registered the plugin and is gone"),
            (&no_dra_socket, Progress::Asked, "the socket /k/plugins/d is gone"),
            (&no_socket, Progress::Asked, "the registration socket /k/plugins_registry/s is gone"),
            (&no_folder, Progress::Nothing, "folder /k/plugins_registry is gone"),
        ] {
            let text = surroundings.tried(progress);
            assert!(text.contains(expected), "{text}");
        }
    }
}
