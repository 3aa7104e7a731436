//! Processes of MPS, as `/proc` shows them. They are known by a secret that they were started with: a number may be another
//! process's by now, and a name or a path anyone can take.

use std::{fs, io};

use anyhow::Context as _;
use tokio::task::spawn_blocking;

/// The variable by which a daemon and what it starts are known.
pub(crate) const MARK: &str = "NVIDIA_GPU_DRIVER_MPS";

/// A control daemon, a server that it has started, or a program that talks to it: a process with a mark, true or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) secret: String,
    pub(crate) is_daemon: bool,
}

/// All of the node that have a mark.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) async fn all() -> anyhow::Result<Vec<Process>> {
    let read = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // One that ends meanwhile is none.
        let is_daemon = is_daemon(&fs::read(entry.path().join("cmdline")).ok()?)?;
        match fs::read(entry.path().join("environ")) {
            // A driver that may not look must not treat it as another one's.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(Err(error)),
            environment => Some(Ok(Process { pid, secret: secret(&environment.ok()?)?, is_daemon })),
        }
    };
    let all = move || fs::read_dir("/proc")?.flatten().filter_map(read).collect::<io::Result<Vec<_>>>();
    spawn_blocking(all).await?.context("looking for processes of MPS in /proc (CAP_SYS_PTRACE)")
}

/// A secret for a new daemon: 128 random bits.
pub(crate) fn new_secret() -> io::Result<String> {
    use io::Read as _;
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes).to_string())
}

/// None for what is no program of MPS. It may be a script, behind its interpreter.
fn is_daemon(arguments: &[u8]) -> Option<bool> {
    let mut arguments = arguments.split(|byte| *byte == 0);
    let is_mps = |path: &[u8]| {
        path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"nvidia-cuda-mps-"))
    };
    arguments.find(|argument| is_mps(argument))?;
    Some(arguments.any(|argument| argument == b"-d"))
}

fn secret(environment: &[u8]) -> Option<String> {
    let value =
        |variable: &[u8]| Some(variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?.to_owned());
    String::from_utf8(environment.split(|byte| *byte == 0).find_map(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_program_and_its_secret() {
        let table: [(&[u8], Option<bool>); 6] = [
            (b"/usr/bin/nvidia-cuda-mps-control\0-d\0", Some(true)),
            (b"/bin/sh\0/root/usr/bin/nvidia-cuda-mps-control\0-d\0", Some(true)),
            (b"nvidia-cuda-mps-server\0", Some(false)),
            (b"nvidia-cuda-mps-control\0", Some(false)),
            (b"/bin/bash\0-d\0", None),
            (b"", None),
        ];
        for (arguments, expected) in table {
            assert_eq!(is_daemon(arguments), expected, "{}", String::from_utf8_lossy(arguments));
        }
        assert_eq!(secret(b"A=1\0NVIDIA_GPU_DRIVER_MPS=17\0B=2\0").as_deref(), Some("17"));
        assert_eq!(secret(b"OLD_NVIDIA_GPU_DRIVER_MPS=17\0NVIDIA_GPU_DRIVER_MPSES=17\0"), None);
        assert_ne!(new_secret().unwrap(), new_secret().unwrap());
    }
}
