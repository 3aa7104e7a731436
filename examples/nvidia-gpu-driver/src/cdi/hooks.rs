//! What NVIDIA's toolkit does in a container before it starts, by its program `nvidia-cdi-hook` (nvidia-container-toolkit,
//! `internal/discover/hooks.go`): version 1.17.8 or later has all that is asked of it here.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use dra_kubeletplugin::{Hook, HookName};

use crate::driver_root::DriverRoot;

/// Where the toolkit's packages and GPU Operator install it.
const USUAL: [&str; 2] = ["usr/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook"];

/// The program, as the container runtime sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CdiHook(PathBuf);

impl CdiHook {
    /// The one that was given, or the one that is installed below the driver's root.
    pub(crate) fn find(given: Option<&Path>, root: &DriverRoot) -> Option<Self> {
        if let Some(given) = given {
            return Some(Self(given.to_owned()));
        }
        let installed = USUAL.iter().map(|path| root.here.join(path)).find(|path| path.is_file())?;
        root.on_host(&installed).map(Self)
    }

    /// Those that a container with these files of the driver needs, in the toolkit's order.
    pub(crate) fn of_driver<'a>(
        &self,
        version: &str,
        folders: &BTreeSet<PathBuf>,
        files: impl Iterator<Item = &'a Path>,
    ) -> Vec<Hook> {
        let links = links(files, version);
        let links = (!links.is_empty()).then(|| {
            let arguments = links.iter().flat_map(|link| ["--link".to_owned(), link.clone()]);
            self.hook("create-symlinks", arguments)
        });
        let compat = self.hook("enable-cuda-compat", [format!("--host-driver-version={version}")]);
        let folders = folders.iter().flat_map(|folder| ["--folder".to_owned(), folder.display().to_string()]);
        let cache = self.hook("update-ldcache", folders);
        // So that NVML in the container does not make nodes, which it may not open.
        let nodes = self.hook("disable-device-node-modification", []);
        links.into_iter().chain([compat, cache, nodes]).collect()
    }

    /// The links by which programs find the DRM nodes of the GPU at this address.
    pub(crate) fn by_path(&self, pci: &str, nodes: &[String]) -> Option<Hook> {
        let link = |name: &String| {
            let kind = if name.starts_with("card") { "card" } else { "render" };
            ["--link".to_owned(), format!("../{name}::/dev/dri/by-path/pci-{pci}-{kind}")]
        };
        (!nodes.is_empty()).then(|| self.hook("create-symlinks", nodes.iter().flat_map(link)))
    }

    fn hook(&self, what: &str, arguments: impl IntoIterator<Item = String>) -> Hook {
        let arguments = ["nvidia-cdi-hook".to_owned(), what.to_owned()].into_iter().chain(arguments);
        Hook::new(HookName::CreateContainer, &self.0).args(arguments).env("NVIDIA_CTK_DEBUG", "false")
    }
}

/// Names that programs ask for and the host may not have, each as `target::link`.
fn links<'a>(files: impl Iterator<Item = &'a Path>, version: &str) -> Vec<String> {
    let link = |file: &Path| {
        let (folder, name) = (file.parent()?.display().to_string(), file.file_name()?.to_str()?);
        let name = name.strip_suffix(version)?;
        Some(match name {
            "libcuda.so." => format!("libcuda.so.1::{folder}/libcuda.so"),
            "libnvidia-opticalflow.so." => {
                format!("libnvidia-opticalflow.so.1::{folder}/libnvidia-opticalflow.so")
            }
            "libGLX_nvidia.so." => format!("libGLX_nvidia.so.{version}::{folder}/libGLX_indirect.so.0"),
            "libnvidia-allocator.so." => {
                format!("../libnvidia-allocator.so.1::{folder}/gbm/nvidia-drm_gbm.so")
            }
            "libglxserver_nvidia.so." => {
                format!("libglxserver_nvidia.so.{version}::{folder}/libglxserver_nvidia.so")
            }
            _ => return None,
        })
    };
    files.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_are_those_of_the_toolkit_in_its_order() {
        let hook = CdiHook("/usr/bin/nvidia-cdi-hook".into());
        let folders = BTreeSet::from([PathBuf::from("/usr/lib64")]);
        let files =
            ["/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.550.1", "/usr/lib64/libGLX_nvidia.so.550.1"];
        let hooks = hook.of_driver("550.1", &folders, files.iter().map(Path::new));
        let told: Vec<String> = hooks.iter().map(|hook| hook.args.join(" ")).collect();
        assert_eq!(
            told,
            [
                "nvidia-cdi-hook create-symlinks --link libcuda.so.1::/usr/lib64/libcuda.so --link \
                 libGLX_nvidia.so.550.1::/usr/lib64/libGLX_indirect.so.0",
                "nvidia-cdi-hook enable-cuda-compat --host-driver-version=550.1",
                "nvidia-cdi-hook update-ldcache --folder /usr/lib64",
                "nvidia-cdi-hook disable-device-node-modification",
            ]
        );
        let nodes = ["card1", "renderD128"].map(str::to_owned);
        let by_path = hook.by_path("0000:65:00.0", &nodes).unwrap();
        assert_eq!(by_path.args[3], "../card1::/dev/dri/by-path/pci-0000:65:00.0-card");
        assert_eq!(by_path.args[5], "../renderD128::/dev/dri/by-path/pci-0000:65:00.0-render");
        assert_eq!(hook.by_path("0000:65:00.0", &[]), None);
    }

    #[test]
    fn the_program_is_found_where_it_is_installed_unless_one_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let root = DriverRoot { here: folder.path().to_owned(), on_host: "/".into(), library: None };
        assert_eq!(CdiHook::find(None, &root), None);
        std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        std::fs::write(folder.path().join(USUAL[0]), "").unwrap();
        assert_eq!(CdiHook::find(None, &root), Some(CdiHook("/usr/bin/nvidia-cdi-hook".into())));
        let given = Path::new("/opt/hook");
        assert_eq!(CdiHook::find(Some(given), &root), Some(CdiHook(given.to_owned())));
    }
}
