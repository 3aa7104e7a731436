//! A driver process under test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
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

/// What a process holds of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) threads: usize,
    /// How many descriptors there are of each kind: `UNIX socket`, `socket` (to the API server), `anon_inode`, or a path.
    pub(crate) descriptors: BTreeMap<String, usize>,
}

impl Holdings {
    /// Whether this is no more than `before`. Idle connections to the API server do not count up to `idle`: the client
    /// keeps one for each request that was ever under way beside others, until the server ends it after 90 s.
    pub(crate) fn fits_in(&self, before: &Self, idle: usize) -> bool {
        let fits = |(kind, count): (&String, &usize)| {
            let more = if kind == CONNECTION { idle } else { 0 };
            *count <= before.descriptors.get(kind).copied().unwrap_or_default() + more
        };
        self.threads <= before.threads && self.descriptors.iter().all(fits)
    }
}

/// A socket that is not in the file system, and what becomes of it once it is known to be one that is.
const CONNECTION: &str = "socket";
const UNIX: &str = "UNIX socket";

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

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
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

    /// Its threads and descriptors.
    pub(crate) fn holdings(&self) -> Result<Holdings> {
        let entries = |of: &str| {
            let path = format!("/proc/{}/{of}", self.pid);
            let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            entries.with_context(|| format!("reading {path}"))
        };
        let path = format!("/proc/{}/net/unix", self.pid);
        let unix = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let unix = unix_inodes(&unix);
        let mut descriptors = BTreeMap::new();
        for descriptor in entries("fd")? {
            match fs::read_link(descriptor.path()) {
                Ok(target) => *descriptors.entry(kind_of(&target.to_string_lossy(), &unix)).or_default() += 1,
                // It was closed since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).context("reading a descriptor"),
            }
        }
        Ok(Holdings { threads: entries("task")?.len(), descriptors })
    }
}

/// `socket` for `socket:[4711]`, unless that is one of `unix`; a path as it is.
fn kind_of(target: &str, unix: &BTreeSet<&str>) -> String {
    let kind = if target.starts_with('/') { None } else { target.split_once(':') };
    match kind {
        None => target.to_owned(),
        Some((CONNECTION, inode)) if unix.contains(inode.trim_matches(['[', ']'])) => UNIX.to_owned(),
        Some((kind, _)) => kind.to_owned(),
    }
}

/// The inodes in `/proc/net/unix`: the seventh column.
fn unix_inodes(table: &str) -> BTreeSet<&str> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6)).collect()
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
    fn descriptors_are_counted_by_kind_and_files_by_path() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a.sock\n\
                     0000000000000000: 00000003 00000000 00000000 0001 03 4712\n";
        let unix = unix_inodes(table);
        assert_eq!(unix, BTreeSet::from(["4711", "4712"]));
        for (target, kind) in [
            ("socket:[4711]", "UNIX socket"),
            ("socket:[9]", "socket"),
            ("anon_inode:[eventpoll]", "anon_inode"),
            ("/a:b/serialize.lock", "/a:b/serialize.lock"),
        ] {
            assert_eq!(kind_of(target, &unix), kind);
        }
    }

    #[test]
    fn holdings_fit_if_nothing_but_idle_connections_was_added() {
        let holdings = |threads, descriptors: &[(&str, usize)]| Holdings {
            threads,
            descriptors: descriptors.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        };
        let before = holdings(5, &[("socket", 2), ("UNIX socket", 4)]);
        assert!(holdings(4, &[("socket", 5), ("UNIX socket", 4)]).fits_in(&before, 3));
        assert!(!holdings(4, &[("socket", 6), ("UNIX socket", 4)]).fits_in(&before, 3));
        assert!(!holdings(4, &[("socket", 2), ("UNIX socket", 5)]).fits_in(&before, 3));
        assert!(!holdings(4, &[("socket", 2), ("/a", 1)]).fits_in(&before, 3));
        assert!(!holdings(6, &[("socket", 2), ("UNIX socket", 4)]).fits_in(&before, 3));
    }

    #[test]
    fn memory_is_read_from_the_named_field() {
        let status = "Name:\tdriver\nVmHWM:\t   12345 kB\nVmRSS:\t    9876 kB\n";
        assert_eq!(kibibytes(status, "VmRSS:"), Some(9876));
        assert_eq!(kibibytes(status, "VmHWM:"), Some(12345));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }
}
