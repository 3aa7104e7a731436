//! Partitions of a GPU: GPU instances, which have memory and engines of their own, and compute instances on them.

use std::ptr;

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Device, NvmlError,
    call::{bad_answer, call},
};

/// More than any GPU has of anything here.
const MOST: u32 = 64;

/// A shape that a GPU instance may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GpuInstanceProfile {
    /// The number of the profile in NVML's list; `id` is that of the GPU.
    pub index: u32,
    /// By what instances are made, and what `nvidia-smi mig -lgip` shows.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// How many instances of it fit on an empty GPU.
    pub instances: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow engines.
    pub ofa_engines: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// Memory slices of a GPU, from `start` on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Placement {
    /// First.
    pub start: u32,
    /// How many.
    pub size: u32,
}

/// A handle of a GPU instance.
#[derive(Clone, Copy, Debug)]
pub struct GpuInstance<'l> {
    device: Device<'l>,
    handle: sys::nvmlGpuInstance_t,
}

/// A handle of a compute instance.
#[derive(Clone, Copy, Debug)]
pub struct ComputeInstance<'l> {
    device: Device<'l>,
    handle: sys::nvmlComputeInstance_t,
    slices: u32,
}

/// What is known of a GPU instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GpuInstanceInfo {
    /// Its number on its GPU.
    pub id: u32,
    /// Its profile.
    pub profile_id: u32,
    /// Where on the GPU it is.
    pub placement: Placement,
}

/// What is known of a compute instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ComputeInstanceInfo {
    /// Its number on its GPU instance.
    pub id: u32,
    /// Its profile.
    pub profile_id: u32,
}

impl GpuInstanceProfile {
    /// A profile that uses nothing yet, to be filled.
    #[must_use]
    pub fn new(index: u32, id: u32, slices: u32, memory_mib: u64) -> Self {
        Self {
            index,
            id,
            slices,
            instances: 0,
            multiprocessors: 0,
            copy_engines: 0,
            decoders: 0,
            encoders: 0,
            jpeg_engines: 0,
            ofa_engines: 0,
            memory_mib,
        }
    }
}

impl Placement {
    /// So many memory slices from `start` on.
    #[must_use]
    pub fn new(start: u32, size: u32) -> Self {
        Self { start, size }
    }
}

