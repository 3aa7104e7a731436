//! The driver of the demo: this program, run again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use dra_testkit::TempNode;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tokio::process::{Child, Command};

/// A running driver; it is killed if it is not stopped.
pub(crate) struct DriverProcess {
    child: Child,
    log: PathBuf,
}

impl DriverProcess {
    /// Runs `mock-gpu-driver run` with all paths below the node's folder.
    pub(crate) fn start(
        node: &TempNode,
        kubeconfig: &Path,
        driver: &str,
        node_name: &str,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let log = node.root().join("driver.log");
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new(&program);
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.arg("--kubelet-root").arg(node.kubelet()).arg("--cdi-root").arg(node.cdi());
        command.args(["--node-name", node_name, "--driver-name", driver]);
        // What the caller has set for a driver of its own is not for this one.
        for variable in [
            "DESCRIBE_DEVICES",
            "NUM_DEVICES",
            "DEVICE_PROFILE",
            "GPU_PARTITIONS",
            "GPU_ALLOW_MULTIPLE_ALLOCATIONS",
            "BINDING_CONDITIONS",
            "HEALTH_POD",
            "INVENTORY",
            "POD_UID",
            "PREPARE_DELAY",
            "SLOW_DEVICES",
            "UNPREPARE_DELAY",
            "FAIL_PREPARE",
            "BOOT_ID",
            "LOG_FORMAT",
        ] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// Asks it to end and waits until it has, with exit code 0.
    pub(crate) async fn stop(&mut self, within: Duration) -> anyhow::Result<()> {
        let pid = self.child.id().context("the driver has ended by itself")?;
        let pid = Pid::from_raw(i32::try_from(pid).context("a pid that is none")?);
        signal::kill(pid, Signal::SIGTERM).context("stopping the driver")?;
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        let status = ended.context("the driver does not stop")?.context("waiting for the driver")?;
        ensure!(status.success(), "the driver ended with {status}");
        Ok(())
    }

    /// What it has printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_else(|error| format!("{}: {error}", self.log.display()))
    }
}

/// How many claim records the driver has on disk.
pub(crate) fn records(node: &TempNode, driver: &str) -> anyhow::Result<usize> {
    let claims = node.plugins().join(driver).join("claims");
    let mut count = 0;
    for boot in read(&claims)? {
        count += read(&boot)?.len();
    }
    Ok(count)
}

fn read(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let entries = entries.with_context(|| format!("reading {}", folder.display()))?;
            entries.map(|entry| Ok(entry?.path())).collect()
        }
    }
}
