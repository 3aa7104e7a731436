//! MPS: processes of a claim use its devices at once, through a control daemon that the claim has for itself.
//!
//! A daemon outlives this process, so files tell of it. Whoever finds them can end the daemon, or start it again.

mod daemon;
mod own_view;
mod place;
mod processes;

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use dra_kubeletplugin::{ClaimUid, ContainerEdits, Mount, state::StateLocation};
use nvidia_nvml::ComputeMode;
use tokio::{
    process::Command,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use crate::{
    driver_root::DriverRoot,
    hardware::{Hardware, HardwareError},
    records::Records,
};
use place::Place;

pub(crate) use daemon::{Daemon, daemons};
pub(crate) use own_view::become_program;

const PROGRAM: &str = "nvidia-cuda-mps-control";
/// For a daemon to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);
const SHM: &str = "/dev/shm";
/// The variable that says where the pipes are, and where they are in containers.
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const IN_CONTAINER: &str = "/tmp/nvidia-mps";
/// Bytes in the longest path of a socket.
const LONGEST: usize = 107;

/// What daemons see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Views {
    /// Their claim's shared memory and their own folder in place of the node's.
    Own,
    /// What all see, in tests without the right to mount.
    Shared,
}

/// The control daemons of a node.
#[derive(Clone, Debug)]
pub(crate) struct Mps {
    folder: PathBuf,
    kubelet_root: PathBuf,
    views: Views,
    root: DriverRoot,
    hardware: Hardware,
}

impl Mps {
    pub(crate) fn new(state: &StateLocation, views: Views, root: DriverRoot, hardware: Hardware) -> Self {
        let (folder, kubelet_root) = (state.data().join("mps"), state.kubelet_root.clone());
        Self { folder, kubelet_root, views, root, hardware }
    }

    /// The processes of all daemons, known by their secrets.
    ///
    /// # Errors
    /// They cannot be looked for.
    pub(crate) async fn pids(&self) -> anyhow::Result<BTreeSet<u32>> {
        let mut pids = BTreeSet::new();
        for (place, _) in self.books()? {
            pids.extend(
                place.processes().await?.iter().filter_map(|process| u32::try_from(process.pid).ok()),
            );
        }
        Ok(pids)
    }

    /// What containers get that use the daemon.
    pub(crate) fn edits(&self, daemon: &Daemon) -> ContainerEdits {
        let place = self.place(daemon);
        let mount = |folder, seen_at| Mount::new(folder, seen_at).options(["rw", "nosuid", "nodev", "bind"]);
        let pipes = mount(place.pipes, IN_CONTAINER);
        ContainerEdits::new().env(PIPES, IN_CONTAINER).mount(pipes).mount(mount(place.shm, SHM))
    }

    /// Starts the daemon, unless it runs, and tells it its limits.
    ///
    /// # Errors
    /// The program is not there, fails, or does not answer; or the GPUs cannot be kept for it.
    pub(crate) async fn start(&self, daemon: &Daemon) -> anyhow::Result<()> {
        let place = self.place(daemon);
        let longest = place.pipes.join("control_privileged");
        ensure!(
            longest.as_os_str().len() <= LONGEST,
            "MPS: {} has more than the {LONGEST} bytes of a socket's path; use a shorter kubelet root",
            longest.display()
        );
        let _turn = self.turn().await?;
        place.write(daemon).with_context(|| format!("writing {}", place.book.display()))?;
        if place.runs(&processes::all().await?) { Ok(()) } else { self.launch(&place, daemon).await }
    }

    /// Ends the daemons of a claim, and removes what is left of them.
    ///
    /// # Errors
    /// One of them does not end, or something cannot be removed.
    pub(crate) async fn stop(&self, claim: &ClaimUid) -> anyhow::Result<()> {
        let is_of_claim = |(_, daemon): &(Place, Daemon)| daemon.claim == claim.as_str();
        if !self.books()?.iter().any(is_of_claim) {
            return Ok(());
        }
        let _turn = self.turn().await?;
        for (place, daemon) in self.books()?.iter().filter(|book| is_of_claim(book)) {
            self.end(place, daemon).await?;
        }
        Ok(())
    }

    /// Ends what no claim has any more, and starts daemons again that have ended by themselves, as long as this driver runs.
    pub(crate) async fn follow(self, records: Records, interval: Duration) {
        let mut swept = false;
        loop {
            swept = swept || is_fine(self.sweep(&records).await);
            is_fine(self.look_after().await);
            sleep(interval).await;
        }
    }

    async fn sweep(&self, records: &Records) -> anyhow::Result<()> {
        if self.books()?.is_empty() {
            return Ok(());
        }
        // What is prepared meanwhile waits: its record is there before its daemon.
        let _turn = self.turn().await?;
        let records = records.read().await?;
        let has_claim = |daemon: &Daemon| records.iter().any(|record| record.uid.as_str() == daemon.claim);
        let mut outcome = Ok(());
        for (place, daemon) in self.books()?.iter().filter(|(_, daemon)| !has_claim(daemon)) {
            tracing::warn!(?daemon, "MPS that no claim has any more");
            outcome = outcome.and(self.end(place, daemon).await);
        }
        outcome
    }

