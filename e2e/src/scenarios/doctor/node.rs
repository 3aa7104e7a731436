//! Failures on the node.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{COULD_NOT_LOOK, Doctor, second::Containerd};
use crate::{
    context::Context,
    eventually::eventually,
    node,
    scenarios::{
        gpu::{self, DRIVER},
        registration::registration_socket,
    },
};

const SOON: Duration = Duration::from_secs(10);
const RESTARTED_WITHIN: Duration = Duration::from_secs(60);

/// Sockets that are missing, dead, or cannot be dialled, and a driver below another root.
pub(super) async fn sockets(cx: &Context) -> Result<()> {
    let arguments = ["node", "--driver", DRIVER];
    Doctor::run(cx, &arguments).await?.names("sockets", "has no registration socket in")?;

    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    Doctor::run(cx, &arguments).await?.is_silent()?;
    let registry = Path::new(node::PLUGIN_REGISTRY);
    let socket = registration_socket()?;
    let link = |name: &str| {
        let path = registry.join(name);
        fs::hard_link(&socket, &path).with_context(|| format!("linking {}", path.display())).map(|()| path)
    };
    let plain = link(&format!("{DRIVER}-reg.sock"))?;
    Doctor::run(cx, &arguments).await?.names("sockets", "with the socket's path as authority")?;
    fs::remove_file(plain)?;
    let second = link(&format!("second@{DRIVER}-reg.sock"))?;
    Doctor::run(cx, &arguments).await?.names("registration", "the same endpoint")?;
    fs::remove_file(second)?;
    fs::remove_file(gpu::our_socket()?)?;
    Doctor::run(cx, &arguments).await?.names("sockets", "the socket of its service, does not exist")?;
    driver.kill().await?;
    Doctor::run(cx, &arguments).await?.names("sockets", "nobody listens: a driver has died")?;

    let other = cx.scratch.join("kubelet");
    fs::create_dir_all(other.join("plugins_registry"))?;
    let root = other.display().to_string();
    // Not on the scratch folder's own path: that may be too long for a socket.
    let short = Path::new("/run/other-kubelet");
    if !short.exists() {
        std::os::unix::fs::symlink(&other, short).context("linking another kubelet root")?;
    }
    cx.start_driver("mock-gpu-driver", &["--kubelet-root", "/run/other-kubelet"])?;
    let listens = || async {
        let said = Doctor::run(cx, &["node"]).await?;
        Ok(said.says("kubelet-root", "a driver listens below /run/other-kubelet").ok())
    };
    eventually("a driver below another root is found", SOON, listens).await?;
    let said = Doctor::run(cx, &["node", "--kubelet-root", &root]).await?;
    said.names("kubelet-root", "its root is /var/lib/kubelet, the driver's is")?;
    fs::remove_file(short).context("removing the link to another kubelet root")
}

/// A kubelet that is away.
pub(super) async fn registration(cx: &Context) -> Result<()> {
    gpu::start_registered(cx, &["--node-events"]).await?;
    node::component("stop", "kubelet").await?;
    let said = Doctor::run(cx, &["node", "--driver", DRIVER]).await;
    node::component("start", "kubelet").await?;
    let said = said?;
    said.says("registration", "no connection to its socket")?;
    said.says("kubelet-root", "there is no kubelet in /proc")?;
    ensure!(said.code == COULD_NOT_LOOK, "exit code {}: the kubelet was not seen", said.code);
    let healthy = || async { Ok(Doctor::run(cx, &["node", "--driver", DRIVER]).await?.is_silent().ok()) };
    eventually("silent again", RESTARTED_WITHIN, healthy).await
}

/// A containerd of its own that reads another folder, and a driver that writes to another one. That CDI is off cannot be
/// brought about: from 2.4 on containerd always has it on, and takes `enable_cdi = false` without a word.
pub(super) async fn runtime(cx: &Context) -> Result<()> {
    gpu::start_registered(cx, &[]).await?;
    let folders = r#"cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]"#;
    let containerd = Containerd::start(cx, folders, r#"cdi_spec_dirs = ["/etc/cdi"]"#).await?;
    let said = Doctor::run(cx, &["node", "--runtime", &containerd.socket()]).await;
    containerd.end().await?;
    said?.names("cdi", "does not read /var/run/cdi")?;
    Doctor::run(cx, &["node", "--cdi", "/run/other-cdi"]).await?.names("cdi", "does not read /run/other-cdi")
}