impl<'l> Device<'l> {
    /// The profiles that this GPU has.
    ///
    /// # Errors
    /// A call failed.
    pub fn gpu_instance_profiles(&self) -> Result<Vec<GpuInstanceProfile>, NvmlError> {
        let mut profiles = Vec::new();
        for index in 0..sys::NVML_GPU_INSTANCE_PROFILE_COUNT {
            match self.gpu_instance_profile(index) {
                Ok(profile) => profiles.push(profile),
                // Not every GPU has every profile.
                Err(error) if error.is_not_supported() || error.is_invalid_argument() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(profiles)
    }

    fn gpu_instance_profile(&self, index: u32) -> Result<GpuInstanceProfile, NvmlError> {
        let mut info = sys::nvmlGpuInstanceProfileInfo_t {
            id: 0,
            isP2pSupported: 0,
            sliceCount: 0,
            instanceCount: 0,
            multiprocessorCount: 0,
            copyEngineCount: 0,
            decoderCount: 0,
            encoderCount: 0,
            jpegCount: 0,
            ofaCount: 0,
            memorySizeMB: 0,
        };
        call!(
            self.library.functions,
            nvmlDeviceGetGpuInstanceProfileInfo(self.handle, index, &raw mut info)
        )?;
        Ok(GpuInstanceProfile {
            index,
            id: info.id,
            slices: info.sliceCount,
            instances: info.instanceCount,
            multiprocessors: info.multiprocessorCount,
            copy_engines: info.copyEngineCount,
            decoders: info.decoderCount,
            encoders: info.encoderCount,
            jpeg_engines: info.jpegCount,
            ofa_engines: info.ofaCount,
            memory_mib: info.memorySizeMB,
        })
    }

    /// Where instances of a profile may be, whether or not something is there now.
    ///
    /// # Errors
    /// The call failed.
    pub fn possible_placements(&self, profile_id: u32) -> Result<Vec<Placement>, NvmlError> {
        let function = "nvmlDeviceGetGpuInstancePossiblePlacements_v2";
        let mut placements = [sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; MOST as usize];
        let mut count = MOST;
        call!(
            self.library.functions,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                self.handle,
                profile_id,
                placements.as_mut_ptr(),
                &raw mut count
            )
        )?;
        let placements = placements
            .get(..count as usize)
            .ok_or_else(|| bad_answer(function, "more placements than any GPU has"))?;
        Ok(placements.iter().map(|placement| Placement::new(placement.start, placement.size)).collect())
    }

    /// Makes a GPU instance at this place.
    ///
    /// # Errors
    /// Something else is there, or MIG mode is off.
    pub fn create_gpu_instance(
        &self,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstance<'l>, NvmlError> {
        let placement = sys::nvmlGpuInstancePlacement_t { start: placement.start, size: placement.size };
        let mut handle = ptr::null_mut();
        call!(
            self.library.functions,
            nvmlDeviceCreateGpuInstanceWithPlacement(
                self.handle,
                profile_id,
                &raw const placement,
                &raw mut handle
            )
        )?;
        GpuInstance::new(*self, handle, "nvmlDeviceCreateGpuInstanceWithPlacement")
    }

    /// The GPU instances of a profile that are there now.
    ///
    /// # Errors
    /// The call failed.
    pub fn gpu_instances(&self, profile_id: u32) -> Result<Vec<GpuInstance<'l>>, NvmlError> {
        let function = "nvmlDeviceGetGpuInstances";
        let mut handles: [sys::nvmlGpuInstance_t; MOST as usize] = [ptr::null_mut(); MOST as usize];
        let mut count = MOST;
        call!(
            self.library.functions,
            nvmlDeviceGetGpuInstances(self.handle, profile_id, handles.as_mut_ptr(), &raw mut count)
        )?;
        let handles = handles
            .get(..count as usize)
            .ok_or_else(|| bad_answer(function, "more instances than any GPU has"))?;
        handles.iter().map(|handle| GpuInstance::new(*self, *handle, function)).collect()
    }

    /// The GPU instance of this number.
    ///
    /// # Errors
    /// There is none.
    pub fn gpu_instance(&self, id: u32) -> Result<GpuInstance<'l>, NvmlError> {
        let mut handle = ptr::null_mut();
        call!(self.library.functions, nvmlDeviceGetGpuInstanceById(self.handle, id, &raw mut handle))?;
        GpuInstance::new(*self, handle, "nvmlDeviceGetGpuInstanceById")
    }
}

impl<'l> GpuInstance<'l> {
    fn new(
        device: Device<'l>,
        handle: sys::nvmlGpuInstance_t,
        function: &'static str,
    ) -> Result<Self, NvmlError> {
        if handle.is_null() {
            return Err(bad_answer(function, "no handle"));
        }
        Ok(Self { device, handle })
    }

