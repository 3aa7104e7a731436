//! Where the things of one daemon are.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{
    PATIENCE, PIPES, STEP,
    daemon::Daemon,
    processes::{self, MARK, Process},
};
use crate::{cdi::libraries, program};

const PIPE_FOLDER: &str = "pipe";
const LOGS: &str = "log";
const LIBRARIES: &str = "lib";
const READY: &str = "ready";

/// Files and folders of a daemon. The book, which says what it is, is there before all else, and goes last.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) book: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) pipes: PathBuf,
    pub(crate) shm: PathBuf,
}

impl Place {
    /// `book` names all but the folder of shared memory, which is in `shm`.
    pub(crate) fn new(book: PathBuf, shm: &Path) -> Self {
        let folder = book.with_extension("");
        let id = folder.file_name().unwrap_or_default().to_string_lossy();
        Self { shm: shm.join(format!("nvidia-mps-{id}")), pipes: folder.join(PIPE_FOLDER), folder, book }
    }

    /// What the book says. One that is damaged is of no claim.
    pub(crate) fn read(&self) -> Daemon {
        fs::read(&self.book).ok().and_then(|book| serde_json::from_slice(&book).ok()).unwrap_or_default()
    }

    /// Writes the book, at once or not at all.
    pub(crate) fn write(&self, daemon: &Daemon) -> io::Result<()> {
        let new = self.book.with_extension("new");
        fs::write(&new, serde_json::to_vec(daemon)?)?;
        fs::rename(new, &self.book)
    }

    /// Makes what a daemon has to find. `library` is NVML of this version of the driver.
    pub(crate) fn make(&self, library: &Path, version: &str) -> io::Result<()> {
        let (logs, links) = (self.folder.join(LOGS), self.folder.join(LIBRARIES));
        for folder in [&self.pipes, &logs, &links, &self.shm] {
            fs::create_dir_all(folder)?;
        }
        // Containers may run as anybody.
        fs::set_permissions(&self.shm, Permissions::from_mode(0o1777))?;
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
        for folder in [&self.shm, &self.folder].into_iter().filter(|folder| folder.exists()) {
            fs::remove_dir_all(folder)?;
        }
        fs::remove_file(&self.book)
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
        command.env(MARK, &self.folder).env(PIPES, seen_at.join(PIPE_FOLDER));
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
        let is_ours = |process: &Process| process.is_daemon && process.folder == self.folder;
        self.folder.join(READY).exists() && processes.iter().any(is_ours)
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

    async fn processes(&self) -> anyhow::Result<Vec<Process>> {
        let mut processes = processes::all().await?;
        processes.retain(|process| process.folder == self.folder);
        Ok(processes)
    }
}
