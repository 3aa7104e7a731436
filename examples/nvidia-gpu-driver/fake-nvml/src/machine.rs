//! The machine that the library imitates: its GPUs, its driver, and what is wrong with them.

mod activity;
mod faults;
mod gpu;
mod mig;
mod text;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use activity::{Ecc, Event, Process};
pub use faults::{Faults, Moment};
pub use gpu::Gpu;
pub(crate) use gpu::PciAddress;
pub use mig::MigInstance;
pub use text::Text;

use crate::Error;
use crate::hardware::GpuHardware;

/// As many GPUs as a machine may have.
const MOST_GPUS: usize = 16;

/// What a [`Folder`](crate::Folder) says of the machine, in `machine.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Machine {
    /// Version of the kernel driver.
    pub driver_version: Text,
    /// Version of the library.
    pub nvml_version: Text,
    /// Newest CUDA that the driver serves: 1000 × major + 10 × minor.
    pub cuda_driver_version: i32,
    /// In NVML's order: the first one has index 0.
    pub gpus: Vec<Gpu>,
    /// What goes wrong in calls, whichever the GPU.
    #[serde(skip_serializing_if = "Faults::is_empty")]
    pub faults: Faults,
    /// Whether the module `nvidia-uvm` is not loaded, which CUDA needs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_uvm: bool,
    /// Whether each call is written to the folder, for [`Folder::calls`](crate::Folder::calls).
    pub log_calls: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            driver_version: "580.82.07".into(),
            nvml_version: "13.580.82.07".into(),
            cuda_driver_version: 13_000,
            gpus: Vec::new(),
            faults: Faults::default(),
            without_uvm: false,
            log_calls: false,
        }
    }
}

impl Machine {
    /// A machine with these GPUs and nothing wrong.
    #[must_use]
    pub fn new(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self { gpus: gpus.into_iter().collect(), ..Self::default() }
    }

    /// Refuses what cannot be: a typing error should not look like a healthy machine.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.gpus.len() > MOST_GPUS {
            return Err(Error::Machine(format!(
                "it has {} GPUs, at most {MOST_GPUS} are possible",
                self.gpus.len()
            )));
        }
        let mut numbers = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for gpu in &self.gpus {
            if !numbers.insert(gpu.number) {
                return Err(Error::Machine(format!("two GPUs have number {}", gpu.number)));
            }
            if !addresses.insert(gpu.pci_address()?) {
                return Err(Error::Machine(format!(
                    "GPU {} is at the PCI address of another one, {}",
                    gpu.number,
                    gpu.pci_address()?
                )));
            }
            gpu.faults.check(&format!("GPU {}", gpu.number))?;
            let beginning = GpuHardware::beginning(gpu);
            beginning.map_err(|reason| Error::Machine(format!("GPU {}: {reason}", gpu.number)))?;
        }
        self.faults.check("the machine")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn refused(machine: &Machine) -> String {
        machine.check().expect_err("not possible").to_string()
    }

    #[test]
    fn a_machine_is_read_as_it_was_written() {
        let mut gpu = Gpu::new(Model::H100Sxm5_80Gb, 3);
        gpu.name = Some(Text::Raw { bytes: vec![0xff, 0xfe], unterminated: true });
        gpu.faults.fail.insert("nvmlDeviceGetUUID".to_owned(), 999);
        let machine = Machine::new([gpu]);
        let text = serde_json::to_string(&machine).expect("writes");
        assert_eq!(serde_json::from_str::<Machine>(&text).expect("reads"), machine);
    }

    #[test]
    fn a_field_that_does_not_exist_is_refused() {
        let error = serde_json::from_str::<Machine>(r#"{"gpu": []}"#).expect_err("no such field");
        assert!(error.to_string().contains("unknown field `gpu`"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let twice = Machine::new([Gpu::new(Model::L4, 1), Gpu::new(Model::L4, 1)]);
        assert!(refused(&twice).contains("two GPUs have number 1"));

        let many = Machine::new((0..17).map(|number| Gpu::new(Model::L4, number)));
        assert!(refused(&many).contains("17 GPUs"));

        let mut wrong_name = Machine::new([Gpu::new(Model::L4, 0)]);
        wrong_name.gpus[0].faults.fail.insert("nvmlDeviceGetUuid".to_owned(), 1);
        let error = refused(&wrong_name);
        assert!(error.contains("GPU 0") && error.contains("nvmlDeviceGetUuid"), "{error}");

        let mut same_address = Machine::new([Gpu::new(Model::L4, 0), Gpu::new(Model::L4, 1)]);
        same_address.gpus[1].pci = Some(same_address.gpus[0].pci_address().expect("default").to_string());
        assert!(refused(&same_address).contains("PCI address of another one"));

        let mut without_mig = Machine::new([Gpu::new(Model::L4, 4)]);
        without_mig.gpus[0].mig = true;
        assert!(refused(&without_mig).contains("GPU 4: MIG is on"));

        let mut overlap = Machine::new([Gpu::new(Model::A100Sxm4_40Gb, 0)]);
        overlap.gpus[0].mig = true;
        overlap.gpus[0].instances = [0, 0].map(|start| MigInstance::new("3g.20gb", start)).into();
        assert!(refused(&overlap).contains("instance 3g.20gb at 0 cannot be: no room"));

        let mut not_an_address = Machine::new([Gpu::new(Model::L4, 0)]);
        not_an_address.gpus[0].pci = Some("7:0".to_owned());
        assert!(refused(&not_an_address).contains("7:0"));
    }
}
