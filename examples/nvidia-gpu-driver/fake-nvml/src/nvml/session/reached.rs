//! What calls reach: GPUs, and what is on them.

use std::sync::Arc;

use super::super::border::Handle;
use super::super::code::Code;
use super::call::Call;
use super::handles::Target;
use super::{folder, machine, session};
use crate::hardware::Refusal;
use crate::machine::PciAddress;
use crate::mig::Profile;
use crate::{ComputeInstance, Gpu, GpuHardware, GpuInstance, Machine, Process, Text};

impl Call {
    /// The GPU of the handle. A MIG device is none.
    pub(crate) fn gpu(&self, handle: Handle) -> Result<GpuRef, Code> {
        match self.device(handle)? {
            Device::Gpu(gpu) => Ok(gpu),
            Device::Mig(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    /// The MIG device of the handle. A GPU is none.
    pub(crate) fn mig_device(&self, handle: Handle) -> Result<ComputeRef, Code> {
        match self.device(handle)? {
            Device::Mig(device) => Ok(device),
            Device::Gpu(_) => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// The GPU or MIG device of the handle.
    pub(crate) fn device(&self, handle: Handle) -> Result<Device, Code> {
        let target = session().handles.target(handle)?;
        match target {
            Target::Gpu(address) => Ok(Device::Gpu(self.reach(address)?)),
            Target::MigDevice(address, made) => Ok(Device::Mig(self.reach(address)?.compute(made)?)),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// The GPU instance of the handle.
    pub(crate) fn instance(&self, handle: Handle) -> Result<InstanceRef, Code> {
        let target = session().handles.target(handle)?;
        match target {
            Target::GpuInstance(address, made) => {
                self.reach(address)?.instance(|instance| instance.made == made)
            }
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// The compute instance of the handle.
    pub(crate) fn compute(&self, handle: Handle) -> Result<ComputeRef, Code> {
        let target = session().handles.target(handle)?;
        match target {
            Target::ComputeInstance(address, made) => self.reach(address)?.compute(made),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// The first GPU that fits.
    pub(crate) fn find_gpu(&self, fits: impl Fn(usize, &Gpu) -> bool) -> Result<GpuRef, Code> {
        let machine = machine()?;
        let mut gpus = machine.gpus.iter().enumerate();
        let (_, gpu) = gpus.find(|(index, gpu)| fits(*index, gpu)).ok_or(Code::NOT_FOUND)?;
        self.reach(gpu.pci_address()?)
    }

    /// The MIG device with this UUID. GPUs that cannot be reached have none.
    pub(crate) fn find_mig(&self, uuid: &[u8]) -> Result<ComputeRef, Code> {
        for gpu in &machine()?.gpus {
            let Ok(gpu) = self.reach(gpu.pci_address()?) else {
                continue;
            };
            for device in gpu.mig_devices()? {
                if device.info().uuid.as_bytes() == uuid {
                    return Ok(device);
                }
            }
        }
        Err(Code::NOT_FOUND)
    }

    /// A GPU, after what goes wrong with calls on it. One that was taken out is lost, as one that fell off the bus.
    pub(crate) fn reach(&self, address: PciAddress) -> Result<GpuRef, Code> {
        self.suffer(|machine| Some(&place(machine, address)?.1.faults))?;
        let machine = machine()?;
        let (index, gpu) = place(&machine, address).ok_or(Code::GPU_IS_LOST)?;
        if gpu.lost {
            return Err(Code::GPU_IS_LOST);
        }
        super::hold(Some(address))?;
        Ok(GpuRef { index, address, machine: Arc::clone(&machine) })
    }
}

pub(super) fn place(machine: &Machine, address: PciAddress) -> Option<(usize, &Gpu)> {
    let mut gpus = machine.gpus.iter().enumerate();
    gpus.find(|(_, gpu)| gpu.pci_address().is_ok_and(|other| other == address))
}

/// What a device handle stands for.
pub(crate) enum Device {
    Gpu(GpuRef),
    Mig(ComputeRef),
}

impl Device {
    /// The GPU, which MIG devices share.
    pub(crate) fn gpu(&self) -> &GpuRef {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Mig(device) => &device.on.gpu,
        }
    }

    pub(crate) fn uuid(&self) -> Text {
        match self {
            Self::Gpu(gpu) => gpu.uuid(),
            Self::Mig(device) => device.info().uuid.clone().into(),
        }
    }

    pub(crate) fn name(&self) -> Text {
        match self {
            Self::Gpu(gpu) => gpu.name(),
            Self::Mig(device) => match device.on.gpu.name() {
                Text::Plain(name) => format!("{name} MIG {}", device.on.info().name).into(),
                raw @ Text::Raw { .. } => raw,
            },
        }
    }

    pub(crate) fn memory_mib(&self) -> Result<u64, Code> {
        match self {
            Self::Gpu(gpu) => Ok(gpu.memory_mib()),
            Self::Mig(device) => Ok(device.on.profile()?.memory_mib),
        }
    }
}

impl Device {
    /// The processes that compute on it.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let all = self.gpu().processes.iter().cloned();
        match self {
            Self::Gpu(_) => all.collect(),
            Self::Mig(device) => {
                let ids = (device.on.info().id, device.info().id);
                all.filter(|process| (process.gpu_instance, process.compute_instance) == ids).collect()
            }
        }
    }
}

/// A GPU of the machine that can be reached.
#[derive(Clone)]
pub(crate) struct GpuRef {
    pub(crate) index: usize,
    pub(crate) address: PciAddress,
    machine: Arc<Machine>,
}

impl std::ops::Deref for GpuRef {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.machine.gpus[self.index]
    }
}

impl GpuRef {
    pub(crate) fn handle(&self) -> Handle {
        session().handles.of(Target::Gpu(self.address))
    }

    /// What calls did to it.
    pub(crate) fn hardware(&self) -> Result<GpuHardware, Code> {
        Ok(folder()?.hardware()?.gpu(self))
    }

    /// Changes it, for all processes and for good.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut GpuHardware) -> Result<T, Refusal>,
    ) -> Result<T, Code> {
        folder()?.change_gpu(self, |hardware| change(hardware).map_err(Code::from))
    }

    /// The GPU instance that fits.
    pub(crate) fn instance(&self, fits: impl Fn(&GpuInstance) -> bool) -> Result<InstanceRef, Code> {
        let hardware = self.hardware()?;
        let place = hardware.instances.iter().position(fits).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(InstanceRef { gpu: self.clone(), hardware, place })
    }

    /// Its GPU instances of one profile.
    pub(crate) fn instances(&self, profile: u32) -> Result<Vec<InstanceRef>, Code> {
        let instances = self.hardware()?.instances;
        let those = instances.iter().filter(|instance| instance.profile == profile);
        those.map(|one| self.instance(|other| other.made == one.made)).collect()
    }

    /// Its MIG devices, in the order of their indexes.
    pub(crate) fn mig_devices(&self) -> Result<Vec<ComputeRef>, Code> {
        let instances = self.hardware()?.instances;
        let all = instances.iter().flat_map(|instance| &instance.compute_instances);
        all.map(|compute| self.compute(compute.made)).collect()
    }

    fn compute(&self, made: u64) -> Result<ComputeRef, Code> {
        let is_it = |compute: &ComputeInstance| compute.made == made;
        let on = self.instance(|instance| instance.compute_instances.iter().any(is_it))?;
        on.compute(is_it)
    }
}

/// A GPU instance that is there.
#[derive(Clone)]
pub(crate) struct InstanceRef {
    pub(crate) gpu: GpuRef,
    pub(crate) hardware: GpuHardware,
    place: usize,
}

impl InstanceRef {
    pub(crate) fn info(&self) -> &GpuInstance {
        &self.hardware.instances[self.place]
    }

    pub(crate) fn handle(&self) -> Handle {
        session().handles.of(Target::GpuInstance(self.gpu.address, self.info().made))
    }

    pub(crate) fn profile(&self) -> Result<Profile, Code> {
        self.gpu.profile(self.info().profile).ok_or(Code::UNKNOWN)
    }

    /// The compute instance on it that fits.
    pub(crate) fn compute(&self, fits: impl Fn(&ComputeInstance) -> bool) -> Result<ComputeRef, Code> {
        let place = self.info().compute_instances.iter().position(fits).ok_or(Code::INVALID_ARGUMENT)?;
        Ok(ComputeRef { on: self.clone(), place })
    }
}

/// A compute instance that is there.
pub(crate) struct ComputeRef {
    pub(crate) on: InstanceRef,
    place: usize,
}

impl ComputeRef {
    pub(crate) fn info(&self) -> &ComputeInstance {
        &self.on.info().compute_instances[self.place]
    }

    pub(crate) fn handle(&self) -> Handle {
        session().handles.of(Target::ComputeInstance(self.on.gpu.address, self.info().made))
    }

    /// The handle of the device that it is.
    pub(crate) fn device_handle(&self) -> Handle {
        session().handles.of(Target::MigDevice(self.on.gpu.address, self.info().made))
    }
}
