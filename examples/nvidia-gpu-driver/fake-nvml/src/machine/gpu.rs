//! One GPU.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Ecc, Event, Faults, MigInstance, Process, Text};
use crate::mig::Profile;
use crate::{Error, Model};

/// A GPU of the machine: a model, and where this one differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the file")]
pub struct Gpu {
    /// What it is.
    pub model: Model,
    /// Which one: the UUID, minor number, PCI address and serial number follow from it. Stays when GPUs around it go.
    pub number: u32,
    /// In place of the one that follows from the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Text>,
    /// In place of the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// In place of the number: the N of `/dev/nvidiaN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// In place of the one that follows from the number, as `00000000:07:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// In place of the one that follows from the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Text>,
    /// In place of the model's; may be 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// In place of the model's: a number of `nvmlDeviceArchitecture_t`, known or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<u32>,
    /// In place of 14, `NVIDIA`: a number of `nvmlBrandType_t`, known or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<u32>,
    /// In place of the model's: major and minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<(i32, i32)>,
    /// Whether MIG is on before a call has changed it. Only for models that have it.
    #[serde(default)]
    pub mig: bool,
    /// The instances that it has before a call has changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<MigInstance>,
    /// Ids of profiles whose placements are an invalid argument, as of one that the GPU lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaceable: Vec<u32>,
    /// Whether it has the profile that CUDA 13.2 has added, the 18th: three slices with graphics.
    #[serde(default)]
    pub newest_profile: bool,
    /// Its minor number from the first change of MIG mode on, which may unbind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_after_mig: Option<u32>,
    /// Whether a change of MIG mode waits for a reset, as in a virtual machine.
    #[serde(default)]
    pub mig_needs_reset: bool,
    /// What `nvidia-smi` shows as recovery action: 0 none, 1 reset, 2 reboot, 3 drain, 4 drain and reset. Without one, it is
    /// not supported, as before driver 570.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_action: Option<u32>,
    /// Fallen off the bus: it is still counted, and every call on it says so.
    #[serde(default)]
    pub lost: bool,
    /// A number of `nvmlDeviceAddressingModeType_t`. Without one, the mode is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing_mode: Option<u32>,
    /// Its place on a board of several. Without one, it is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_id: Option<u32>,
    /// Its NUMA node, for those that are one. Without one, it is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Errors of its memory.
    #[serde(default, skip_serializing_if = "Ecc::is_good")]
    pub ecc: Ecc,
    /// What has happened on it, oldest first: those added while a program waits are delivered to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Who computes on it: their instances cannot be destroyed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// What goes wrong in calls on it.
    #[serde(default, skip_serializing_if = "Faults::is_empty")]
    pub faults: Faults,
}

impl Gpu {
    /// A healthy one, with MIG off.
    #[must_use]
    pub fn new(model: Model, number: u32) -> Self {
        Self {
            model,
            number,
            uuid: None,
            name: None,
            minor: None,
            pci: None,
            serial: None,
            memory_mib: None,
            architecture: None,
            brand: None,
            compute_capability: None,
            mig: false,
            instances: Vec::new(),
            unplaceable: Vec::new(),
            newest_profile: false,
            minor_after_mig: None,
            mig_needs_reset: false,
            recovery_action: Some(0),
            lost: false,
            addressing_mode: None,
            module_id: None,
            numa_node: None,
            ecc: Ecc::default(),
            events: Vec::new(),
            processes: Vec::new(),
            faults: Faults::default(),
        }
    }

    /// Its UUID, as `GPU-…`.
    #[must_use]
    pub fn uuid(&self) -> Text {
        self.uuid.clone().unwrap_or_else(|| {
            let number = self.number;
            format!("GPU-{number:08x}-fa4e-4000-8000-{number:012x}").into()
        })
    }

    /// The N of its `/dev/nvidiaN`.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor.unwrap_or(self.number)
    }

    /// Its memory in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.memory_mib.unwrap_or_else(|| self.model.memory_mib())
    }

    /// The shapes it can be cut into.
    pub(crate) fn profiles(&self) -> Vec<Profile> {
        let mut profiles = self.model.profiles();
        if self.newest_profile {
            profiles.extend(self.model.newest_profile());
        }
        profiles
    }

    pub(crate) fn profile(&self, id: u32) -> Option<Profile> {
        self.profiles().into_iter().find(|profile| profile.id == id)
    }

    pub(crate) fn name(&self) -> Text {
        let given = self.name.clone();
        given.unwrap_or_else(|| self.model.name().into())
    }

    pub(crate) fn serial(&self) -> Text {
        let given = self.serial.clone();
        given.unwrap_or_else(|| format!("{:013}", 1_320_000_000_000 + u64::from(self.number)).into())
    }

    pub(crate) fn pci_address(&self) -> Result<PciAddress, Error> {
        match &self.pci {
            Some(text) => text.parse().map_err(|()| {
                Error::Machine(format!(
                    "the PCI address {text:?} of GPU {} is not like 00000000:07:00.0",
                    self.number
                ))
            }),
            None => Ok(PciAddress::of_number(self.number)),
        }
    }
}

/// Where a PCI device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PciAddress {
    pub(crate) domain: u32,
    pub(crate) bus: u8,
    pub(crate) device: u8,
    function: u8,
}

impl PciAddress {
    /// Bus 7 and up, with room for a bridge between two.
    fn of_number(number: u32) -> Self {
        let [low, ..] = number.to_le_bytes();
        Self { domain: number / 16, bus: 7 + 8 * (low % 16), device: 0, function: 0 }
    }

    /// With four digits for the domain, as NVML's older functions have it.
    pub(crate) fn legacy(self) -> String {
        format!("{:04X}:{:02X}:{:02X}.{}", self.domain & 0xffff, self.bus, self.device, self.function)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:08X}:{bus:02X}:{device:02X}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = ();

    /// Reads the forms that NVML takes: four or eight digits for the domain, or none.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, function) = text.rsplit_once('.').unwrap_or((text, "0"));
        let parts: Vec<_> = address.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [domain, bus, device] => (domain, bus, device),
            [bus, device] if bus.len() == 2 => ("0", bus, device),
            _ => return Err(()),
        };
        Ok(Self {
            domain: u32::from_str_radix(domain, 16).map_err(drop)?,
            bus: u8::from_str_radix(bus, 16).map_err(drop)?,
            device: u8::from_str_radix(device, 16).map_err(drop)?,
            function: function.parse().map_err(drop)?,
        })
    }
}