    /// What it is, and where.
    ///
    /// # Errors
    /// The call failed.
    pub fn info(&self) -> Result<GpuInstanceInfo, NvmlError> {
        let mut info = sys::nvmlGpuInstanceInfo_t {
            device: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        call!(self.device.library.functions, nvmlGpuInstanceGetInfo(self.handle, &raw mut info))?;
        Ok(GpuInstanceInfo {
            id: info.id,
            profile_id: info.profileId,
            placement: Placement::new(info.placement.start, info.placement.size),
        })
    }

    /// Makes a compute instance with so many slices: one with as many as the GPU instance has uses it whole.
    ///
    /// # Errors
    /// There is no such profile, or no room.
    pub fn create_compute_instance(&self, slices: u32) -> Result<ComputeInstance<'l>, NvmlError> {
        for index in 0..sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
            match self.compute_instance_profile(index) {
                Ok((id, found)) if found == slices => {
                    let mut handle = ptr::null_mut();
                    call!(
                        self.device.library.functions,
                        nvmlGpuInstanceCreateComputeInstance(self.handle, id, &raw mut handle)
                    )?;
                    let function = "nvmlGpuInstanceCreateComputeInstance";
                    return ComputeInstance::new(self.device, handle, slices, function);
                }
                Ok(_) => {}
                Err(error) if error.is_not_supported() || error.is_invalid_argument() => {}
                Err(error) => return Err(error),
            }
        }
        Err(bad_answer("nvmlGpuInstanceGetComputeInstanceProfileInfo", "no profile with as many slices"))
    }

    /// The compute instances on it.
    ///
    /// # Errors
    /// A call failed.
    pub fn compute_instances(&self) -> Result<Vec<ComputeInstance<'l>>, NvmlError> {
        let function = "nvmlGpuInstanceGetComputeInstances";
        let mut found = Vec::new();
        for index in 0..sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
            let (profile, slices) = match self.compute_instance_profile(index) {
                Ok(profile) => profile,
                Err(error) if error.is_not_supported() || error.is_invalid_argument() => continue,
                Err(error) => return Err(error),
            };
            let mut handles: [sys::nvmlComputeInstance_t; MOST as usize] = [ptr::null_mut(); MOST as usize];
            let mut count = MOST;
            call!(
                self.device.library.functions,
                nvmlGpuInstanceGetComputeInstances(
                    self.handle,
                    profile,
                    handles.as_mut_ptr(),
                    &raw mut count
                )
            )?;
            let handles = handles
                .get(..count as usize)
                .ok_or_else(|| bad_answer(function, "more instances than any GPU has"))?;
            for handle in handles {
                found.push(ComputeInstance::new(self.device, *handle, slices, function)?);
            }
        }
        Ok(found)
    }

    /// Removes it. Its compute instances have to go first.
    ///
    /// # Errors
    /// It is in use.
    pub fn destroy(self) -> Result<(), NvmlError> {
        call!(self.device.library.functions, nvmlGpuInstanceDestroy(self.handle))
    }

    /// Number and slices of a profile.
    fn compute_instance_profile(&self, index: u32) -> Result<(u32, u32), NvmlError> {
        let mut info = sys::nvmlComputeInstanceProfileInfo_t {
            id: 0,
            sliceCount: 0,
            instanceCount: 0,
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
        };
        call!(
            self.device.library.functions,
            nvmlGpuInstanceGetComputeInstanceProfileInfo(
                self.handle,
                index,
                sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
                &raw mut info
            )
        )?;
        Ok((info.id, info.sliceCount))
    }
}

impl<'l> ComputeInstance<'l> {
    fn new(
        device: Device<'l>,
        handle: sys::nvmlComputeInstance_t,
        slices: u32,
        function: &'static str,
    ) -> Result<Self, NvmlError> {
        if handle.is_null() {
            return Err(bad_answer(function, "no handle"));
        }
        Ok(Self { device, handle, slices })
    }

    /// How many slices of its GPU instance it has.
    #[must_use]
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// What it is.
    ///
    /// # Errors
    /// The call failed.
    pub fn info(&self) -> Result<ComputeInstanceInfo, NvmlError> {
        let mut info = sys::nvmlComputeInstanceInfo_t {
            device: ptr::null_mut(),
            gpuInstance: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        call!(self.device.library.functions, nvmlComputeInstanceGetInfo_v2(self.handle, &raw mut info))?;
        Ok(ComputeInstanceInfo { id: info.id, profile_id: info.profileId })
    }

    /// Removes it.
    ///
    /// # Errors
    /// It is in use.
    pub fn destroy(self) -> Result<(), NvmlError> {
        call!(self.device.library.functions, nvmlComputeInstanceDestroy(self.handle))
    }
}
