//! One GPU, or one MIG device.

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Library, NvmlError,
    call::{ask, bad_answer, blank, call, read, version_of},
    text::text,
};

/// A handle of a GPU or of a MIG device.
#[derive(Clone, Copy, Debug)]
pub struct Device<'l> {
    pub(crate) library: &'l Library,
    pub(crate) handle: sys::nvmlDevice_t,
}

/// How a GPU reaches memory of the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AddressingMode {
    /// Neither of the others.
    None,
    /// Heterogeneous memory management, by the kernel.
    Hmm,
    /// Address translation services, by the hardware.
    Ats,
}

/// Which processes may use a GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Any number.
    Default,
    /// One at a time: the server of MPS.
    ExclusiveProcess,
}

/// What one call tells of a device.
macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $way:ident $function:ident();)*) => {
        impl Device<'_> {
            $(
                $(#[$doc])*
                #[doc = "\n# Errors\nThe call failed."]
                pub fn $name(&self) -> Result<$type, NvmlError> {
                    $way!(self.library.functions, $function(self.handle))
                }
            )*
        }
    };
}

properties! {
    /// `GPU-` or `MIG-` and a UUID.
    uuid: String = read nvmlDeviceGetUUID();
    /// Product name, such as `NVIDIA A100-SXM4-40GB`.
    name: String = read nvmlDeviceGetName();
    /// The N of `/dev/nvidiaN`.
    minor_number: u32 = ask nvmlDeviceGetMinorNumber();
    /// Brand, as a number of NVML.
    brand: u32 = ask nvmlDeviceGetBrand();
    /// Architecture, as a number of NVML.
    architecture: u32 = ask nvmlDeviceGetArchitecture();
    /// How many MIG devices the GPU may have at most.
    max_mig_devices: u32 = ask nvmlDeviceGetMaxMigDeviceCount();
    /// The number of the GPU instance that this MIG device is on.
    gpu_instance_id: u32 = ask nvmlDeviceGetGpuInstanceId();
    /// The number of the compute instance that this MIG device is.
    compute_instance_id: u32 = ask nvmlDeviceGetComputeInstanceId();
}

