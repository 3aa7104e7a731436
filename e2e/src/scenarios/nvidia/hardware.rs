//! A machine with GPUs of NVIDIA, and NVIDIA's driver, as far as they can be seen.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use fake_nvml::{Folder, Gpu, Machine, MigInstance, Model};

/// Where GPU Operator has NVIDIA's driver: a folder of the cluster's own.
const ROOT: &str = "/run/nvidia/driver";
/// What the stand-ins keep. The driver's pod has it under the same path.
const FAKE: &str = "/run/nvidia/fake";
/// Where the driver's pod has `ROOT`, read-only.
const ROOT_IN_POD: &str = "/driver-root";
/// Version of NVIDIA's driver, which is in the names of its libraries.
const VERSION: &str = "580.82.07";

/// What is in a library of the driver.
pub(super) const A_LIBRARY: &str = "a library of the driver";
/// Devices of [`machine`]: four MIG devices, and three GPUs that are whole.
pub(super) const DEVICES: usize = 7;
/// Every two GPUs are below one root of PCI Express.
const BELOW_ONE_ROOT: u32 = 2;

/// A machine that is there, while a scenario uses it.
pub(super) struct Hardware {
    pub(super) fake: Folder,
    machine: Machine,
}

/// Two GPUs with MIG devices (0 and 1), and three whole ones (2 to 4).
pub(super) fn machine() -> Machine {
    let cut = |number, instances: &[MigInstance]| {
        let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, number);
        gpu.mig = true;
        gpu.instances = instances.to_vec();
        gpu
    };
    let small = |start| MigInstance::new("1g.5gb", start);
    let whole = (2..=4).map(|number| Gpu::new(Model::L4, number));
    let cut = [cut(0, &[small(0), small(1), MigInstance::new("3g.20gb", 4)]), cut(1, &[small(0)])];
    Machine::new(cut.into_iter().chain(whole))
}

/// Where the GPU with this number is on the bus.
pub(super) fn pci_address(number: u32) -> String {
    format!("0000:{:02x}:00.0", 7 + 8 * number)
}

/// The UUID of the GPU with this number.
pub(super) fn uuid(number: u32) -> String {
    String::from_utf8_lossy(Gpu::new(Model::L4, number).uuid().bytes()).into_owned()
}

impl Hardware {
    /// Puts this machine there; the driver notices by itself.
    pub(super) fn install(machine: &Machine) -> Result<Self> {
        let fake = Folder::create(FAKE, machine)?;
        for kept in ["hardware.json", TIME_SLICES] {
            remove(&fake.path().join(kept))?;
        }
        make_sysfs(&fake.path().join("sys"), machine)?;
        make_programs(Path::new(ROOT))?;
        make_libraries(Path::new(ROOT), &fake)?;
        Ok(Self { fake, machine: machine.clone() })
    }

    /// How many GPU instances there are.
    pub(super) fn instances(&self) -> Result<usize> {
        let hardware = self.fake.hardware()?;
        Ok(self.machine.gpus.iter().map(|gpu| hardware.gpu(gpu).instances.len()).sum())
    }

    /// What `nvidia-smi` was asked for, the first time first.
    pub(super) fn asked_of_nvidia_smi(&self) -> Result<Vec<String>> {
        let path = self.fake.path().join(TIME_SLICES);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
}

const TIME_SLICES: &str = "nvidia-smi.log";

/// The library that programs use, under two names, and last of all NVML: once that is there, the driver takes the rest for
/// there, too.
fn make_libraries(root: &Path, fake: &Folder) -> Result<()> {
    let folder = make_folder(root.join("usr/lib64"))?;
    let (library, link) = (format!("libcuda.so.{VERSION}"), folder.join("libcuda.so.1"));
    fs::write(folder.join(&library), format!("{A_LIBRARY}\n")).context("making a library")?;
    remove(&link)?;
    symlink(library, link).context("making a link to a library")?;
    if !folder.join(fake_nvml::LIBRARY_NAME).exists() {
        fake.install(&folder)?;
    }
    Ok(())
}

/// `nvidia-smi`, which writes down what it is asked for, and the shell that runs it: the driver's image has none.
fn make_programs(root: &Path) -> Result<()> {
    let folder = make_folder(root.join("usr/bin"))?;
    let shell =
        ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    let shell = shell.context("no busybox: apt-get install --yes busybox-static")?;
    // Not written over: it may be running.
    if !folder.join("busybox").exists() {
        fs::copy(shell, folder.join("busybox")).context("copying busybox")?;
    }
    let program = folder.join("nvidia-smi");
    let script = format!("#!{ROOT_IN_POD}/usr/bin/busybox sh\necho \"$@\" >> {FAKE}/{TIME_SLICES}\n");
    fs::write(&program, script).context("making nvidia-smi")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("making nvidia-smi a program")
}

fn make_sysfs(sys: &Path, machine: &Machine) -> Result<()> {
    let devices = make_folder(sys.join("bus/pci/devices"))?;
    for gpu in &machine.gpus {
        let address = pci_address(gpu.number);
        let root = format!("pci{:04x}:00", gpu.number / BELOW_ONE_ROOT);
        let folder = make_folder(sys.join("devices").join(&root).join(&address))?;
        fs::write(folder.join("numa_node"), "0\n").context("making a file of sysfs")?;
        let link = devices.join(&address);
        remove(&link)?;
        symlink(format!("../../../devices/{root}/{address}"), link).context("making a link of sysfs")?;
    }
    Ok(())
}

fn make_folder(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    Ok(path)
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}
