//! Libraries and programs of the driver that containers need.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{ContainerEdits, Hook, HookName, Mount};

use crate::driver_root::DriverRoot;

/// What a user of the driver may want to start.
const PROGRAMS: [&str; 5] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
];

/// What was found of one version of the driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DriverFiles {
    /// Files, by the paths that containers see them at.
    mounts: Vec<(PathBuf, PathBuf)>,
    /// Folders with libraries in them, as containers see them.
    folders: BTreeSet<PathBuf>,
    /// Program of the toolkit that keeps a container's list of libraries up to date, if it is installed.
    hook: Option<PathBuf>,
}

impl DriverFiles {
    /// Looks for the files of this version. `library` is where NVML is: the others are beside it.
    pub(crate) fn find(root: &DriverRoot, library: &Path, version: &str, hook: Option<PathBuf>) -> Self {
        let mut files = Self { hook, ..Self::default() };
        for (name, file) in library.parent().into_iter().flat_map(|folder| libraries(folder, version)) {
            if let Some(seen_at) = root.in_container(&name) {
                files.folders.extend(seen_at.parent().map(Path::to_owned));
                files.add(root, &file, seen_at);
            }
        }
        for program in PROGRAMS.iter().filter_map(|name| root.find_program(name).ok()) {
            files.add(root, &program, Path::new("/usr/bin").join(program.file_name().unwrap_or_default()));
        }
        files
    }

    fn add(&mut self, root: &DriverRoot, file: &Path, seen_at: PathBuf) {
        // The root itself may be a link, and what it leads to is what was found.
        let real_root = fs::canonicalize(&root.here).unwrap_or_else(|_| root.here.clone());
        let real_root = DriverRoot { here: real_root, ..root.clone() };
        if let Some(on_host) = root.on_host(file).or_else(|| real_root.on_host(file)) {
            self.mounts.push((on_host, seen_at));
        }
    }

    /// Whether the library is among them that programs ask for first.
    pub(crate) fn has_cuda(&self) -> bool {
        let is_cuda = |path: &Path| path.file_name().is_some_and(|name| name == "libcuda.so.1");
        self.mounts.iter().any(|(_, seen_at)| is_cuda(seen_at))
    }

    /// The edits that bring them into a container.
    pub(crate) fn edits(&self, root: &DriverRoot) -> ContainerEdits {
        let mounts = self.mounts.iter().map(|(on_host, seen_at)| {
            Mount::new(on_host, seen_at).options(["ro", "nosuid", "nodev", "bind"])
        });
        let edits = mounts.fold(ContainerEdits::new(), ContainerEdits::mount);
        let Some(hook) = &self.hook else { return edits };
        if self.folders.is_empty() {
            return edits;
        }
        let program = root.on_host(hook).unwrap_or_else(|| hook.clone());
        let folders =
            self.folders.iter().flat_map(|folder| ["--folder".to_owned(), folder.display().to_string()]);
        let arguments = ["nvidia-cdi-hook", "update-ldcache"].map(str::to_owned).into_iter().chain(folders);
        edits.hook(Hook::new(HookName::CreateContainer, program).args(arguments))
    }
}

/// Files in a folder whose names end in the driver's version, with each name that leads to them: programs ask for
/// `libcuda.so.1`, and without the toolkit's hook nobody in a container makes that link.
pub(crate) fn libraries(folder: &Path, version: &str) -> Vec<(PathBuf, PathBuf)> {
    let ending = format!(".so.{version}");
    let is_library = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("lib") && name.ends_with(&ending) && path.is_file()
    };
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = names.filter_map(|name| Some((name.clone(), fs::canonicalize(name).ok()?)));
    let mut found: Vec<_> = found.filter(|(_, file)| is_library(file)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_version_are_mounted_under_all_their_names_and_programs_too() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_owned();
        let libraries = here.join("usr/lib64");
        fs::create_dir_all(&libraries).unwrap();
        fs::create_dir_all(here.join("usr/bin")).unwrap();
        for file in ["libcuda.so.550.1", "libcuda.so.535.9", "libc.so.6", "libnvidia-ml.so.550.1"] {
            fs::write(libraries.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("libcuda.so.550.1", libraries.join("libcuda.so.1")).unwrap();
        std::os::unix::fs::symlink("nowhere", libraries.join("libdead.so.550.1")).unwrap();
        fs::write(here.join("usr/bin/nvidia-smi"), "").unwrap();
        let root = DriverRoot { here, on_host: "/host".into(), library: None };

        let nvml = libraries.join("libnvidia-ml.so.1");
        let files = DriverFiles::find(&root, &nvml, "550.1", None);
        let seen = |edits: &ContainerEdits| -> Vec<(String, String)> {
            let text = |path: &Path| path.display().to_string();
            edits.mounts.iter().map(|mount| (text(&mount.host_path), text(&mount.container_path))).collect()
        };
        let pair = |host: &str, container: &str| (host.to_owned(), container.to_owned());
        assert_eq!(
            seen(&files.edits(&root)),
            [
                pair("/host/usr/lib64/libcuda.so.550.1", "/usr/lib64/libcuda.so.1"),
                pair("/host/usr/lib64/libcuda.so.550.1", "/usr/lib64/libcuda.so.550.1"),
                pair("/host/usr/lib64/libnvidia-ml.so.550.1", "/usr/lib64/libnvidia-ml.so.550.1"),
                pair("/host/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
            ]
        );
        assert_eq!(files.edits(&root).hooks, []);
        assert!(files.has_cuda());
        assert!(!DriverFiles::find(&root, &nvml, "535.9", None).has_cuda());

        let hook = Some(PathBuf::from("/opt/nvidia-cdi-hook"));
        let edits = DriverFiles::find(&root, &nvml, "550.1", hook).edits(&root);
        assert_eq!(edits.hooks[0].args, ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"]);
    }

    #[test]
    fn without_any_file_nothing_is_mounted() {
        let root = DriverRoot { here: "/nowhere".into(), on_host: "/nowhere".into(), library: None };
        let files = DriverFiles::find(&root, Path::new("/nowhere/x/libnvidia-ml.so.1"), "1", None);
        assert_eq!(files, DriverFiles::default());
    }
}
