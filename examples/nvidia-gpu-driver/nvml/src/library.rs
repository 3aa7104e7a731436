//! The loaded library.

use std::{
    ffi::CString,
    fmt,
    mem::ManuallyDrop,
    path::{Path, PathBuf},
};

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Device, NvmlError, OpenError,
    call::{ask, bad_answer, call, read},
};

/// Start even if no GPU is attached.
const NO_GPUS_IS_FINE: u32 = 1;

/// NVML, loaded and started; it is shut down when dropped.
///
/// NVML is made for use by several threads at once.
pub struct Library {
    pub(crate) functions: ManuallyDrop<sys::NvmlLib>,
    path: PathBuf,
}

impl Library {
    /// Loads the library at this path and starts it. A node without a GPU is no error.
    ///
    /// # Errors
    /// It is no library for this machine, or its driver is not loaded.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        // SAFETY: loading runs the code of the library, which is the administrator's choice; NVML has no start code that
        // depends on anything of this process.
        let functions = unsafe { sys::NvmlLib::new(path) }
            .map_err(|source| OpenError::Load { path: path.to_owned(), source: source.into() })?;
        call!(functions, nvmlInitWithFlags(NO_GPUS_IS_FINE))
            .map_err(|source| OpenError::Start { path: path.to_owned(), source })?;
        Ok(Self { functions: ManuallyDrop::new(functions), path: path.to_owned() })
    }

    /// Where it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Version of the kernel's driver, such as `550.127.08`.
    ///
    /// # Errors
    /// The call failed.
    pub fn driver_version(&self) -> Result<String, NvmlError> {
        read!(self.functions, nvmlSystemGetDriverVersion())
    }

    /// Newest version of CUDA that the driver takes, major and minor.
    ///
    /// # Errors
    /// The call failed.
    pub fn cuda_driver_version(&self) -> Result<(u32, u32), NvmlError> {
        let version = u32::try_from(ask!(self.functions, nvmlSystemGetCudaDriverVersion_v2())?)
            .map_err(|_| bad_answer("nvmlSystemGetCudaDriverVersion_v2", "a negative version"))?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// The call failed.
    pub fn device_count(&self) -> Result<u32, NvmlError> {
        ask!(self.functions, nvmlDeviceGetCount_v2())
    }

    /// The GPU of this index, which is not stable across restarts of the driver.
    ///
    /// # Errors
    /// There is none, or it cannot be reached.
    pub fn device(&self, index: u32) -> Result<Device<'_>, NvmlError> {
        let found = ask!(self.functions, nvmlDeviceGetHandleByIndex_v2(index));
        found.map(|handle| Device { library: self, handle })
    }

    /// The GPU or MIG device of this UUID.
    ///
    /// # Errors
    /// There is none, or it cannot be reached.
    pub fn device_by_uuid(&self, uuid: &str) -> Result<Device<'_>, NvmlError> {
        let uuid = CString::new(uuid)
            .map_err(|_| bad_answer("nvmlDeviceGetHandleByUUID", "the UUID has a NUL in it"))?;
        let found = ask!(self.functions, nvmlDeviceGetHandleByUUID(uuid.as_ptr()));
        found.map(|handle| Device { library: self, handle })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Nobody can do anything about it.
        let _ = call!(self.functions, nvmlShutdown());
        // SAFETY: nothing uses the functions after this; handles borrow the library.
        unsafe { ManuallyDrop::drop(&mut self.functions) };
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}
