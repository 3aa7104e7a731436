//! Where NVIDIA's driver is installed, as seen from here and as seen from the host.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

const LIBRARY: &str = "libnvidia-ml.so.1";
const LIBRARY_FOLDERS: [&str; 8] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "lib",
];
const PROGRAM_FOLDERS: [&str; 5] = ["opt/bin", "usr/bin", "usr/sbin", "bin", "sbin"];

/// The root of NVIDIA's driver. On a plain node it is `/`; an operator may have it in a folder, and a container sees the
/// host's folders below another one.
#[derive(Clone, Debug)]
pub(crate) struct DriverRoot {
    /// As this process sees it.
    pub(crate) here: PathBuf,
    /// As the container runtime sees it.
    pub(crate) on_host: PathBuf,
    /// The library, if it is at an unusual place.
    pub(crate) library: Option<PathBuf>,
}

/// No NVML was found.
#[derive(Debug, thiserror::Error)]
pub(crate) struct NotFound {
    what: &'static str,
    tried: Vec<(PathBuf, String)>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}; tried", self.what)?;
        for (place, (path, why)) in self.tried.iter().enumerate() {
            write!(f, "{} {} ({why})", if place == 0 { "" } else { "," }, path.display())?;
        }
        Ok(())
    }
}

impl DriverRoot {
    /// The file of NVML.
    ///
    /// # Errors
    /// It is at none of the usual places, or not where it was said to be. Each path is told.
    pub(crate) fn find_library(&self) -> Result<PathBuf, NotFound> {
        if let Some(library) = &self.library {
            return first_file("NVML library", [library.clone()]);
        }
        let usual = LIBRARY_FOLDERS.iter().map(|folder| self.here.join(folder).join(LIBRARY));
        first_file("NVML library", usual.chain([self.here.join(LIBRARY)]))
    }

    /// Folders that may have libraries of the driver, that of NVML first, each once: some systems have one under two names.
    pub(crate) fn library_folders(&self, library: &Path) -> Vec<PathBuf> {
        let usual = LIBRARY_FOLDERS.iter().map(|folder| self.here.join(folder));
        let (mut folders, mut seen) = (Vec::new(), Vec::new());
        for folder in library.parent().map(Path::to_owned).into_iter().chain(usual) {
            if let Ok(real) = std::fs::canonicalize(&folder)
                && !seen.contains(&real)
            {
                seen.push(real);
                folders.push(folder);
            }
        }
        folders
    }

    /// A program of the driver, such as `nvidia-smi`.
    ///
    /// # Errors
    /// It is at none of the usual places. Each path is told.
    pub(crate) fn find_program(&self, name: &str) -> Result<PathBuf, NotFound> {
        first_file(
            "program of the driver",
            PROGRAM_FOLDERS.iter().map(|folder| self.here.join(folder).join(name)),
        )
    }

    /// Where the container runtime finds what is at this path here; none if it is not below the root.
    pub(crate) fn on_host(&self, path: &Path) -> Option<PathBuf> {
        Some(self.on_host.join(path.strip_prefix(&self.here).ok()?))
    }

    /// Where a container has to see what is at this path here: at its place below the root.
    pub(crate) fn in_container(&self, path: &Path) -> Option<PathBuf> {
        Some(Path::new("/").join(path.strip_prefix(&self.here).ok()?))
    }
}

fn first_file(what: &'static str, paths: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf, NotFound> {
    let mut tried = Vec::new();
    for path in paths {
        let why = match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => return Ok(path),
            Ok(_) => "not a file".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "not there".to_owned(),
            Err(error) => error.to_string(),
        };
        tried.push((path, why));
    }
    Err(NotFound { what, tried })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root() -> (tempfile::TempDir, DriverRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = DriverRoot {
            here: folder.path().to_owned(),
            on_host: "/run/nvidia/driver".into(),
            library: None,
        };
        (folder, root)
    }

    #[test]
    fn the_library_is_found_in_the_usual_folders_and_each_path_that_was_tried_is_told() {
        let (folder, root) = root();
        fs::create_dir_all(folder.path().join("usr/lib64").join(LIBRARY)).unwrap();
        let error = root.find_library().unwrap_err().to_string();
        assert!(error.contains("usr/lib64/libnvidia-ml.so.1 (not a file)"), "{error}");
        assert_eq!(error.matches("(not there)").count(), LIBRARY_FOLDERS.len(), "{error}");
        let library = folder.path().join("usr/lib/x86_64-linux-gnu").join(LIBRARY);
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(&library, "").unwrap();
        assert_eq!(root.find_library().unwrap(), library);
    }

    #[test]
    fn a_path_that_was_given_is_the_only_one_that_counts() {
        let (folder, mut root) = root();
        fs::write(folder.path().join(LIBRARY), "").unwrap();
        root.library = Some("/nowhere/nvml.so".into());
        let error = root.find_library().unwrap_err().to_string();
        assert_eq!(error, "no NVML library; tried /nowhere/nvml.so (not there)");
        root.library = Some(folder.path().to_owned());
        let error = root.find_library().unwrap_err().to_string();
        assert!(error.ends_with(&format!("tried {} (not a file)", folder.path().display())), "{error}");
    }

    #[test]
    fn paths_are_translated_for_the_host_and_for_containers() {
        let (folder, root) = root();
        let here = folder.path().join("usr/bin/nvidia-smi");
        assert_eq!(root.on_host(&here).unwrap(), Path::new("/run/nvidia/driver/usr/bin/nvidia-smi"));
        assert_eq!(root.in_container(&here).unwrap(), Path::new("/usr/bin/nvidia-smi"));
        assert_eq!(root.on_host(Path::new("/elsewhere")), None);
    }
}
