//! One GPU, or one MIG device.

use std::ptr;

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Library, NvmlError,
    call::{bad_answer, call, version_of},
    text::text,
};

const TEXT: u32 = 96;

/// A handle of a GPU or of a MIG device.
#[derive(Clone, Copy, Debug)]
pub struct Device<'l> {
    pub(crate) library: &'l Library,
    pub(crate) handle: sys::nvmlDevice_t,
}

/// Whether a GPU is partitioned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MigMode {
    /// Now.
    pub current: bool,
    /// After the next reset of the GPU.
    pub pending: bool,
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

/// Where a GPU is on the PCI bus, and what it is.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PciInfo {
    /// Domain, bus, device and function as the library writes them: `00000000:65:00.0`.
    pub bus_id: String,
    /// Device in the upper 16 bits, vendor in the lower.
    pub device_id: u32,
}

impl<'l> Device<'l> {
    pub(crate) fn new(
        library: &'l Library,
        handle: sys::nvmlDevice_t,
        function: &'static str,
    ) -> Result<Self, NvmlError> {
        if handle.is_null() {
            return Err(bad_answer(function, "no handle"));
        }
        Ok(Self { library, handle })
    }

    /// Whether two handles are of one device.
    #[must_use]
    pub fn is_same(&self, other: &Device<'_>) -> bool {
        ptr::eq(self.handle, other.handle)
    }

    /// `GPU-` or `MIG-` and a UUID.
    ///
    /// # Errors
    /// The call failed.
    pub fn uuid(&self) -> Result<String, NvmlError> {
        let mut buffer = [0; TEXT as usize];
        call!(self.library.functions, nvmlDeviceGetUUID(self.handle, buffer.as_mut_ptr(), TEXT))?;
        Ok(text(&buffer))
    }

    /// Product name, such as `NVIDIA A100-SXM4-40GB`.
    ///
    /// # Errors
    /// The call failed.
    pub fn name(&self) -> Result<String, NvmlError> {
        let mut buffer = [0; TEXT as usize];
        call!(self.library.functions, nvmlDeviceGetName(self.handle, buffer.as_mut_ptr(), TEXT))?;
        Ok(text(&buffer))
    }

    /// The N of `/dev/nvidiaN`.
    ///
    /// # Errors
    /// The call failed.
    pub fn minor_number(&self) -> Result<u32, NvmlError> {
        let mut minor = 0;
        call!(self.library.functions, nvmlDeviceGetMinorNumber(self.handle, &raw mut minor))?;
        Ok(minor)
    }

    /// Brand, as a number of NVML.
    ///
    /// # Errors
    /// The call failed.
    pub fn brand(&self) -> Result<u32, NvmlError> {
        let mut brand = 0;
        call!(self.library.functions, nvmlDeviceGetBrand(self.handle, &raw mut brand))?;
        Ok(brand)
    }

    /// Architecture, as a number of NVML.
    ///
    /// # Errors
    /// The call failed.
    pub fn architecture(&self) -> Result<u32, NvmlError> {
        let mut architecture = 0;
        call!(self.library.functions, nvmlDeviceGetArchitecture(self.handle, &raw mut architecture))?;
        Ok(architecture)
    }

    /// Version of what CUDA can do on the GPU, major and minor.
    ///
    /// # Errors
    /// The call failed.
    pub fn cuda_compute_capability(&self) -> Result<(i32, i32), NvmlError> {
        let (mut major, mut minor) = (0, 0);
        call!(
            self.library.functions,
            nvmlDeviceGetCudaComputeCapability(self.handle, &raw mut major, &raw mut minor)
        )?;
        Ok((major, minor))
    }

    /// Memory of the GPU in bytes, what the driver keeps for itself included.
    ///
    /// # Errors
    /// The call failed; "not supported" on GPUs without memory of their own.
    pub fn memory_bytes(&self) -> Result<u64, NvmlError> {
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        call!(self.library.functions, nvmlDeviceGetMemoryInfo(self.handle, &raw mut memory))?;
        Ok(memory.total)
    }

    /// Place on the PCI bus.
    ///
    /// # Errors
    /// The call failed.
    pub fn pci_info(&self) -> Result<PciInfo, NvmlError> {
        let mut pci = sys::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        call!(self.library.functions, nvmlDeviceGetPciInfo_v3(self.handle, &raw mut pci))?;
        Ok(PciInfo { bus_id: text(&pci.busId), device_id: pci.pciDeviceId })
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

    /// Whether the GPU is partitioned.
    ///
    /// # Errors
    /// The call failed; "not supported" on GPUs that cannot be.
    pub fn mig_mode(&self) -> Result<MigMode, NvmlError> {
        let (mut current, mut pending) = (0, 0);
        call!(self.library.functions, nvmlDeviceGetMigMode(self.handle, &raw mut current, &raw mut pending))?;
        Ok(MigMode {
            current: current == sys::NVML_DEVICE_MIG_ENABLE,
            pending: pending == sys::NVML_DEVICE_MIG_ENABLE,
        })
    }

    /// Turns partitioning on or off. Older GPUs need a reset before it counts.
    ///
    /// # Errors
    /// The call failed, or the change did not come into effect.
    pub fn set_mig_mode(&self, on: bool) -> Result<(), NvmlError> {
        let mut status = 0;
        call!(self.library.functions, nvmlDeviceSetMigMode(self.handle, u32::from(on), &raw mut status))?;
        crate::call::check("nvmlDeviceSetMigMode", status)
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

    /// How many MIG devices the GPU may have at most.
    ///
    /// # Errors
    /// The call failed.
    pub fn max_mig_devices(&self) -> Result<u32, NvmlError> {
        let mut count = 0;
        call!(self.library.functions, nvmlDeviceGetMaxMigDeviceCount(self.handle, &raw mut count))?;
        Ok(count)
    }

    /// The MIG device of this index. The indices have gaps.
    ///
    /// # Errors
    /// "Not found" for a gap.
    pub fn mig_device(&self, index: u32) -> Result<Device<'l>, NvmlError> {
        let mut handle = ptr::null_mut();
        call!(
            self.library.functions,
            nvmlDeviceGetMigDeviceHandleByIndex(self.handle, index, &raw mut handle)
        )?;
        Device::new(self.library, handle, "nvmlDeviceGetMigDeviceHandleByIndex")
    }

    /// The number of the GPU instance that this MIG device is on.
    ///
    /// # Errors
    /// The call failed.
    pub fn gpu_instance_id(&self) -> Result<u32, NvmlError> {
        let mut id = 0;
        call!(self.library.functions, nvmlDeviceGetGpuInstanceId(self.handle, &raw mut id))?;
        Ok(id)
    }

    /// The number of the compute instance that this MIG device is.
    ///
    /// # Errors
    /// The call failed.
    pub fn compute_instance_id(&self) -> Result<u32, NvmlError> {
        let mut id = 0;
        call!(self.library.functions, nvmlDeviceGetComputeInstanceId(self.handle, &raw mut id))?;
        Ok(id)
    }
}
