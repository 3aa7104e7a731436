//! A machine in a temporary folder, and the library loaded from it as programs load NVIDIA's.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::expect_used, reason = "a test ends where its machine cannot be made")]

use fake_nvml::{Folder, Machine};
use nvml_wrapper::Nvml;
use tempfile::TempDir;

/// Keeps the folder as long as the library is loaded.
pub(crate) struct Loaded {
    pub(crate) nvml: Nvml,
    pub(crate) folder: Folder,
    pub(crate) directory: TempDir,
}

/// A copy of the library with this machine, initialized.
pub(crate) fn load(machine: &Machine) -> Loaded {
    load_without(machine, &[])
}

pub(crate) fn load_without(machine: &Machine, functions: &[&str]) -> Loaded {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path().join("machine"), machine).expect("a folder");
    let library = folder.install_without(directory.path().join("lib"), functions).expect("is built");
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().expect("initializes");
    Loaded { nvml, folder, directory }
}
