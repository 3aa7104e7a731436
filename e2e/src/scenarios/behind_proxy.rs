//! A driver whose sockets the kubelet sees only through proxies. It has a kubelet root of its own, where no kubelet looks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::gpu;
use crate::{
    context::Context,
    driver::Driver,
    eventually::eventually,
    node,
    socket_proxy::{Rule, SocketProxy},
};

/// Short, since a socket's path has at most 107 bytes.
const ROOT: &str = "/run/behind-proxy";
const STARTS_WITHIN: Duration = Duration::from_secs(15);

/// The driver with its proxies.
pub(crate) struct BehindProxy {
    pub(crate) driver: Driver,
    /// In front of the registration socket.
    pub(crate) registration: SocketProxy,
    name: String,
    /// Where the kubelet is told that the DRA socket is.
    announced: PathBuf,
    /// Where it is.
    moved: PathBuf,
}

impl BehindProxy {
    /// Starts the mock driver under this name, and a proxy for its registration. Nothing listens yet where the kubelet looks
    /// for the DRA socket: see [`serve`](Self::serve).
    pub(crate) async fn start(cx: &Context, name: &str, registration: Rule) -> Result<Self> {
        let root = Path::new(ROOT);
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {ROOT}"));
            }
            _ => {}
        }
        for folder in ["plugins", "plugins_registry"] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("making {folder} in {ROOT}"))?;
        }
        let driver = cx.start_driver("mock-gpu-driver", &["--driver-name", name, "--kubelet-root", ROOT])?;
        let registers = socket_in(root.join("plugins_registry"), &format!("@{name}-reg.sock")).await?;
        let announced = socket_in(root.join("plugins").join(name), ".sock").await?;
        // No name that the driver takes for one of its own.
        let moved = announced.with_file_name("moved");
        fs::rename(&announced, &moved).with_context(|| format!("moving {}", announced.display()))?;
        let seen = Path::new(node::PLUGIN_REGISTRY).join(registers.file_name().unwrap_or_default());
        let registration = SocketProxy::start(&seen, &registers, registration)?;
        Ok(Self { driver, registration, name: name.to_owned(), announced, moved })
    }

    /// Starts a proxy where the kubelet looks for the DRA socket.
    pub(crate) fn serve(&self) -> Result<SocketProxy> {
        SocketProxy::start(&self.announced, &self.moved, Rule::Forward)
    }

    /// Waits until the kubelet has had its answers to `GetInfo` and then to `NotifyRegistrationStatus`.
    pub(crate) async fn wait_told(&self, within: Duration) -> Result<()> {
        let told = || async { Ok((self.registration.answered(2) > 0).then_some(())) };
        eventually("both calls of the registration answered", within, told).await
    }

    /// Waits until no claim has left a file.
    pub(crate) async fn nothing_left(&self) -> Result<()> {
        let root = Path::new(ROOT);
        eventually("no CDI file and no record", Duration::from_secs(5), || async {
            let files = gpu::files_of(root, &self.name)?;
            Ok((files.records.is_empty() && files.cdi.is_empty()).then_some(()))
        })
        .await
    }
}

/// Waits for the only socket in a folder whose name ends like this.
async fn socket_in(folder: PathBuf, suffix: &str) -> Result<PathBuf> {
    let what = format!("a socket …{suffix} in {}", folder.display());
    eventually(&what, STARTS_WITHIN, || async {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.with_context(|| format!("reading {}", folder.display()))?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(suffix) && !name.starts_with('.') {
                return Ok(Some(path));
            }
        }
        Ok(None)
    })
    .await
}
