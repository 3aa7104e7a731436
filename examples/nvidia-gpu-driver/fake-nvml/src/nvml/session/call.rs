//! One call, from what goes wrong with it to what it reaches.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use nvml_wrapper_sys::bindings::nvmlReturn_enum_NVML_SUCCESS;

use super::super::border::Handle;
use super::super::code::Code;
use super::handles::Target;
use super::{FOLDER, machine, session};
use crate::machine::PciAddress;
use crate::{Faults, Gpu, Machine, Moment};

/// How often a call that is held looks whether it still is.
const HELD: Duration = Duration::from_millis(10);

/// A call of a function.
pub(crate) struct Call {
    name: &'static str,
    /// A fault said that the process ends when the call is done.
    ends_process: Cell<bool>,
}

impl Call {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ends_process: Cell::new(false) }
    }

    pub(super) fn run(self, body: impl FnOnce(&Self) -> Result<(), Code>) -> Result<(), Code> {
        let result = self.attempt(body);
        self.log(result);
        if self.ends_process.get() {
            end_process();
        }
        result
    }

    fn attempt(&self, body: impl FnOnce(&Self) -> Result<(), Code>) -> Result<(), Code> {
        self.suffer(|machine| Some(&machine.faults))?;
        if !self.name.starts_with("nvmlInit") && session().users == 0 {
            return Err(Code::UNINITIALIZED);
        }
        body(self)
    }

    /// What the handle stands for, if it is a GPU that can be reached.
    pub(crate) fn gpu(&self, handle: Handle) -> Result<GpuRef, Code> {
        let Device::Gpu(gpu) = self.device(handle)?;
        Ok(gpu)
    }

    /// The device of the handle, after what goes wrong with its GPU.
    pub(crate) fn device(&self, handle: Handle) -> Result<Device, Code> {
        let target = session().handles.target(handle)?;
        let Target::Gpu(address) = target;
        Ok(Device::Gpu(self.reach(address)?))
    }

    /// The first GPU that fits, after what goes wrong with it.
    pub(crate) fn find_gpu(&self, fits: impl Fn(usize, &Gpu) -> bool) -> Result<GpuRef, Code> {
        let machine = machine()?;
        let mut gpus = machine.gpus.iter().enumerate();
        let (_, gpu) = gpus.find(|(index, gpu)| fits(*index, gpu)).ok_or(Code::NOT_FOUND)?;
        self.reach(gpu.pci_address().map_err(super::complain)?)
    }

    /// A GPU that was taken out is lost, as one that fell off the bus.
    fn reach(&self, address: PciAddress) -> Result<GpuRef, Code> {
        self.suffer(|machine| Some(&place(machine, address)?.1.faults))?;
        let machine = machine()?;
        let (index, gpu) = place(&machine, address).ok_or(Code::GPU_IS_LOST)?;
        if gpu.lost {
            return Err(Code::GPU_IS_LOST);
        }
        Ok(GpuRef { index, address, machine: Arc::clone(&machine) })
    }

    /// Waits, fails or ends the process as the faults say.
    fn suffer(&self, faults: impl Fn(&Machine) -> Option<&Faults>) -> Result<(), Code> {
        let machine = loop {
            let machine = machine()?;
            match faults(&machine) {
                Some(faults) if faults.hold.contains(self.name) => thread::sleep(HELD),
                Some(_) => break machine,
                None => return Ok(()),
            }
        };
        let Some(faults) = faults(&machine) else {
            return Ok(());
        };
        if let Some(milliseconds) = faults.slow_ms.get(self.name) {
            thread::sleep(Duration::from_millis(*milliseconds));
        }
        match faults.crash.get(self.name) {
            Some(Moment::Before) => end_process(),
            Some(Moment::After) => self.ends_process.set(true),
            None => {}
        }
        faults.fail.get(self.name).map_or(Ok(()), |code| Err(Code(*code)))
    }

    fn log(&self, result: Result<(), Code>) {
        let (Some(folder), Ok(machine)) = (FOLDER.as_ref(), machine()) else {
            return;
        };
        if !machine.log_calls {
            return;
        }
        let code = result.map_or_else(|code| code.0, |()| nvmlReturn_enum_NVML_SUCCESS);
        let line = format!("{} {} {code}\n", std::process::id(), self.name);
        let file = OpenOptions::new().append(true).create(true).open(folder.calls_path());
        // One write for each line: those of several processes do not mix.
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            super::complain(error);
        }
    }
}

/// What a device handle stands for.
pub(crate) enum Device {
    Gpu(GpuRef),
}

/// A GPU of the machine that can be reached.
pub(crate) struct GpuRef {
    pub(crate) index: usize,
    pub(crate) address: PciAddress,
    machine: Arc<Machine>,
}

impl GpuRef {
    pub(crate) fn handle(&self) -> Handle {
        session().handles.of(Target::Gpu(self.address))
    }
}

impl std::ops::Deref for GpuRef {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.machine.gpus[self.index]
    }
}

fn place(machine: &Machine, address: PciAddress) -> Option<(usize, &Gpu)> {
    let mut gpus = machine.gpus.iter().enumerate();
    gpus.find(|(_, gpu)| gpu.pci_address().is_ok_and(|other| other == address))
}

/// Nothing of the process runs after this, as with `kill -9`.
fn end_process() {
    if raise(Signal::SIGKILL).is_err() {
        std::process::abort();
    }
}
