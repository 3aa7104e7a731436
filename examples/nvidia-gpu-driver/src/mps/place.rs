//! Where the things of one daemon are.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{
    PATIENCE, PIPES, STEP, Views,
    daemon::Daemon,
    processes::{self, MARK, Process},
};
use crate::{cdi::libraries, program};

const PIPE_FOLDER: &str = "pipe";
const SHM_FOLDER: &str = "shm";
/// At most half of the node's memory, as in the Go driver; what is used counts for the container that uses it.
const SHM_OPTIONS: &str = "mode=1777,size=50%";
/// Where control groups are, of version 2.
const GROUPS: &str = "/sys/fs/cgroup";
const LOGS: &str = "log";
const LIBRARIES: &str = "lib";
const READY: &str = "ready";

/// Files and folders of a daemon. The book, which says what it is, is there before all else, and goes last.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) book: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) pipes: PathBuf,
    /// The `/dev/shm` of the daemon and its containers: a file system of its own below the driver's folder, where no other user
    /// can put anything first.
    pub(crate) shm: PathBuf,
}

/// What a book says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Book {
    #[serde(flatten)]
    pub(crate) daemon: Daemon,
    /// By which its processes are known.
    pub(crate) secret: String,
}

impl Place {
    /// `book` names all of it.
    pub(crate) fn new(book: PathBuf) -> Self {
        let folder = book.with_extension("");
        Self { shm: folder.join(SHM_FOLDER), pipes: folder.join(PIPE_FOLDER), folder, book }
    }

    /// What the book says. One that is damaged is of no claim.
    pub(crate) fn read(&self) -> Book {
        fs::read(&self.book).ok().and_then(|book| serde_json::from_slice(&book).ok()).unwrap_or_default()
    }

    /// Writes the book, at once or not at all, with a new secret unless it has one. Only root may read it.
    pub(crate) fn write(&self, daemon: &Daemon) -> io::Result<Book> {
        let secret = match self.read().secret {
            none if none.is_empty() => processes::new_secret()?,
            secret => secret,
        };
        let (new, book) = (self.book.with_extension("new"), Book { daemon: daemon.clone(), secret });
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&book)?)?;
        fs::rename(new, &self.book)?;
        Ok(book)
    }

    /// Makes what a daemon has to find. `library` is NVML of this version of the driver.
    pub(crate) fn make(&self, library: &Path, version: &str, views: Views) -> io::Result<()> {
        let (logs, links) = (self.folder.join(LOGS), self.folder.join(LIBRARIES));
        for folder in [&self.pipes, &logs, &links, &self.shm] {
            fs::create_dir_all(folder)?;
        }
        match views {
            Views::Own if !self.is_mounted()? => mount(
                Some("nvidia-mps"),
                &self.shm,
                Some("tmpfs"),
                MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
                Some(SHM_OPTIONS),
            )?,
            Views::Own => {}
            Views::Shared => fs::set_permissions(&self.shm, Permissions::from_mode(0o1777))?,
        }
        // What a daemon that was killed has left goes; its folders stay, as containers have them.
        for left in fs::read_dir(&self.pipes)?.chain(fs::read_dir(&links)?).chain(fs::read_dir(&self.folder)?)
        {
            let left = left?.path();
            if !left.is_dir() {
                fs::remove_file(left)?;
            }
        }
        for (link, library) in library.parent().into_iter().flat_map(|folder| libraries(folder, version)) {
            symlink(library, links.join(link.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }

    /// Removes all, the book last.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if self.shm.exists() && self.is_mounted()? {
            umount2(&self.shm, MntFlags::MNT_DETACH)?;
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        // There is none where this process may not make groups, and an empty one costs nothing.
        let _ = fs::remove_dir(self.group());
        fs::remove_file(&self.book)
    }

    /// The control group of the daemon, outside those of containers.
    pub(crate) fn group(&self) -> PathBuf {
        let id = self.folder.file_name().unwrap_or_default().to_string_lossy();
        Path::new(GROUPS).join(format!("nvidia-mps-{id}"))
    }

    /// Whether the shared memory is a file system of its own.
    fn is_mounted(&self) -> io::Result<bool> {
        Ok(fs::metadata(&self.shm)?.dev() != fs::metadata(&self.folder)?.dev())
    }

    /// Runs NVIDIA's program for this daemon, with its folder seen at `seen_at`. It gets the libraries of the driver and no
    /// others from there: with those its C library would be another one than its loader expects.
    pub(crate) async fn run(
        &self,
        mut command: Command,
        program: &Path,
        seen_at: &Path,
        input: &str,
    ) -> anyhow::Result<()> {
        command.env(MARK, self.read().secret).env(PIPES, seen_at.join(PIPE_FOLDER));
        command
            .env("CUDA_MPS_LOG_DIRECTORY", seen_at.join(LOGS))
            .env("LD_LIBRARY_PATH", seen_at.join(LIBRARIES));
        // The server is found beside it.
        let beside = program.parent().map(Path::display).context("a program without a folder")?;
        command.env("PATH", format!("{beside}:/usr/bin:/bin"));
        program::run(command, input, PATIENCE).await
    }

    /// Tells the daemon something.
    pub(crate) async fn tell(&self, program: &Path, text: &str) -> anyhow::Result<()> {
        self.run(Command::new(program), program, &self.folder, &format!("{text}\n")).await
    }

    /// The socket by which a daemon is told.
    pub(crate) fn control(&self) -> PathBuf {
        self.pipes.join("control")
    }

    /// The daemon has been told all.
    pub(crate) fn set_ready(&self) -> io::Result<()> {
        fs::write(self.folder.join(READY), "")
    }

    /// Whether a daemon that has been told all is among these processes.
    pub(crate) fn runs(&self, processes: &[Process]) -> bool {
        let secret = self.read().secret;
        let is_ours = |process: &Process| process.is_daemon && process.secret == secret;
        !secret.is_empty() && self.folder.join(READY).exists() && processes.iter().any(is_ours)
    }

    /// Waits for the end of all processes.
    pub(crate) async fn ends(&self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.processes().await? {
                none if none.is_empty() => return Ok(()),
                left if Instant::now() >= end => bail!("MPS does not end: {left:?}"),
                _ => sleep(STEP).await,
            }
        }
    }

    /// Kills what is left, and waits for its end.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        for process in self.processes().await? {
            // Who cannot be killed is told below.
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        self.ends().await
    }

    /// Those that have its secret.
    pub(crate) async fn processes(&self) -> anyhow::Result<Vec<Process>> {
        let (mut processes, secret) = (processes::all().await?, self.read().secret);
        // A damaged book has no secret, and nothing is known of its processes.
        processes.retain(|process| !secret.is_empty() && process.secret == secret);
        Ok(processes)
    }
}
