//! Failures on the node.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use dra_doctor::FindingKind;
use tokio::net::UnixListener;

use super::{Doctor, fake_plugin::FakePlugin, second::Containerd};
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
    let says = async |kind: FindingKind, words: &str| Doctor::run(cx, &arguments).await?.names(kind, words);
    says(FindingKind::NoRegistrationSocket, "has no registration socket in").await?;

    let (driver, _) = gpu::start_registered(cx, &[]).await?;
    Doctor::run(cx, &arguments).await?.is_silent()?;
    let registry = Path::new(node::PLUGIN_REGISTRY);
    let socket = registration_socket()?;
    let link = |name: &str| {
        let path = registry.join(name);
        fs::hard_link(&socket, &path).with_context(|| format!("linking {}", path.display())).map(|()| path)
    };
    let plain = link(&format!("{DRIVER}-reg.sock"))?;
    says(FindingKind::UndialableSocket, "with the socket's path as authority").await?;
    fs::remove_file(plain)?;
    let second = link(&format!("second@{DRIVER}-reg.sock"))?;
    says(FindingKind::SameEndpoint, "the same endpoint").await?;
    fs::remove_file(second)?;
    fs::remove_file(gpu::our_socket()?)?;
    says(FindingKind::ServiceUnreachable, "the socket of its service, does not exist").await?;
    driver.kill().await?;
    says(FindingKind::DeadRegistrationSocket, "nobody listens: a driver has died").await?;

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
        Ok(said.says(FindingKind::DriverBelowOtherRoot, "a driver listens below /run/other-kubelet").ok())
    };
    eventually("a driver below another root is found", SOON, listens).await?;
    let said = Doctor::run(cx, &["node", "--kubelet-root", &root]).await?;
    said.names(FindingKind::OtherKubeletRoot, "its root is /var/lib/kubelet, the driver's is")?;
    fs::remove_file(short).context("removing the link to another kubelet root")
}

/// Plugins that say what no kubelet takes, or nothing. No driver runs meanwhile.
pub(super) async fn unacceptable(cx: &Context) -> Result<()> {
    let arguments = ["node", "--driver", DRIVER];
    let relative = FakePlugin::start("dra.sock", &["v1.DRAPlugin"])?;
    let said = Doctor::run(cx, &arguments).await?;
    said.names(FindingKind::UnacceptablePlugin, "\"dra.sock\" as its socket, which is no absolute path")?;
    drop(relative);
    let _strange = FakePlugin::start("/run/nobody.sock", &["v9.DRAPlugin"])?;
    let said = Doctor::run(cx, &arguments).await?;
    said.names(
        FindingKind::UnacceptablePlugin,
        "it offers [\"v9.DRAPlugin\"], of which the kubelet knows none",
    )?;
    said.names(FindingKind::NothingPublished, "no ResourceSlice that could be for this node")?;

    let silent = Path::new(node::PLUGIN_REGISTRY).join(format!("silent@{DRIVER}-reg.sock"));
    let _listener = UnixListener::bind(&silent).context("listening without an answer")?;
    let said = Doctor::run(cx, &arguments).await?;
    said.names(FindingKind::NoAnswer, "it does not answer as a plugin: no answer in time")
}

/// A kubelet that is away.
pub(super) async fn registration(cx: &Context) -> Result<()> {
    gpu::start_registered(cx, &["--node-events"]).await?;
    node::component("stop", "kubelet").await?;
    let said = Doctor::run(cx, &["node", "--driver", DRIVER]).await;
    node::component("start", "kubelet").await?;
    let said = said?;
    said.says(FindingKind::NotRegistered, "no connection to its socket")?;
    said.could_not("kubelet-root", "there is no kubelet in /proc")?;
    let healthy = || async { Ok(Doctor::run(cx, &["node", "--driver", DRIVER]).await?.is_silent().ok()) };
    eventually("silent again", RESTARTED_WITHIN, healthy).await
}

/// A containerd of its own that reads another folder, and a driver that writes to another one.
pub(super) async fn runtime(cx: &Context) -> Result<()> {
    gpu::start_registered(cx, &[]).await?;
    let folders = r#"cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]"#;
    let containerd = Containerd::start(cx, folders, r#"cdi_spec_dirs = ["/etc/cdi"]"#).await?;
    let said = Doctor::run(cx, &["node", "--runtime", &containerd.socket()]).await;
    containerd.end().await?;
    said?.names(FindingKind::CdiFolderNotRead, "does not read /var/run/cdi")?;
    let said = Doctor::run(cx, &["node", "--cdi", "/run/other-cdi"]).await?;
    said.names(FindingKind::CdiFolderNotRead, "does not read /run/other-cdi")
}
