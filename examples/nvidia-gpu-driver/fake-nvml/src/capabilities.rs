//! What the kernel driver shows of MIG in `/proc`: the minor numbers of the device nodes that give access to instances.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::iter;
use std::path::{Path, PathBuf};

use crate::{Error, Folder, Gpu, Hardware, Machine};

/// Under `proc` of the folder, as under `/proc`.
const TREE: &str = "driver/nvidia/capabilities";
const MINORS: &str = "driver/nvidia-caps/mig-minors";

/// Device numbers of character devices, as the kernel lists them; those of `nvidia-uvm` and the capabilities are given
/// when the modules are loaded.
const DEVICES: &str = "devices";
/// With what mode, owner and group `nvidia-modprobe` makes nodes, as lines of the real file (open-gpu-kernel-modules,
/// `nv-procfs.c`).
const PARAMETERS: &str = "driver/nvidia/params";
const PARAMETERS_TEXT: &str = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n";

/// So many minor numbers each GPU has: fifteen GPU instances, each with its own and those of eight compute instances.
const OF_GPU: u32 = 15 * OF_INSTANCE;
const OF_INSTANCE: u32 = 9;
/// The first two are of `mig/config` and `mig/monitor`.
const FIRST: u32 = 3;

/// Writes the files that should be there and takes away those that should not.
pub(crate) fn write(folder: &Folder, machine: &Machine, hardware: &Hardware) -> Result<(), Error> {
    let root = folder.path().join("proc");
    let files = files(machine, hardware);
    for (path, text) in &files {
        let path = root.join(path);
        if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        let parent = path.parent().unwrap_or(&root);
        fs::create_dir_all(parent).map_err(Error::io("make", parent))?;
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    let wanted = |path: &Path| {
        path.strip_prefix(&root).is_ok_and(|path| files.keys().any(|file| file.starts_with(path)))
    };
    remove_others(&root.join(TREE), &wanted)
}

fn remove_others(directory: &Path, wanted: &impl Fn(&Path) -> bool) -> Result<(), Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("list", directory)(error)),
    };
    for entry in entries {
        let path = entry.map_err(Error::io("list", directory))?.path();
        if !path.is_dir() {
            continue;
        }
        if wanted(&path) {
            remove_others(&path, wanted)?;
        } else {
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

fn files(machine: &Machine, hardware: &Hardware) -> BTreeMap<PathBuf, String> {
    let tree = Path::new(TREE);
    let mut files = BTreeMap::from([
        (tree.join("mig/config"), access(1)),
        (tree.join("mig/monitor"), access(2)),
        (MINORS.into(), minors(machine)),
        (DEVICES.into(), devices(machine)),
        (PARAMETERS.into(), PARAMETERS_TEXT.to_owned()),
    ]);
    for gpu in &machine.gpus {
        let hardware = hardware.gpu(gpu);
        let gpu_minor = hardware.minor(gpu);
        let gpu_tree = tree.join(format!("gpu{gpu_minor}/mig"));
        for instance in hardware.instances {
            let tree = gpu_tree.join(format!("gi{}", instance.id));
            files.insert(tree.join("access"), access(minor(gpu_minor, instance.id, None)));
            for compute in instance.compute_instances {
                let minor = minor(gpu_minor, instance.id, Some(compute.id));
                files.insert(tree.join(format!("ci{}/access", compute.id)), access(minor));
            }
        }
    }
    files
}

/// All numbers that GPUs with MIG may use, whether or not the instances are there.
fn minors(machine: &Machine) -> String {
    let gpus = machine.gpus.iter().filter(|gpu| gpu.model.has_mig()).map(Gpu::minor);
    let instances = gpus.flat_map(|gpu| (0..15).map(move |instance| (gpu, instance)));
    let lines = instances.flat_map(|(gpu, instance)| {
        let own = format!("gpu{gpu}/gi{instance}/access {}", minor(gpu, instance, None));
        let of_compute = (0..8).map(move |compute| {
            let minor = minor(gpu, instance, Some(compute));
            format!("gpu{gpu}/gi{instance}/ci{compute}/access {minor}")
        });
        iter::once(own).chain(of_compute)
    });
    let all = ["config 1".to_owned(), "monitor 2".to_owned()].into_iter().chain(lines);
    all.map(|line| line + "\n").collect()
}

fn devices(machine: &Machine) -> String {
    let uvm = if machine.without_uvm { "" } else { "511 nvidia-uvm\n" };
    format!(
        "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n{uvm}236 nvidia-caps-imex-channels\n237 nvidia-caps\n\n\
         Block devices:\n259 blkext\n"
    )
}

fn minor(gpu: u32, instance: u32, compute: Option<u32>) -> u32 {
    FIRST + gpu * OF_GPU + instance * OF_INSTANCE + compute.map_or(0, |compute| compute + 1)
}

fn access(minor: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn machine(instances: &str) -> Machine {
        let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, 1);
        gpu.mig = true;
        gpu.instances = serde_json::from_str(instances).expect("instances");
        Machine::new([gpu])
    }

    #[test]
    fn instances_have_files_with_the_minor_numbers_of_the_list() {
        let machine = machine(r#"[{"profile": "3g.20gb", "start": 4}]"#);
        let files = files(&machine, &Hardware::default());
        let names: Vec<_> = files.keys().map(|path| path.display().to_string()).collect();
        assert_eq!(
            names,
            [
                "devices",
                "driver/nvidia/capabilities/gpu1/mig/gi1/access",
                "driver/nvidia/capabilities/gpu1/mig/gi1/ci0/access",
                "driver/nvidia/capabilities/mig/config",
                "driver/nvidia/capabilities/mig/monitor",
                "driver/nvidia/params",
                "driver/nvidia-caps/mig-minors",
            ]
        );
        let minors = &files[Path::new(MINORS)];
        for (file, name) in [("gi1/access", "gpu1/gi1/access"), ("gi1/ci0/access", "gpu1/gi1/ci0/access")] {
            let text = &files[&Path::new(TREE).join("gpu1/mig").join(file)];
            let number = text.strip_prefix("DeviceFileMinor: ").and_then(|text| text.lines().next());
            assert!(minors.contains(&format!("\n{name} {}\n", number.expect("a number"))), "{name}: {text}");
        }
    }

    #[test]
    fn the_list_of_minors_is_the_one_of_a_real_machine() {
        let minors = minors(&Machine::new([0, 1].map(|number| Gpu::new(Model::A100Sxm4_40Gb, number))));
        for line in
            ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4", "gpu0/gi1/access 12"]
        {
            assert!(minors.lines().any(|other| other == line), "{line}");
        }
        assert!(minors.lines().any(|line| line == "gpu1/gi0/access 138"));
    }

    #[test]
    fn files_of_instances_that_went_are_taken_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let with = machine(r#"[{"profile": "1g.5gb", "start": 0}, {"profile": "1g.5gb", "start": 1}]"#);
        let folder = Folder::create(directory.path(), &with).expect("a folder");
        write(&folder, &with, &Hardware::default()).expect("writes");
        let tree = directory.path().join("proc").join(TREE).join("gpu1/mig");
        assert!(tree.join("gi8/ci0/access").exists());
        let without = machine(r#"[{"profile": "1g.5gb", "start": 0, "compute": false}]"#);
        write(&folder, &without, &Hardware::default()).expect("writes");
        assert!(tree.join("gi7/access").exists());
        assert!(!tree.join("gi7/ci0").exists() && !tree.join("gi8").exists());
    }
}