impl Device<'_> {
    /// Version of what CUDA can do on the GPU, major and minor.
    ///
    /// # Errors
    /// The call failed.
    pub fn cuda_compute_capability(&self) -> Result<(i32, i32), NvmlError> {
        let mut major = 0;
        let minor =
            ask!(self.library.functions, nvmlDeviceGetCudaComputeCapability(self.handle, &raw mut major))?;
        Ok((major, minor))
    }

    /// Memory of the GPU in bytes, what the driver keeps for itself included.
    ///
    /// # Errors
    /// The call failed; "not supported" on GPUs without memory of their own.
    pub fn memory_bytes(&self) -> Result<u64, NvmlError> {
        Ok(ask!(self.library.functions, nvmlDeviceGetMemoryInfo(self.handle))?.total)
    }

    /// Place on the PCI bus: domain, bus, device and function as the library writes them, `00000000:65:00.0`.
    ///
    /// # Errors
    /// The call failed.
    pub fn pci_bus_id(&self) -> Result<String, NvmlError> {
        Ok(text(&ask!(self.library.functions, nvmlDeviceGetPciInfo_v3(self.handle))?.busId))
    }

    /// How the GPU reaches memory of the system.
    ///
    /// # Errors
    /// The call failed.
    pub fn addressing_mode(&self) -> Result<AddressingMode, NvmlError> {
        let mut mode = sys::nvmlDeviceAddressingMode_t {
            version: version_of::<sys::nvmlDeviceAddressingMode_t>(1),
            value: 0,
        };
        call!(self.library.functions, nvmlDeviceGetAddressingMode(self.handle, &raw mut mode))?;
        match mode.value {
            sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE => Ok(AddressingMode::None),
            sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM => Ok(AddressingMode::Hmm),
            sys::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS => Ok(AddressingMode::Ats),
            _ => Err(bad_answer("nvmlDeviceGetAddressingMode", "an unknown mode")),
        }
    }

    /// Whether the GPU is partitioned now; that may be another thing than after its next reset.
    ///
    /// # Errors
    /// The call failed; "not supported" on GPUs that cannot be.
    pub fn is_partitioned(&self) -> Result<bool, NvmlError> {
        let mut current = 0;
        ask!(self.library.functions, nvmlDeviceGetMigMode(self.handle, &raw mut current))?;
        Ok(current == sys::NVML_DEVICE_MIG_ENABLE)
    }

    /// Turns partitioning on or off, now or after a reset. The GPU's minor number may change, and handles have to be looked up
    /// again (`nvml.h`, `nvmlDeviceSetMigMode`).
    ///
    /// # Errors
    /// The call failed, or the change did not come into effect: then it is pending.
    pub fn set_mig_mode(&self, on: bool) -> Result<(), NvmlError> {
        let status = ask!(self.library.functions, nvmlDeviceSetMigMode(self.handle, u32::from(on)))?;
        crate::call::check("nvmlDeviceSetMigMode", status)
    }

    /// What an operator has to do before the GPU is well again: none, a reset, a reboot and so on, as a number of NVML (field
    /// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
    ///
    /// # Errors
    /// "Not supported" before driver 570.
    pub fn recovery_action(&self) -> Result<u32, NvmlError> {
        const RECOVERY_ACTION: u32 = 230;
        let function = "nvmlDeviceGetFieldValues";
        let mut field = blank::<sys::nvmlFieldValue_t>();
        field.fieldId = RECOVERY_ACTION;
        call!(self.library.functions, nvmlDeviceGetFieldValues(self.handle, 1, &raw mut field))?;
        crate::call::check(function, field.nvmlReturn)?;
        if field.valueType == sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT {
            // SAFETY: the library says that this is the member that it has set.
            Ok(unsafe { field.value.uiVal })
        } else {
            Err(bad_answer(function, "a recovery action that is no number"))
        }
    }

    /// Says which processes may use the GPU.
    ///
    /// # Errors
    /// The call failed.
    pub fn set_compute_mode(&self, mode: ComputeMode) -> Result<(), NvmlError> {
        let mode = match mode {
            ComputeMode::Default => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT,
            ComputeMode::ExclusiveProcess => sys::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        };
        call!(self.library.functions, nvmlDeviceSetComputeMode(self.handle, mode))
    }

    /// The numbers of the processes that compute on the GPU or MIG device, as far as this process may see them: 0 stands
    /// for one in a namespace that it does not see.
    ///
    /// # Errors
    /// The call failed, or there are thousands.
    pub fn compute_processes(&self) -> Result<Vec<u32>, NvmlError> {
        const MANY: u32 = 4096;
        let function = "nvmlDeviceGetComputeRunningProcesses_v3";
        let mut room = 16;
        while room <= MANY {
            // With twice the room that is told: some drivers of 535 write a larger structure under this name.
            let mut found = vec![blank::<sys::nvmlProcessInfo_t>(); 2 * room as usize];
            let mut count = room;
            let outcome = call!(
                self.library.functions,
                nvmlDeviceGetComputeRunningProcesses_v3(self.handle, &raw mut count, found.as_mut_ptr())
            );
            match outcome {
                Err(error) if error.is_insufficient_size() => room *= 4,
                outcome => {
                    outcome?;
                    return Ok(found.iter().take(count.min(room) as usize).map(|one| one.pid).collect());
                }
            }
        }
        Err(bad_answer(function, "more processes than can be listed"))
    }

    /// Whether both are handles of the same device. The library gives a GPU one handle as long as it is open.
    #[must_use]
    pub fn is_same(&self, other: &Device<'_>) -> bool {
        self.handle == other.handle
    }

    /// The MIG device of this index. The indices have gaps.
    ///
    /// # Errors
    /// "Not found" for a gap.
    pub fn mig_device(&self, index: u32) -> Result<Self, NvmlError> {
        let found = ask!(self.library.functions, nvmlDeviceGetMigDeviceHandleByIndex(self.handle, index));
        found.map(|handle| Self { library: self.library, handle })
    }
}
