//! One thread for all calls of NVML: they block, some for seconds, and must not hold up anything else.
//!
//! The library is opened when it is needed and there, and again after the kernel's driver was replaced. It stays open only while
//! something waits for events, and not where an operator has asked for the GPUs.

use std::{sync::Arc, thread};

use nvidia_nvml::{Library, NvmlError, OpenError};
use tokio::sync::{mpsc, oneshot};

use crate::{
    driver_root::{DriverRoot, NotFound},
    release::Release,
};

/// The way to the thread. Clones lead to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    jobs: mpsc::UnboundedSender<Job>,
}

/// Why nothing could be done with the hardware.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HardwareError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    #[error(
        "NVML is closed, as an operator has asked for the GPUs; `nvidia-gpu-driver gpus resume` on the node opens it again"
    )]
    Released,
    #[error("the thread for NVML has ended, as a call of it has crashed; restart the driver")]
    Gone,
}

impl HardwareError {
    /// Whether there is no NVML here, or not the GPU that was asked for.
    pub(crate) fn is_without_hardware(&self) -> bool {
        match self {
            Self::NotFound(_) | Self::Open(_) => true,
            Self::Nvml(error) => error.is_gpu_lost() || error.is_not_found(),
            Self::Released | Self::Gone => false,
        }
    }

    /// Whether an operator has asked for the GPUs.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self, Self::Released)
    }
}

type Job = Box<dyn FnOnce(&mut Session) + Send>;

struct Session {
    root: DriverRoot,
    release: Release,
    /// Whether it stays open when nothing is left to do.
    stays_open: bool,
    library: Option<Arc<Library>>,
    /// How often the kernel's driver was found to be unloaded or replaced.
    replaced: u64,
}

impl Hardware {
    /// Starts the thread; it ends with the last clone.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(root: DriverRoot, release: Release, stays_open: bool) -> std::io::Result<Self> {
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            let mut session = Session { root, release, stays_open, library: None, replaced: 0 };
            while let Some(job) = queue.blocking_recv() {
                job(&mut session);
                if !session.stays_open && queue.is_empty() {
                    session.library = None;
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// Whether the thread has ended, as a call has crashed: nothing can be done any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Runs this on the thread.
    ///
    /// # Errors
    /// There is no NVML here now, or a call failed.
    pub(crate) async fn run<T, E>(
        &self,
        work: impl FnOnce(&Arc<Library>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<HardwareError> + Send + 'static,
    {
        self.run_and_count(work).await.0
    }

    /// The same, and how often the kernel's driver was found to be unloaded or replaced so far.
    pub(crate) async fn run_and_count<T, E>(
        &self,
        work: impl FnOnce(&Arc<Library>) -> Result<T, E> + Send + 'static,
    ) -> (Result<T, E>, Option<u64>)
    where
        T: Send + 'static,
        E: From<HardwareError> + Send + 'static,
    {
        let (answer, outcome) = oneshot::channel();
        let job: Job = Box::new(move |session| {
            let outcome = session.library().map_err(E::from).and_then(|library| work(&library));
            // The caller may have gone.
            let _ = answer.send((outcome, Some(session.replaced)));
        });
        if self.jobs.send(job).is_err() {
            return (Err(HardwareError::Gone.into()), None);
        }
        outcome.await.unwrap_or_else(|_| (Err(HardwareError::Gone.into()), None))
    }
}

impl Session {
    fn library(&mut self) -> Result<Arc<Library>, HardwareError> {
        if self.release.is_requested() {
            if self.library.take().is_some() {
                tracing::info!("NVML is closed: an operator has asked for the GPUs");
            }
            return Err(HardwareError::Released);
        }
        if let Some(library) = &self.library {
            match library.device_count() {
                Err(error) if error.is_library_stale() => {
                    tracing::info!(%error, "the driver was replaced: NVML is opened again");
                    self.library = None;
                    self.replaced += 1;
                }
                _ => return Ok(Arc::clone(library)),
            }
        }
        let path = self.root.find_library()?;
        let opened = Library::open(&path).inspect_err(|error| {
            let is_unloaded = matches!(error, OpenError::Start { source, .. } if source.is_library_stale());
            self.replaced += u64::from(is_unloaded);
        });
        let library = Arc::new(opened?);
        if self.stays_open {
            tracing::info!(path = %path.display(), "NVML is open");
        }
        self.library = Some(Arc::clone(&library));
        Ok(library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_library_each_try_says_which_paths_were_tried_and_looks_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = DriverRoot { here: folder.path().into(), on_host: folder.path().into(), library: None };
        let hardware = Hardware::start(root, Release::new(folder.path()), true).unwrap();
        let count = || hardware.run(|library| Ok::<_, HardwareError>(library.device_count()?));
        let error = count().await.unwrap_err().to_string();
        assert!(error.contains("libnvidia-ml.so.1 (not there)"), "{error}");
        std::fs::write(folder.path().join("libnvidia-ml.so.1"), "not a library").unwrap();
        let error = count().await.unwrap_err().to_string();
        assert!(error.contains("loading") && error.contains("libnvidia-ml.so.1"), "{error}");
    }
}
