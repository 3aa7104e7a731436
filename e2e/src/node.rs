//! The node that the scenarios run on: its names and paths, its components.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// The only node.
pub(crate) const NAME: &str = "node-1";
/// The kubelet's root folder.
pub(crate) const KUBELET: &str = "/var/lib/kubelet";
/// Where drivers keep their data and their DRA sockets.
pub(crate) const PLUGINS: &str = "/var/lib/kubelet/plugins";
/// Where the kubelet looks for registration sockets.
pub(crate) const PLUGIN_REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
/// The CDI folder that drivers write to and containerd reads.
pub(crate) const CDI: &str = "/var/run/cdi";

/// What a driver finds in its environment.
pub(crate) fn driver_environment() -> [(&'static str, &'static str); 2] {
    [("KUBECONFIG", "/run/cluster/conf/driver.kubeconfig"), ("NODE_NAME", NAME)]
}

/// Runs `component ACTION NAME`: `start`, `stop`, `kill` or `restart` of `kubelet`, `apiserver` and so on.
pub(crate) async fn component(action: &str, name: &str) -> Result<()> {
    let output =
        Command::new("component").args([action, name]).output().await.context("running `component`")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "component {action} {name}: {errors}");
    Ok(())
}

/// Ends all containers at once, as a power cut does.
pub(crate) async fn end_containers() -> Result<()> {
    let listed = ctr(&["tasks", "list", "--quiet"]).await?;
    for container in listed.lines() {
        // Killing the first process of a pod ends the others of its pid namespace too: they may be gone by now.
        if let Err(error) = ctr(&["tasks", "kill", "--signal", "SIGKILL", container]).await {
            println!("    note: {error:#}");
        }
    }
    Ok(())
}

/// Ends one container at once. `id` is that of a container's status, such as `containerd://0123…`.
pub(crate) async fn end_container(id: &str) -> Result<()> {
    let id =
        id.strip_prefix("containerd://").with_context(|| format!("{id} is no container of containerd"))?;
    ctr(&["tasks", "kill", "--signal", "SIGKILL", id]).await.map(drop)
}

/// Runs `ctr` in the namespace of the kubelet's containers and images; gives what it prints.
pub(crate) async fn ctr(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ctr").args(["--namespace", "k8s.io"]).args(arguments).output().await;
    let output = output.context("running `ctr`")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ctr {arguments:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The log of a component, from which only what is written later is read.
pub(crate) struct ComponentLog {
    path: PathBuf,
    from: usize,
}

impl ComponentLog {
    /// From now on.
    pub(crate) fn of(component: &str) -> Result<Self> {
        let path = PathBuf::from(format!("/run/cluster/log/{component}.log"));
        let from = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.len();
        Ok(Self { path, from: usize::try_from(from).context("a log too long to read")? })
    }

    /// What was written since.
    pub(crate) fn read(&self) -> Result<String> {
        let bytes = fs::read(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        Ok(String::from_utf8_lossy(bytes.get(self.from..).unwrap_or_default()).into_owned())
    }

    /// Whether the kubelet has registered a driver since.
    pub(crate) fn says_registered(&self, driver: &str) -> Result<bool> {
        Ok(self.registrations(driver)? > 0)
    }

    /// How many instances of a driver the kubelet has registered since (it says so at verbosity 4, which it has here).
    pub(crate) fn registrations(&self, driver: &str) -> Result<usize> {
        let name = format!("driverName=\"{driver}\"");
        let registered = |line: &&str| line.contains("\"Registered DRA plugin\"") && line.contains(&name);
        Ok(self.read()?.lines().filter(registered).count())
    }

    /// How many calls of drivers the kubelet has begun since and not ended (said at verbosity 4 too):
    /// `NodePrepareResource` or `NodeUnprepareResource`.
    pub(crate) fn open_calls(&self, method: &str) -> Result<usize> {
        let text = self.read()?;
        let count = |what: &str| text.matches(&format!("\"{what} {method}")).count();
        Ok(count("Calling").saturating_sub(count("Done calling")))
    }
}
