//! Dials sockets of plugins, as the kubelet does.

use std::{
    io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use prost::Message;
use tokio::{fs, net::UnixStream};

use crate::grpc::{self, CallError};
use crate::snapshot::{Answer, PluginInfo, RegistrationSocket};

/// The kubelet waits that long for the answer.
const WITHIN: Duration = Duration::from_secs(1);
/// HTTP/2: what is sent is not what the protocol allows.
const PROTOCOL_ERROR: u32 = 1;

/// `pluginregistration.PluginInfo` of the kubelet's registration API.
#[derive(Clone, PartialEq, Eq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    endpoint: String,
    #[prost(string, repeated, tag = "4")]
    supported_versions: Vec<String>,
}

/// The sockets in the folder that the kubelet watches, each dialled.
///
/// # Errors
/// If the folder cannot be read.
pub(super) async fn registry(folder: &Path) -> Result<Vec<RegistrationSocket>, String> {
    let paths = sockets_in(folder).await.map_err(|error| format!("reading {}: {error}", folder.display()))?;
    let dialled = paths.into_iter().map(|path| async move {
        let answer = info(&path).await;
        RegistrationSocket { path, answer, service: Answer::Missing }
    });
    Ok(futures::future::join_all(dialled).await)
}

/// Dials the services of the plugins that have answered. Their connections are looked at before: this makes some more.
pub(super) async fn dial_services(sockets: &mut [RegistrationSocket]) {
    for socket in sockets {
        if let Answer::Good(info) = &socket.answer {
            socket.service = connect(&info.endpoint).await;
        }
    }
}

/// The kubelet looks into folders too, and not at names that begin with a dot.
async fn sockets_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(&folder).await?;
        while let Some(entry) = entries.next_entry().await? {
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            match entry.file_type().await {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_socket() => found.push(entry.path()),
                // It is no socket, or gone by now.
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

async fn info(path: &Path) -> Answer<PluginInfo> {
    let authority = grpc::authority_of(path);
    let called = grpc::call(path, &authority, "/pluginregistration.Registration/GetInfo", &[], WITHIN).await;
    let answer = match called {
        Ok(message) => Info::decode(message.as_slice()).map_err(|error| error.to_string()),
        Err(CallError::Reset(PROTOCOL_ERROR)) => return Answer::CannotBeDialled,
        Err(CallError::TimedOut(_)) => return Answer::Silent,
        Err(CallError::Io(error)) => return of_error(&error),
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(info) => Answer::Good(PluginInfo {
            kind: info.kind,
            name: info.name,
            endpoint: info.endpoint.into(),
            versions: info.supported_versions,
        }),
        Err(why) => Answer::Failed(why),
    }
}

async fn connect(path: &Path) -> Answer<()> {
    match tokio::time::timeout(WITHIN, UnixStream::connect(path)).await {
        Ok(Ok(_)) => Answer::Good(()),
        Ok(Err(error)) => of_error(&error),
        Err(_) => Answer::Silent,
    }
}

fn of_error<T>(error: &io::Error) -> Answer<T> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Answer::Refused,
        io::ErrorKind::NotFound => Answer::Missing,
        _ => Answer::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn dead_and_silent_sockets_are_told_apart_and_dot_names_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("dead@d-reg.sock")).unwrap());
        drop(UnixListener::bind(at(".dot@d-reg.sock")).unwrap());
        std::fs::write(at("file@d-reg.sock"), "").unwrap();
        let _silent = UnixListener::bind(at("silent@d-reg.sock")).unwrap();
        let seen = registry(folder.path()).await.unwrap();
        let answers: Vec<_> = seen.iter().map(|socket| socket.answer.clone()).collect();
        assert_eq!(answers, [Answer::Refused, Answer::Silent]);
        assert!(registry(&at("none")).await.is_err());
    }
}
