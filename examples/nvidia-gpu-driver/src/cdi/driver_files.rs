//! What of the driver's installation containers get: libraries, programs, configuration, firmware and sockets. The list is that of
//! `nvidia-ctk cdi generate` (nvidia-container-toolkit, `pkg/nvcdi/driver-nvml.go` and `internal/discover/graphics.go`).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{ContainerEdits, Mount};

use super::hooks::CdiHook;
use crate::driver_root::DriverRoot;

/// What a user of the driver may want to start.
const PROGRAMS: [&str; 7] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];
/// Libraries of the driver that have versions of their own, by the beginning of their names.
const OTHER_LIBRARIES: [&str; 4] = [
    "libnvidia-nvvm70.so.",
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
];
/// Configuration that programs look for below `/usr/share`, wherever the host has it.
const SHARED: [&str; 7] = [
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
];
/// The same below `/etc`.
const CONFIGURED: [&str; 6] = [
    "OpenCL/vendors/nvidia.icd",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_icd.x86_64.json",
    "vulkan/icd.d/nvidia_icd.aarch64.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
];
/// Where the host may have them; the last is the root itself, where GKE has those of Vulkan.
const CONFIGURATION: [&str; 4] = ["etc", "usr/local/share", "usr/share", ""];
/// Modules of the X server beside the libraries.
const X_MODULES: [&str; 5] = [
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
];
/// Sockets of daemons, in a folder of run-time files.
const SOCKETS: [&str; 2] = ["nvidia-persistenced/socket", "nvidia-fabricmanager/socket"];
const RUN: [&str; 2] = ["run", "var/run"];
const FIRMWARE: [&str; 2] = ["lib/firmware/updates", "lib/firmware"];

/// What was found of one version of the driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DriverFiles {
    version: String,
    /// Files, by the paths that containers see them at.
    mounts: Vec<(PathBuf, PathBuf)>,
    /// Sockets, likewise.
    sockets: Vec<(PathBuf, PathBuf)>,
    /// Folders with libraries in them, as containers see them.
    folders: BTreeSet<PathBuf>,
}

impl DriverFiles {
    /// Looks for the files of this version. `library` is where NVML is, and most libraries are beside it.
    pub(crate) fn find(root: &DriverRoot, library: &Path, version: &str) -> Self {
        let mut files = Self { version: version.to_owned(), ..Self::default() };
        let folders = root.library_folders(library);
        for folder in folders.iter().flat_map(|folder| [folder.clone(), folder.join("vdpau")]) {
            for (name, file) in libraries(&folder, version).into_iter().chain(others(&folder)) {
                if let Some(seen_at) = root.in_container(&name) {
                    files.folders.extend(seen_at.parent().map(Path::to_owned));
                    files.add(root, &file, seen_at);
                }
            }
        }
        let x_server = ["nvidia_drv.so".to_owned(), format!("libglxserver_nvidia.so.{version}")];
        let modules: Vec<PathBuf> =
            folders.iter().flat_map(|folder| X_MODULES.iter().map(|name| folder.join(name))).collect();
        for name in &x_server {
            if let Some(file) = modules.iter().map(|folder| folder.join(name)).find(|file| file.is_file()) {
                files.extend(root, &file, root.in_container(&file));
            }
        }
        for program in PROGRAMS.iter().filter_map(|name| root.find_program(name).ok()) {
            files.add(root, &program, Path::new("/usr/bin").join(program.file_name().unwrap_or_default()));
        }
        for (names, seen_in) in [(&SHARED[..], "/usr/share"), (&CONFIGURED[..], "/etc")] {
            for name in names {
                let places = CONFIGURATION.iter().map(|folder| root.here.join(folder).join(name));
                if let Some(file) = places.into_iter().find(|file| file.is_file()) {
                    files.add(root, &file, Path::new(seen_in).join(name));
                }
            }
        }
        for file in firmware(root, version) {
            files.extend(root, &file, root.in_container(&file));
        }
        for name in SOCKETS {
            let places = RUN.iter().map(|folder| root.here.join(folder).join(name));
            let found = places.into_iter().find(|socket| socket.exists());
            files.sockets.extend(
                found.and_then(|socket| Some((root.on_host(&socket)?, Path::new("/run").join(name)))),
            );
        }
        files
    }

