//! A machine in a temporary folder, and the library loaded from it as programs load NVIDIA's.

use fake_nvml::{Folder, Gpu, Machine, Model};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t};
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

/// The same, without these functions.
pub(crate) fn load_without(machine: &Machine, functions: &[&str]) -> Loaded {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = Folder::create(directory.path().join("machine"), machine).expect("a folder");
    let library = folder.install_without(directory.path().join("lib"), functions).expect("is built");
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().expect("initializes");
    Loaded { nvml, folder, directory }
}

impl Loaded {
    pub(crate) fn library(&self) -> &NvmlLib {
        self.nvml.lib()
    }

    pub(crate) fn gpu(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).expect("a GPU")
    }

    /// The handle of a GPU, for functions that the wrapper lacks.
    #[allow(unsafe_code, reason = "the handle outlives the wrapper's device, not the library")]
    pub(crate) fn handle(&self, index: u32) -> nvmlDevice_t {
        // SAFETY: a handle is valid as long as the library is initialized, which it is as long as `self` lives.
        unsafe { self.gpu(index).handle() }
    }
}

/// One of each model, in the order of `Model::ALL`.
pub(crate) fn one_of_each() -> Machine {
    Machine::new(Model::ALL.into_iter().zip(0..).map(|(model, number)| Gpu::new(model, number)))
}

/// One A100 with MIG on.
pub(crate) fn with_mig() -> Machine {
    let mut gpu = Gpu::new(Model::A100Sxm4_40Gb, 0);
    gpu.mig = true;
    Machine::new([gpu])
}

/// Calls a function that the wrapper lacks: `Ok` or the code.
macro_rules! raw {
    ($loaded:expr, $function:ident($($argument:expr),*)) => {{
        let function = $loaded.library().$function.as_ref().expect("the library has it");
        // SAFETY: the tests hand over handles of this library, and pointers to values of the declared type.
        #[allow(unsafe_code, reason = "a call of C")]
        match unsafe { function($($argument),*) } {
            0 => Ok(()),
            code => Err(code),
        }
    }};
}
pub(crate) use raw;

/// A struct of C before NVML fills it.
#[allow(unsafe_code, reason = "structs of C without constructors")]
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for structs of numbers, pointers and arrays of them, for all of which zeros are valid.
    unsafe { std::mem::zeroed() }
}
