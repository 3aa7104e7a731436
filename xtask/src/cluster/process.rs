//! A process that we started, told apart from a later one with the same pid by its start time.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    errno::Errno,
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// One process, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
    /// Clock ticks since boot.
    started: u64,
}

/// What `/proc/PID/stat` says.
struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(crate) fn with_pid(pid: i32) -> Option<Self> {
        Some(Self { pid, started: stat(pid)?.started })
    }

    /// A child of it, if it has one.
    pub(crate) fn child(self) -> Option<Self> {
        let pids =
            fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let child = pids.into_iter().find(|pid| stat(*pid).is_some_and(|stat| stat.parent == self.pid))?;
        Self::with_pid(child)
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Ends it without warning and waits until it is gone.
    pub(crate) fn kill(self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.is_alive() {
            match signal::kill(Pid::from_raw(self.pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("ending process {}", self.pid)),
            }
            if Instant::now() > deadline {
                bail!("process {} is still there {} s after SIGKILL", self.pid, patience.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// For a file; `from_text` reads it.
    pub(crate) fn to_text(self) -> String {
        format!("{} {}", self.pid, self.started)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, and may hold any character.
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<_> = fields.split(' ').collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_parenthesis_does_not_shift_the_fields() {
        let text = "7 (a) R (b) S 3 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 0\n";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.started), ('S', 3, 4711));
    }

    #[test]
    fn a_process_is_known_until_it_ends_and_not_by_its_pid_alone() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::with_pid(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.is_alive());
        assert_eq!(Process::from_text(&process.to_text()), Some(process));
        let namesake = Process { started: process.started + 1, ..process };
        assert!(!namesake.is_alive());
        namesake.kill(Duration::from_secs(1)).unwrap();
        assert!(process.is_alive());
        process.kill(Duration::from_secs(10)).unwrap();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }
}
