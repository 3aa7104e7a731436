//! Partitions of a GPU: GPU instances, which have memory and engines of their own, and compute instances on them.

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Device, Library, NvmlError,
    call::{MOST, ask, bad_answer, call, list},
};

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
    library: &'l Library,
    handle: sys::nvmlGpuInstance_t,
}

/// A handle of a compute instance.
#[derive(Clone, Copy, Debug)]
pub struct ComputeInstance<'l> {
    library: &'l Library,
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

impl GpuInstanceProfile {
    /// A profile that uses nothing yet, to be filled.
    #[must_use]
    pub fn new(index: u32, id: u32, slices: u32, memory_mib: u64) -> Self {
        Self {
            index,
            id,
            slices,
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

    /// Whether both have a slice in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start.saturating_add(other.size)
            && other.start < self.start.saturating_add(self.size)
    }
}

impl From<sys::nvmlGpuInstancePlacement_t> for Placement {
    fn from(placement: sys::nvmlGpuInstancePlacement_t) -> Self {
        Self::new(placement.start, placement.size)
    }
}

impl<'l> Device<'l> {
    /// The profiles that this GPU has.
    ///
    /// # Errors
    /// A call failed.
    pub fn gpu_instance_profiles(&self) -> Result<Vec<GpuInstanceProfile>, NvmlError> {
        existing(|index| {
            let info = ask!(self.library.functions, nvmlDeviceGetGpuInstanceProfileInfo(self.handle, index))?;
            Ok(GpuInstanceProfile {
                index,
                id: info.id,
                slices: info.sliceCount,
                multiprocessors: info.multiprocessorCount,
                copy_engines: info.copyEngineCount,
                decoders: info.decoderCount,
                encoders: info.encoderCount,
                jpeg_engines: info.jpegCount,
                ofa_engines: info.ofaCount,
                memory_mib: info.memorySizeMB,
            })
        })
    }

    /// Where instances of a profile may be, whether or not something is there now.
    ///
    /// # Errors
    /// The call failed.
    pub fn possible_placements(&self, profile_id: u32) -> Result<Vec<Placement>, NvmlError> {
        let placements = list!(
            self.library.functions,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(self.handle, profile_id)
        );
        Ok(placements?.into_iter().map(Placement::from).collect())
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
        let made = ask!(
            self.library.functions,
            nvmlDeviceCreateGpuInstanceWithPlacement(self.handle, profile_id, &raw const placement)
        );
        made.map(|handle| GpuInstance { library: self.library, handle })
    }

    /// The GPU instances of a profile that are there now.
    ///
    /// # Errors
    /// The call failed.
    pub fn gpu_instances(&self, profile_id: u32) -> Result<Vec<GpuInstance<'l>>, NvmlError> {
        let handles = list!(self.library.functions, nvmlDeviceGetGpuInstances(self.handle, profile_id))?;
        Ok(handles.into_iter().map(|handle| GpuInstance { library: self.library, handle }).collect())
    }

    /// The GPU instance of this number.
    ///
    /// # Errors
    /// There is none.
    pub fn gpu_instance(&self, id: u32) -> Result<GpuInstance<'l>, NvmlError> {
        let found = ask!(self.library.functions, nvmlDeviceGetGpuInstanceById(self.handle, id));
        found.map(|handle| GpuInstance { library: self.library, handle })
    }
}

impl<'l> GpuInstance<'l> {
    /// What it is, and where.
    ///
    /// # Errors
    /// The call failed.
    pub fn info(&self) -> Result<GpuInstanceInfo, NvmlError> {
        let info = ask!(self.library.functions, nvmlGpuInstanceGetInfo(self.handle))?;
        Ok(GpuInstanceInfo { id: info.id, profile_id: info.profileId, placement: info.placement.into() })
    }

    /// Makes a compute instance with so many slices: one with as many as the GPU instance has uses it whole.
    ///
    /// # Errors
    /// There is no such profile, or no room.
    pub fn create_compute_instance(&self, slices: u32) -> Result<ComputeInstance<'l>, NvmlError> {
        let fits = |profile: &sys::nvmlComputeInstanceProfileInfo_t| profile.sliceCount == slices;
        let profile = self.compute_instance_profiles()?.into_iter().find(fits).ok_or_else(|| {
            bad_answer("nvmlGpuInstanceGetComputeInstanceProfileInfo", "no profile with as many slices")
        })?;
        let made =
            ask!(self.library.functions, nvmlGpuInstanceCreateComputeInstance(self.handle, profile.id));
        made.map(|handle| ComputeInstance { library: self.library, handle, slices })
    }

    /// The compute instances on it.
    ///
    /// # Errors
    /// A call failed.
    pub fn compute_instances(&self) -> Result<Vec<ComputeInstance<'l>>, NvmlError> {
        let mut found = Vec::new();
        for profile in self.compute_instance_profiles()? {
            let handles =
                list!(self.library.functions, nvmlGpuInstanceGetComputeInstances(self.handle, profile.id))?;
            let slices = profile.sliceCount;
            let those =
                handles.into_iter().map(|handle| ComputeInstance { library: self.library, handle, slices });
            found.extend(those);
        }
        Ok(found)
    }

    /// Removes it. Its compute instances have to go first.
    ///
    /// # Errors
    /// It is in use.
    pub fn destroy(self) -> Result<(), NvmlError> {
        call!(self.library.functions, nvmlGpuInstanceDestroy(self.handle))
    }

    fn compute_instance_profiles(&self) -> Result<Vec<sys::nvmlComputeInstanceProfileInfo_t>, NvmlError> {
        let engines = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        existing(|index| {
            ask!(
                self.library.functions,
                nvmlGpuInstanceGetComputeInstanceProfileInfo(self.handle, index, engines)
            )
        })
    }
}

impl ComputeInstance<'_> {
    /// How many slices of its GPU instance it has.
    #[must_use]
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// Its number on its GPU instance.
    ///
    /// # Errors
    /// The call failed.
    pub fn id(&self) -> Result<u32, NvmlError> {
        Ok(ask!(self.library.functions, nvmlComputeInstanceGetInfo_v2(self.handle))?.id)
    }

    /// Removes it.
    ///
    /// # Errors
    /// It is in use.
    pub fn destroy(self) -> Result<(), NvmlError> {
        call!(self.library.functions, nvmlComputeInstanceDestroy(self.handle))
    }
}

/// Those that there are. "Not supported" is a profile that this GPU lacks, and an invalid argument is behind the last one that
/// the library knows, which may know more than this binding (`nvml.h`, `nvmlDeviceGetGpuInstanceProfileInfo`).
fn existing<T>(profile: impl Fn(u32) -> Result<T, NvmlError>) -> Result<Vec<T>, NvmlError> {
    let is_behind =
        |profile: &Result<T, NvmlError>| profile.as_ref().is_err_and(NvmlError::is_invalid_argument);
    let is_missing =
        |profile: &Result<T, NvmlError>| profile.as_ref().is_err_and(NvmlError::is_not_supported);
    (0..MOST).map(profile).take_while(|one| !is_behind(one)).filter(|one| !is_missing(one)).collect()
}
