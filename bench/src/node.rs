//! The node that the drivers run on: its names and folders, its kubelet.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

/// The only node.
pub(crate) const NAME: &str = "node-1";
/// What a driver may do, and no more.
pub(crate) const DRIVER_KUBECONFIG: &str = "/run/cluster/conf/driver.kubeconfig";
/// Where drivers keep their data and their DRA sockets.
pub(crate) const PLUGINS: &str = "/var/lib/kubelet/plugins";
/// Where the kubelet looks for registration sockets.
const PLUGIN_REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
/// In memory, as on most hosts, but not the folder that containerd watches: it reads all files at each change, which
/// takes the processor from whatever is measured.
pub(crate) const CDI: &str = "/run/bench-cdi";
const KUBELET_LOG: &str = "/run/cluster/log/kubelet.log";

/// How often a file is looked at.
const POLL: Duration = Duration::from_millis(1);

/// Gives the drivers' data a place on the disk: the cluster's own is in memory, where a sync costs nothing.
pub(crate) async fn put_plugins_on_disk(folder: &Path) -> Result<()> {
    for folder in [folder, Path::new(PLUGINS), Path::new(CDI)] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let mut mount = Command::new("mount");
    mount.arg("--bind").arg(folder).arg(PLUGINS);
    run(mount).await.map(drop)
}

/// Restarts the kubelet.
pub(crate) async fn restart_kubelet() -> Result<()> {
    let mut component = Command::new("component");
    component.args(["restart", "kubelet"]);
    run(component).await.map(drop)
}

/// Sends a signal to a process that was started here and not waited for yet, so that the pid is its own.
pub(crate) async fn signal(signal: &str, pid: u32) -> Result<()> {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}")).arg(pid.to_string());
    run(kill).await.map(drop)
}

/// Runs a command to its end; gives what it prints.
pub(crate) async fn run(mut command: Command) -> Result<String> {
    let output = command.output().await.with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}): {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Removes what drivers have left.
pub(crate) fn remove_leftovers() -> Result<()> {
    for folder in [PLUGINS, PLUGIN_REGISTRY, CDI] {
        for entry in fs::read_dir(folder).with_context(|| format!("reading {folder}"))? {
            let path = entry?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The DRA socket of a running driver.
pub(crate) fn dra_socket(driver: &str) -> Result<PathBuf> {
    let folder = Path::new(PLUGINS).join(driver);
    let is_socket = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("dra") && name.ends_with(".sock")
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        found.extend(Some(entry?.path()).filter(is_socket));
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([socket]) => Ok(socket),
        Err(found) => {
            bail!("one DRA socket should be in {}, there are {}: {found:?}", folder.display(), found.len())
        }
    }
}

/// What the kubelet says from now on.
pub(crate) struct KubeletLog {
    file: File,
    text: String,
}

impl KubeletLog {
    pub(crate) fn from_now() -> Result<Self> {
        let mut file = File::open(KUBELET_LOG).with_context(|| format!("opening {KUBELET_LOG}"))?;
        file.seek(SeekFrom::End(0)).with_context(|| format!("reading {KUBELET_LOG}"))?;
        Ok(Self { file, text: String::new() })
    }

    /// Waits until it has registered a driver (it says so at verbosity 4, which it has here); gives when that was seen.
    pub(crate) async fn wait_registered(&mut self, driver: &str, within: Duration) -> Result<Instant> {
        let end = Instant::now() + within;
        let name = format!("driverName=\"{driver}\"");
        loop {
            self.read_on()?;
            let registered = |line: &str| line.contains("\"Registered DRA plugin\"") && line.contains(&name);
            if self.text.lines().any(registered) {
                return Ok(Instant::now());
            }
            // Whole lines have been looked at.
            self.text.drain(..self.text.rfind('\n').map_or(0, |end| end + 1));
            ensure!(Instant::now() < end, "the kubelet has not registered {driver} in {within:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    fn read_on(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        match self.file.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => read.map(drop).with_context(|| format!("reading {KUBELET_LOG}"))?,
        }
        self.text.push_str(&String::from_utf8_lossy(&bytes));
        Ok(())
    }
}
