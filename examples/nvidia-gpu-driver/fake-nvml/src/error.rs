//! What can be wrong with a folder, its files or an installation.

use std::io;
use std::path::{Path, PathBuf};

/// Why a machine could not be read, written or installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where in it.
        reason: String,
    },
    /// The machine contradicts itself.
    #[error("the machine cannot be: {0}")]
    Machine(String),
    /// A program has the driver or the GPU open.
    #[error("{0} is refused: a program has the driver or the GPU open")]
    InUse(String),
    /// The shared library has not been built.
    #[error("the stand-in library is at none of {0:?}; build it with `cargo build -p fake-nvml`")]
    NotBuilt(Vec<PathBuf>),
    /// A function to be left out is not in the library.
    #[error("the library has no function {0:?} that could be left out")]
    NoSuchFunction(String),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn malformed(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Malformed { path, reason: error.to_string() }
    }
}