    fn extend(&mut self, root: &DriverRoot, file: &Path, seen_at: Option<PathBuf>) {
        if let Some(seen_at) = seen_at {
            self.add(root, file, seen_at);
        }
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
    pub(crate) fn edits(&self, hook: Option<&CdiHook>) -> ContainerEdits {
        let mount = |(on_host, seen_at): &(PathBuf, PathBuf), options: &[&str]| {
            Mount::new(on_host, seen_at).options(options.iter().copied())
        };
        let files = self.mounts.iter().map(|one| mount(one, &["ro", "nosuid", "nodev", "rbind", "rprivate"]));
        // Connecting to a socket is no write, but `ro` would forbid it on some kernels.
        let sockets =
            self.sockets.iter().map(|one| mount(one, &["nosuid", "nodev", "rbind", "rprivate", "noexec"]));
        let edits = files.chain(sockets).fold(ContainerEdits::new(), ContainerEdits::mount);
        let Some(hook) = hook.filter(|_| !self.folders.is_empty()) else { return edits };
        let hooks =
            hook.of_driver(&self.version, &self.folders, self.mounts.iter().map(|(_, seen_at)| &**seen_at));
        let folders: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        hooks.into_iter().fold(edits.env("NVIDIA_CTK_LIBCUDA_DIR", folders.join(":")), ContainerEdits::hook)
    }
}

/// Files in a folder whose names end in the driver's version, with each name that leads to them: programs ask for
/// `libcuda.so.1`, and without the toolkit's hook nothing in a container makes that link.
pub(crate) fn libraries(folder: &Path, version: &str) -> Vec<(PathBuf, PathBuf)> {
    let ending = format!(".so.{version}");
    named(folder, |name| name.starts_with("lib") && name.ends_with(&ending))
}

fn others(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    named(folder, |name| OTHER_LIBRARIES.iter().any(|start| name.starts_with(start)))
}

/// Files whose real names are such, with each name in the folder that leads to them.
fn named(folder: &Path, is_such: impl Fn(&str) -> bool) -> Vec<(PathBuf, PathBuf)> {
    let is_library = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        is_such(name) && path.is_file()
    };
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = names.filter_map(|name| Some((name.clone(), fs::canonicalize(name).ok()?)));
    let mut found: Vec<_> = found.filter(|(_, file)| is_library(file)).collect();
    found.sort();
    found
}

