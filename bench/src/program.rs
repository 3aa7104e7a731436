//! A driver process, and what the kernel says of it.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};

use crate::node;

/// How long a driver may take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// A running driver; it is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
}

/// What a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Resident memory, in bytes.
    pub(crate) memory: u64,
    pub(crate) threads: u64,
}

impl Program {
    /// Starts a driver with a driver's rights; what it prints goes to `log`.
    pub(crate) fn start(program: &Path, arguments: &[&str], log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KUBECONFIG", node::DRIVER_KUBECONFIG)
            .env("NODE_NAME", node::NAME)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let pid = child.id().context("a driver without a pid")?;
        Ok(Self { child, pid, started })
    }

    pub(crate) fn footprint(&self) -> Result<Footprint> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        footprint(&status).with_context(|| format!("{path} has no VmRSS or Threads"))
    }

    /// Asks it to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<()> {
        node::signal("TERM", self.pid).await?;
        match tokio::time::timeout(STOPS_WITHIN, self.child.wait()).await {
            Ok(status) => status.map(drop).with_context(|| format!("waiting for driver {}", self.pid)),
            Err(_) => bail!("driver {} has not ended after {} s", self.pid, STOPS_WITHIN.as_secs()),
        }
    }
}

fn footprint(status: &str) -> Option<Footprint> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some(Footprint { memory: field("VmRSS:")? * 1024, threads: field("Threads:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_threads_are_read_from_the_status() {
        let status = "Name:\tdriver\nVmHWM:\t   12345 kB\nVmRSS:\t    9876 kB\nThreads:\t7\n";
        assert_eq!(footprint(status), Some(Footprint { memory: 9876 * 1024, threads: 7 }));
        assert_eq!(footprint("VmRSS:\t 1 kB\n"), None);
    }
}
