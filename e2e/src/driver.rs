//! A driver process under test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
    time::timeout,
};

use crate::eventually::eventually;

/// A running (or ended) driver whose output goes to a file. Clones are the same process; it is killed with the last.
#[derive(Clone)]
pub(crate) struct Driver {
    pid: i32,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) now: u64,
    /// The most that was ever resident.
    pub(crate) peak: u64,
}

impl Driver {
    /// Starts `binary`; what it prints is written to `log`.
    pub(crate) fn start(
        binary: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        log: PathBuf,
    ) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new(binary);
        command
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {}", binary.display()))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).context("a driver without a pid")?;
        Ok(Self { pid, child: Arc::new(Mutex::new(child)), log })
    }

    /// What it has printed so far.
    pub(crate) fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until it has printed `text`.
    pub(crate) async fn wait_log(&self, text: &str, within: Duration) -> Result<()> {
        let what = format!("{text:?} in {}", self.log.display());
        eventually(&what, within, || async { Ok(self.log()?.contains(text).then_some(())) }).await
    }

    /// How often a call (`NodePrepareResources` or `NodeUnprepareResources`) has been answered for the claims whose names
    /// start with `claim`, by what the driver has printed.
    pub(crate) fn answers(&self, method: &str, claim: &str) -> Result<usize> {
        Ok(answers(&self.log()?, method, claim))
    }

    /// Where that is kept.
    pub(crate) fn log_path(&self) -> &Path {
        &self.log
    }

    pub(crate) async fn is_running(&self) -> Result<bool> {
        Ok(self.child.lock().await.try_wait()?.is_none())
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    pub(crate) async fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM).await?;
        self.wait(within).await
    }

    /// Ends it without warning (SIGKILL).
    pub(crate) async fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL).await?;
        self.wait(Duration::from_secs(10)).await.map(drop)
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn wait(&self, within: Duration) -> Result<ExitStatus> {
        let mut child = self.child.lock().await;
        match timeout(within, child.wait()).await {
            Ok(status) => status.with_context(|| format!("waiting for driver {}", self.pid)),
            Err(_) => bail!("driver {} has not ended after {} s", self.pid, within.as_secs()),
        }
    }

    /// Sends a signal, to this process only: nothing is sent once its end is known.
    pub(crate) async fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child.lock().await;
        if child.try_wait()?.is_none() {
            signal::kill(Pid::from_raw(self.pid), signal)
                .with_context(|| format!("{signal} to driver {}", self.pid))?;
        }
        Ok(())
    }

    /// How much memory it takes.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let bytes = |field| {
            kibibytes(&status, field).map(|kib| kib * 1024).with_context(|| format!("{field} in {path}"))
        };
        Ok(Memory { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}

fn answers(log: &str, method: &str, claim: &str) -> usize {
    let (method, claim) = (format!("method=\"{method}\""), format!(" claim=\"{claim}"));
    let answered = |line: &&str| line.contains(": claim done") || line.contains(": claim failed");
    log.lines().filter(answered).filter(|line| line.contains(&method) && line.contains(&claim)).count()
}

fn kibibytes(status: &str, field: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_method_and_claim() {
        let line = |method: &str, claim: &str, end: &str| {
            format!("INFO call{{method=\"{method}\"}}:claim{{namespace=\"n\" claim=\"{claim}\"}}: x: {end}\n")
        };
        let log = [
            line("NodePrepareResources", "a-1", "claim done"),
            line("NodePrepareResources", "a-1", "something else"),
            line("NodePrepareResources", "a-2", "claim failed error=x"),
            line("NodePrepareResources", "b", "claim done"),
            line("NodeUnprepareResources", "a-1", "claim done"),
        ]
        .concat();
        assert_eq!(answers(&log, "NodePrepareResources", "a-"), 2);
        assert_eq!(answers(&log, "NodeUnprepareResources", ""), 1);
    }

    #[test]
    fn memory_is_read_from_the_named_field() {
        let status = "Name:\tdriver\nVmHWM:\t   12345 kB\nVmRSS:\t    9876 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(9876));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(12345));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }
}
