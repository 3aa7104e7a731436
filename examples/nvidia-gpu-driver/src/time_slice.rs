//! How long a process has a GPU for itself. NVML cannot set it; `nvidia-smi` can, by an interface of its own.

use std::{path::PathBuf, time::Duration};

use tokio::process::Command;

use crate::{config::Interval, program};

/// It takes seconds while the driver wakes a GPU up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, and the NVML that it has to use.
#[derive(Clone, Debug)]
pub(crate) struct NvidiaSmi {
    pub(crate) program: PathBuf,
    pub(crate) library: PathBuf,
}

impl NvidiaSmi {
    /// Sets the time slice of a GPU.
    ///
    /// # Errors
    /// The program cannot be run or fails.
    pub(crate) async fn set_time_slice(&self, uuid: &str, interval: Interval) -> anyhow::Result<()> {
        let interval = interval.number().to_string();
        let arguments = ["compute-policy", "-i", uuid, "--set-timeslice", &interval];
        let mut command = Command::new(&self.program);
        command.args(arguments).env("LD_PRELOAD", &self.library);
        program::run(command, "", PATIENCE).await
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn program(folder: &tempfile::TempDir, text: &str) -> NvidiaSmi {
        let program = folder.path().join("nvidia-smi");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        NvidiaSmi { program, library: PathBuf::new() }
    }

    #[tokio::test]
    async fn the_program_is_run_as_the_go_driver_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let smi = program(&folder, r#"echo "$@" > "${0%/*}/ran""#);
        smi.set_time_slice("GPU-1", Interval::Medium).await.unwrap();
        let ran = fs::read_to_string(folder.path().join("ran")).unwrap();
        assert_eq!(ran.trim(), "compute-policy -i GPU-1 --set-timeslice 2");
    }

    #[tokio::test]
    async fn a_failure_says_what_the_program_said() {
        let folder = tempfile::tempdir().unwrap();
        let smi = program(&folder, "echo 'No devices were found'; exit 6");
        let error = smi.set_time_slice("GPU-1", Interval::Short).await.unwrap_err().to_string();
        assert!(error.contains("No devices were found") && error.contains("GPU-1"), "{error}");
        let nowhere = NvidiaSmi { program: "/nowhere/nvidia-smi".into(), library: PathBuf::new() };
        assert!(nowhere.set_time_slice("GPU-1", Interval::Short).await.is_err());
    }
}