    async fn look_after(&self) -> anyhow::Result<()> {
        let books = self.books()?;
        let processes = if books.is_empty() { Vec::new() } else { processes::all().await? };
        let mut outcome = Ok(());
        for (place, daemon) in books.iter().filter(|(place, _)| !place.runs(&processes)) {
            outcome = outcome.and(self.start_again(place, daemon).await);
        }
        outcome
    }

    async fn start_again(&self, place: &Place, daemon: &Daemon) -> anyhow::Result<()> {
        let _turn = self.turn().await?;
        // Its claim may have ended meanwhile, or another instance of this driver has seen it too.
        if !place.book.exists() || place.runs(&processes::all().await?) {
            return Ok(());
        }
        tracing::warn!(?daemon, "a control daemon of MPS has ended, and is started again");
        self.launch(place, daemon).await
    }

    async fn launch(&self, place: &Place, daemon: &Daemon) -> anyhow::Result<()> {
        let (program, library) = (self.root.find_program(PROGRAM).context("MPS")?, self.root.find_library()?);
        // One that was not told its limits.
        place.kill().await?;
        self.set_compute_mode(daemon.gpus.clone(), ComputeMode::ExclusiveProcess).await?;
        let version = self.hardware.run(|library| Ok::<_, HardwareError>(library.driver_version()?)).await?;
        let to_make = place.clone();
        let views = self.views;
        let made = spawn_blocking(move || to_make.make(&library, &version, views)).await?;
        made.with_context(|| format!("making folders beside {}", place.book.display()))?;
        let (mut command, seen_at) = match self.views {
            Views::Own => {
                let folders = [(&*place.shm, Path::new(SHM)), (&*place.folder, &*self.kubelet_root)];
                (own_view::command(folders, &place.group(), &program), &self.kubelet_root)
            }
            Views::Shared => (Command::new(&program), &place.folder),
        };
        command.arg("-d").env("CUDA_VISIBLE_DEVICES", daemon.devices.join(","));
        place.run(command, &program, seen_at, "").await?;
        for command in &daemon.commands {
            place.tell(&program, command).await?;
        }
        place.set_ready().with_context(|| format!("writing into {}", place.folder.display()))
    }

    async fn end(&self, place: &Place, daemon: &Daemon) -> anyhow::Result<()> {
        if place.control().exists() {
            let quit = async {
                place.tell(&self.root.find_program(PROGRAM)?, "quit").await?;
                place.ends().await
            };
            if let Err(error) = quit.await {
                tracing::warn!(error = format!("{error:#}"), "a control daemon of MPS is killed");
            }
        }
        place.kill().await?;
        let others = self.books()?.into_iter().filter(|(other, _)| other.book != place.book);
        let others: BTreeSet<String> = others.flat_map(|(_, other)| other.gpus).collect();
        self.set_compute_mode(&daemon.gpus - &others, ComputeMode::Default).await?;
        let to_remove = place.clone();
        let removed = spawn_blocking(move || to_remove.remove()).await?;
        removed.with_context(|| format!("removing {} and what is beside it", place.book.display()))
    }

    /// Need not be set back on a GPU that is gone, or has no such mode.
    async fn set_compute_mode(&self, gpus: BTreeSet<String>, mode: ComputeMode) -> anyhow::Result<()> {
        for gpu in gpus {
            let uuid = gpu.clone();
            let set = self.hardware.run(move |library| {
                Ok::<_, HardwareError>(library.device_by_uuid(&uuid)?.set_compute_mode(mode)?)
            });
            match set.await {
                Err(error) if mode == ComputeMode::Default && error.is_without_hardware() => {
                    tracing::warn!(gpu, %error, "the compute mode of a GPU is not set back");
                }
                Err(HardwareError::Nvml(error))
                    if mode == ComputeMode::Default && error.is_not_supported() => {}
                set => set.with_context(|| format!("setting the compute mode of GPU {gpu}"))?,
            }
        }
        Ok(())
    }

    /// Only one changes daemons at a time, in all instances of this driver.
    async fn turn(&self) -> anyhow::Result<File> {
        let path = self.folder.join("lock");
        let file = fs::create_dir_all(&self.folder).and_then(|()| File::create(&path));
        let file = file.with_context(|| format!("making {}", path.display()))?;
        let end = Instant::now() + 3 * PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(STEP).await,
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("MPS: another claim has locked {}", path.display()));
                }
            }
        }
    }

    fn books(&self) -> anyhow::Result<Vec<(Place, Daemon)>> {
        let read = || {
            let paths = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.path()));
            paths.collect::<io::Result<Vec<PathBuf>>>()
        };
        let paths = match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            paths => paths.with_context(|| format!("reading {}", self.folder.display()))?,
        };
        let books = paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "json"));
        Ok(books.map(Place::new).map(|place| (place.clone(), place.read().daemon)).collect())
    }

    fn place(&self, daemon: &Daemon) -> Place {
        Place::new(self.folder.join(daemon.id()).with_extension("json"))
    }
}

fn is_fine(outcome: anyhow::Result<()>) -> bool {
    outcome
        .inspect_err(|error| tracing::error!("looking after the control daemons of MPS: {error:#}"))
        .is_ok()
}
