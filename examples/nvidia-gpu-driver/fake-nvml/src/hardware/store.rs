//! Keeping the hardware in its file.

use std::fs;
use std::io::ErrorKind;

use super::{GpuHardware, Hardware};
use crate::folder::write_json;
use crate::{Error, Folder, Gpu, capabilities};

impl Folder {
    /// The GPUs as calls left them, such as the instances that a driver which crashed has left behind.
    ///
    /// # Errors
    ///
    /// If the file is there and cannot be read.
    pub fn hardware(&self) -> Result<Hardware, Error> {
        let path = self.hardware_path();
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(Error::malformed(&path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Hardware::default()),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Starts the machine anew: instances are gone, and what else does not last. MIG stays on where the model keeps it
    /// (those before Hopper).
    ///
    /// # Errors
    ///
    /// If the files cannot be read or written.
    pub fn reboot(&self) -> Result<(), Error> {
        let machine = self.machine()?;
        let _alone = self.lock("hardware.lock")?;
        let mut hardware = self.hardware()?;
        for gpu in &machine.gpus {
            let key = gpu.pci_address()?.to_string();
            let GpuHardware { mig, made, .. } = hardware.gpu(gpu);
            let mig = mig && gpu.model.keeps_mig();
            hardware.gpus.insert(key, GpuHardware { mig, made, ..GpuHardware::default() });
        }
        write_json(&self.hardware_path(), &hardware)?;
        capabilities::write(self, &machine, &hardware)
    }

    /// Changes one GPU, alone among all processes that use this folder. What `change` refuses changes nothing.
    pub(crate) fn change_gpu<T, E: From<Error>>(
        &self,
        gpu: &Gpu,
        change: impl FnOnce(&mut GpuHardware) -> Result<T, E>,
    ) -> Result<T, E> {
        let machine = self.machine()?;
        let _alone = self.lock("hardware.lock")?;
        let mut hardware = self.hardware()?;
        let mut changed = hardware.gpu(gpu);
        let told = change(&mut changed)?;
        hardware.gpus.insert(gpu.pci_address()?.to_string(), changed);
        write_json(&self.hardware_path(), &hardware)?;
        capabilities::write(self, &machine, &hardware)?;
        Ok(told)
    }

    /// Makes the files of `/proc` agree with the hardware, as a driver that is loaded does.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let machine = self.machine()?;
        let _alone = self.lock("hardware.lock")?;
        capabilities::write(self, &machine, &self.hardware()?)
    }

    fn hardware_path(&self) -> std::path::PathBuf {
        self.path().join("hardware.json")
    }
}
