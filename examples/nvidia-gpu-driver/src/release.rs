//! NVML in use keeps a GPU from being reset, unbound or switched to another MIG mode, and the kernel's module from being unloaded. So
//! an operator can ask a running driver to close it: a file asks, and another one says that it is closed.
//!
//!     nvidia-gpu-driver gpus release    # waits until it is
//!     nvidia-smi --gpu-reset -i 3
//!     nvidia-gpu-driver gpus resume

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use dra_kubeletplugin::{DriverName, state::StateLocation};

/// How often the command looks whether the driver has closed NVML.
const STEP: Duration = Duration::from_millis(100);

/// The two files, in the driver's folder.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    request: PathBuf,
    done: PathBuf,
}

impl Release {
    pub(crate) fn new(data: &Path) -> Self {
        Self { request: data.join("release-nvml"), done: data.join("nvml-is-released") }
    }

    /// Whether NVML is to stay closed.
    pub(crate) fn is_requested(&self) -> bool {
        self.request.exists()
    }

    /// Says whether this process has NVML closed.
    pub(crate) fn set_done(&self, done: bool) -> io::Result<()> {
        if done { fs::write(&self.done, "") } else { remove(&self.done) }
    }

    /// Asks, and waits until it is done.
    fn request(&self, patience: Duration) -> anyhow::Result<()> {
        let folder = self.request.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        remove(&self.done).with_context(|| format!("removing {}", self.done.display()))?;
        fs::write(&self.request, "").with_context(|| format!("writing {}", self.request.display()))?;
        let end = Instant::now() + patience;
        while !self.done.exists() {
            if Instant::now() >= end {
                bail!(
                    "the driver has not closed NVML in {patience:?}; does it run on this node with this kubelet root? It will \
                     when it can; `gpus resume` takes the request back"
                );
            }
            thread::sleep(STEP);
        }
        Ok(())
    }

    fn resume(&self) -> anyhow::Result<()> {
        [&self.request, &self.done]
            .into_iter()
            .try_for_each(|file| remove(file).with_context(|| format!("removing {}", file.display())))
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// For operators, on a node where the driver runs.
#[derive(Debug, Parser)]
#[command(
    name = "nvidia-gpu-driver gpus",
    about = "Releases the GPUs of a running driver for a reset, and takes them back"
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Root folder of the kubelet.
    #[arg(
        long,
        env = "KUBELET_ROOT",
        value_name = "FOLDER",
        default_value = "/var/lib/kubelet",
        global = true
    )]
    kubelet_root: PathBuf,
    /// Name of the driver.
    #[arg(long, env = "DRIVER_NAME", value_name = "NAME", default_value = "gpu.nvidia.com", global = true)]
    driver_name: DriverName,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The driver closes NVML and waits for no events; its devices are tainted, and nothing is prepared that needs them.
    Release {
        /// How long to wait for it, in seconds.
        #[arg(long, default_value_t = 60)]
        wait: u64,
    },
    /// The driver opens NVML again.
    Resume,
}

/// Serves `nvidia-gpu-driver gpus …`, if that is what was started.
pub(crate) fn command(arguments: impl IntoIterator<Item = OsString>) -> Option<anyhow::Result<()>> {
    let mut arguments = arguments.into_iter().skip(1).peekable();
    arguments.peek().filter(|argument| *argument == "gpus")?;
    let arguments = Arguments::parse_from(arguments);
    let mut location = StateLocation::new(arguments.driver_name);
    location.kubelet_root = arguments.kubelet_root;
    let release = Release::new(&location.data());
    Some(match arguments.what {
        What::Release { wait } => release.request(Duration::from_secs(wait)),
        What::Resume => release.resume(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_no_driver_answers_is_an_error_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let release = Release::new(folder.path());
        let error = release.request(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("has not closed NVML") && release.is_requested(), "{error}");
        release.set_done(true).unwrap();
        release.resume().unwrap();
        assert!(!release.is_requested() && fs::read_dir(folder.path()).unwrap().next().is_none());
        release.set_done(false).unwrap();
    }
}
