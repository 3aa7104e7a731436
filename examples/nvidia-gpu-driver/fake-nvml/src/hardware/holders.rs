//! Who has the driver and GPUs open, in any process, and what that keeps from happening.

use std::fs::{self, File, TryLockError};

use super::GpuHardware;
use crate::folder::write_json;
use crate::machine::PciAddress;
use crate::{Error, Folder, capabilities};

/// Beside `machine.json` while the driver is not loaded.
const UNLOADED: &str = "machine.unloaded";

impl Folder {
    /// As `nvidia-smi --gpu-reset`: the GPU is as after a start of the driver, and a pending MIG mode counts. Refused while a
    /// program has the GPU open, even if only NVML (NVIDIA/gpu-operator issue 118, NVIDIA/mig-parted issue 181).
    ///
    /// # Errors
    ///
    /// [`Error::InUse`]; or the files cannot be read or written.
    pub fn reset(&self, number: u32) -> Result<(), Error> {
        let machine = self.machine()?;
        let gpu = machine.gpus.iter().find(|gpu| gpu.number == number);
        let gpu = gpu.ok_or_else(|| Error::Machine(format!("there is no GPU {number}")))?;
        let address = gpu.pci_address()?;
        self.ensure_free(Some(address), &format!("a reset of GPU {number}"))?;
        {
            let _alone = self.lock("hardware.lock")?;
            let mut hardware = self.hardware()?;
            let GpuHardware { mig, pending_mig, made, minor, .. } = hardware.gpu(gpu);
            let fresh =
                GpuHardware { mig: pending_mig.unwrap_or(mig), made, minor, ..GpuHardware::default() };
            hardware.gpus.insert(address.to_string(), fresh);
            write_json(&self.path().join("hardware.json"), &hardware)?;
            capabilities::write(self, &machine, &hardware)?;
        }
        self.change(|machine| {
            for gpu in machine.gpus.iter_mut().filter(|gpu| gpu.number == number) {
                gpu.lost = false;
                gpu.recovery_action = gpu.recovery_action.map(|_| 0);
                (gpu.ecc.corrected_volatile, gpu.ecc.uncorrected_volatile) = (0, 0);
            }
        })
    }

    /// As `rmmod nvidia`, which the kernel refuses while a program has a node of the driver open.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`]; or the machine cannot be moved away.
    pub fn unload(&self) -> Result<(), Error> {
        self.ensure_free(None, "unloading the driver")?;
        for gpu in &self.machine()?.gpus {
            self.ensure_free(Some(gpu.pci_address()?), "unloading the driver")?;
        }
        let (from, to) = (self.machine_path(), self.path().join(UNLOADED));
        fs::rename(&from, to).map_err(Error::io("move away", &from))
    }

    /// As `modprobe nvidia` after [`Folder::unload`]: the GPUs are as after a start of the machine.
    ///
    /// # Errors
    ///
    /// If it is not unloaded, or the files cannot be written.
    pub fn load(&self) -> Result<(), Error> {
        let from = self.path().join(UNLOADED);
        fs::rename(&from, self.machine_path()).map_err(Error::io("move back", &from))?;
        self.reboot()
    }

    /// Notes that this process has the driver open, or a GPU, for as long as the file is.
    pub(crate) fn hold(&self, gpu: Option<PciAddress>) -> Result<File, Error> {
        let path = self.path().join(name(gpu));
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        file.lock_shared().map_err(Error::io("lock", &path))?;
        Ok(file)
    }

    fn ensure_free(&self, gpu: Option<PciAddress>, what: &str) -> Result<(), Error> {
        let path = self.path().join(name(gpu));
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(Error::InUse(what.to_owned())),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
        }
    }
}

fn name(gpu: Option<PciAddress>) -> String {
    gpu.map_or_else(|| "open-driver".to_owned(), |address| format!("open-{address}"))
}