/// What the system processor of the GPU runs: `gsp*.bin` of the first folder that has some.
fn firmware(root: &DriverRoot, version: &str) -> Vec<PathBuf> {
    let of_folder = |folder: &str| {
        let folder = root.here.join(folder).join("nvidia").join(version);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_firmware = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("gsp") && name.ends_with(".bin")
        };
        let mut found: Vec<PathBuf> = entries.filter(is_firmware).map(|entry| entry.path()).collect();
        found.sort();
        found
    };
    FIRMWARE.iter().map(|folder| of_folder(folder)).find(|found| !found.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn seen(edits: &ContainerEdits) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        edits.mounts.iter().map(|mount| (text(&mount.host_path), text(&mount.container_path))).collect()
    }

    fn pair(host: &str, container: &str) -> (String, String) {
        (host.to_owned(), container.to_owned())
    }

    fn root(files: &[&str]) -> (tempfile::TempDir, DriverRoot) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let root = DriverRoot { here: folder.path().to_owned(), on_host: "/host".into(), library: None };
        (folder, root)
    }

    #[test]
    fn libraries_of_the_version_are_mounted_under_all_their_names_and_programs_too() {
        let (_folder, root) = root(&[
            "usr/lib64/libcuda.so.550.1",
            "usr/lib64/libcuda.so.535.9",
            "usr/lib64/libc.so.6",
            "usr/lib64/libnvidia-ml.so.550.1",
            "usr/bin/nvidia-smi",
        ]);
        let libraries = root.here.join("usr/lib64");
        symlink("libcuda.so.550.1", libraries.join("libcuda.so.1")).unwrap();
        symlink("nowhere", libraries.join("libdead.so.550.1")).unwrap();
        // As on merged systems: the same folder under another name is not looked at twice.
        symlink("usr/lib64", root.here.join("lib64")).unwrap();

        let nvml = libraries.join("libnvidia-ml.so.1");
        let files = DriverFiles::find(&root, &nvml, "550.1");
        assert_eq!(
            seen(&files.edits(None)),
            [
                pair("/host/usr/lib64/libcuda.so.550.1", "/usr/lib64/libcuda.so.1"),
                pair("/host/usr/lib64/libcuda.so.550.1", "/usr/lib64/libcuda.so.550.1"),
                pair("/host/usr/lib64/libnvidia-ml.so.550.1", "/usr/lib64/libnvidia-ml.so.550.1"),
                pair("/host/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
            ]
        );
        assert_eq!(files.edits(None).hooks, []);
        assert!(files.has_cuda());
        assert!(!DriverFiles::find(&root, &nvml, "535.9").has_cuda());
    }

    #[test]
    fn configuration_firmware_modules_of_x_and_sockets_are_where_programs_look_for_them() {
        let (_folder, root) = root(&[
            "usr/lib64/libnvidia-ml.so.550.1",
            "usr/lib64/libnvidia-egl-gbm.so.1.1.1",
            "usr/lib64/vdpau/libvdpau_nvidia.so.550.1",
            "usr/lib64/xorg/modules/drivers/nvidia_drv.so",
            "etc/glvnd/egl_vendor.d/10_nvidia.json",
            "etc/OpenCL/vendors/nvidia.icd",
            "vulkan/icd.d/nvidia_icd.json",
            "lib/firmware/nvidia/550.1/gsp_ga10x.bin",
            "lib/firmware/nvidia/535.9/gsp_ga10x.bin",
        ]);
        fs::create_dir_all(root.here.join("run/nvidia-fabricmanager")).unwrap();
        let _socket = UnixListener::bind(root.here.join("run/nvidia-fabricmanager/socket")).unwrap();
        let files = DriverFiles::find(&root, &root.here.join("usr/lib64/libnvidia-ml.so.1"), "550.1");
        let edits = files.edits(None);
        let same = |path: &str| pair(&format!("/host{path}"), path);
        for expected in [
            same("/usr/lib64/libnvidia-egl-gbm.so.1.1.1"),
            same("/usr/lib64/vdpau/libvdpau_nvidia.so.550.1"),
            same("/usr/lib64/xorg/modules/drivers/nvidia_drv.so"),
            pair(
                "/host/etc/glvnd/egl_vendor.d/10_nvidia.json",
                "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            ),
            same("/etc/OpenCL/vendors/nvidia.icd"),
            pair("/host/vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json"),
            same("/lib/firmware/nvidia/550.1/gsp_ga10x.bin"),
            same("/run/nvidia-fabricmanager/socket"),
        ] {
            assert!(seen(&edits).contains(&expected), "{expected:?} in {:#?}", seen(&edits));
        }
        assert_eq!(edits.mounts.len(), 9, "{:#?}", seen(&edits));
        let socket = edits.mounts.iter().find(|mount| mount.container_path.ends_with("socket")).unwrap();
        assert!(!socket.options.contains(&"ro".to_owned()) && socket.options.contains(&"noexec".to_owned()));
    }

    #[test]
    fn without_any_file_nothing_is_mounted() {
        let root = DriverRoot { here: "/nowhere".into(), on_host: "/nowhere".into(), library: None };
        let files = DriverFiles::find(&root, Path::new("/nowhere/x/libnvidia-ml.so.1"), "1");
        assert_eq!(files.edits(None), ContainerEdits::new());
    }
}
