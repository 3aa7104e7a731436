//! What users write for a device: the configurations of the Go driver, `resource.nvidia.com/v1beta1`.

use std::collections::BTreeMap;

use dra_kubeletplugin::{AllocatedClaim, AllocatedDevice, ConfigError, DeviceConfig, OpaqueConfig};
use serde::Deserialize;

use crate::inventory::Offer;

const API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// How a device is to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    /// As it is.
    #[default]
    Plain,
    /// By several processes in turn.
    TimeSlicing(Interval),
    /// By a virtual machine.
    Vfio(VfioUse),
}

/// How a virtual machine drives a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VfioUse {
    /// By IOMMUFD where the kernel has it.
    pub(crate) prefer_iommufd: bool,
    /// Whether the container gets the node of the kernel's interface too, beside that of the GPU.
    pub(crate) api_device: bool,
}

/// For a whole GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GpuConfig {
    sharing: Option<GpuSharing>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GpuSharing {
    strategy: Strategy,
    time_slicing_config: Option<TimeSlicingConfig>,
    mps_config: Option<MpsConfig>,
}

/// For a MIG device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigDeviceConfig {
    sharing: Option<MigSharing>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MigSharing {
    strategy: Strategy,
    mps_config: Option<MpsConfig>,
}

/// For a GPU that is given to a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VfioDeviceConfig {
    iommu: Option<Iommu>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Iommu {
    backend_policy: Option<BackendPolicy>,
    #[serde(rename = "enableAPIDevice")]
    enable_api_device: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum BackendPolicy {
    LegacyOnly,
    PreferIommuFD,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Strategy {
    TimeSlicing,
    #[serde(rename = "MPS")]
    Mps,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TimeSlicingConfig {
    interval: Option<Interval>,
}

/// How long a process has the GPU for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Interval {
    #[default]
    Default,
    Short,
    Medium,
    Long,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MpsConfig {
    #[serde(rename = "defaultActiveThreadPercentage")]
    active_thread_percentage: Option<u8>,
    #[serde(rename = "defaultPinnedDeviceMemoryLimit")]
    pinned_memory_limit: Option<String>,
    #[serde(rename = "defaultPerDevicePinnedMemoryLimit")]
    pinned_memory_limits: Option<BTreeMap<String, String>>,
}

impl DeviceConfig for GpuConfig {
    const API_VERSION: &'static str = API_VERSION;
    const KIND: &'static str = "GpuConfig";
}

impl DeviceConfig for MigDeviceConfig {
    const API_VERSION: &'static str = API_VERSION;
    const KIND: &'static str = "MigDeviceConfig";
}

impl DeviceConfig for VfioDeviceConfig {
    const API_VERSION: &'static str = API_VERSION;
    const KIND: &'static str = "VfioDeviceConfig";
}

impl Interval {
    /// The number that `nvidia-smi compute-policy --set-timeslice` takes.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Short => 1,
            Self::Medium => 2,
            Self::Long => 3,
        }
    }
}

/// Checks a configuration by itself.
///
/// # Errors
/// It is of no kind of this driver, or has a mistake.
pub(crate) fn validate(config: &OpaqueConfig) -> Result<(), ConfigError> {
    let parameters = config.parameters();
    if config.is::<MigDeviceConfig>() {
        MigDeviceConfig::decode(parameters)?.how().map(drop)
    } else if config.is::<VfioDeviceConfig>() {
        VfioDeviceConfig::decode(parameters).map(drop)
    } else if config.is::<GpuConfig>() || parameters["apiVersion"] != API_VERSION {
        GpuConfig::decode(parameters)?.how().map(drop)
    } else {
        let kinds = [GpuConfig::KIND, MigDeviceConfig::KIND, VfioDeviceConfig::KIND];
        Err(ConfigError::new("kind", format!("must be one of {kinds:?}, not {}", parameters["kind"])))
    }
}

/// How a claim wants one of its devices to be used: the configuration that counts most. One that is for all requests is
/// passed over where it is of another kind, if it is of the kind of another device of the claim.
///
/// # Errors
/// A configuration is of a kind that does not go with the device, or has a mistake.
pub(crate) fn use_of(
    claim: &AllocatedClaim,
    (device, offer): (&AllocatedDevice, &Offer),
    all: &[(&AllocatedDevice, Offer)],
) -> Result<Use, ConfigError> {
    let mut wanted = match offer {
        Offer::Vfio(_) => VfioDeviceConfig::default().how(),
        _ => Use::Plain,
    };
    for config in claim.configs_of(device) {
        let is_for_another = || all.iter().any(|(_, offer)| fits(config, offer));
        if !fits(config, offer) && config.requests().is_empty() && is_for_another() {
            continue;
        }
        wanted = match offer {
            Offer::Gpu(_) => GpuConfig::decode(config.parameters())?.how()?,
            Offer::Mig(..) | Offer::NewMig(..) => MigDeviceConfig::decode(config.parameters())?.how()?,
            Offer::Vfio(_) => VfioDeviceConfig::decode(config.parameters())?.how(),
        };
    }
    Ok(wanted)
}

fn fits(config: &OpaqueConfig, offer: &Offer) -> bool {
    match offer {
        Offer::Gpu(_) => config.is::<GpuConfig>(),
        Offer::Mig(..) | Offer::NewMig(..) => config.is::<MigDeviceConfig>(),
        Offer::Vfio(_) => config.is::<VfioDeviceConfig>(),
    }
}

impl GpuConfig {
    fn how(&self) -> Result<Use, ConfigError> {
        let Some(sharing) = &self.sharing else { return Ok(Use::Plain) };
        match (sharing.strategy, &sharing.time_slicing_config, &sharing.mps_config) {
            (Strategy::TimeSlicing, _, Some(_)) => {
                Err(ConfigError::new("sharing.mpsConfig", "does not go with the strategy TimeSlicing"))
            }
            (Strategy::TimeSlicing, config, None) => {
                let interval = config.as_ref().and_then(|config| config.interval).unwrap_or_default();
                Ok(Use::TimeSlicing(interval))
            }
            (Strategy::Mps, Some(_), _) => {
                Err(ConfigError::new("sharing.timeSlicingConfig", "does not go with the strategy MPS"))
            }
            (Strategy::Mps, None, _) => Err(no_mps()),
        }
    }
}

impl MigDeviceConfig {
    fn how(&self) -> Result<Use, ConfigError> {
        match self.sharing.as_ref().map(|sharing| (sharing.strategy, &sharing.mps_config)) {
            None | Some((Strategy::TimeSlicing, None)) => Ok(Use::Plain),
            Some((Strategy::TimeSlicing, Some(_))) => {
                Err(ConfigError::new("sharing.mpsConfig", "does not go with the strategy TimeSlicing"))
            }
            Some((Strategy::Mps, _)) => Err(no_mps()),
        }
    }
}

impl VfioDeviceConfig {
    /// The way that every kernel has, unless the other one is preferred.
    fn how(&self) -> Use {
        let iommu = self.iommu.as_ref();
        let policy = iommu.and_then(|iommu| iommu.backend_policy).unwrap_or(BackendPolicy::LegacyOnly);
        let api_device = iommu.and_then(|iommu| iommu.enable_api_device).unwrap_or(true);
        Use::Vfio(VfioUse { prefer_iommufd: policy == BackendPolicy::PreferIommuFD, api_device })
    }
}

fn no_mps() -> ConfigError {
    ConfigError::new("sharing.strategy", "MPS is not offered by this driver; use TimeSlicing")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gpu(fields: &Value) -> Result<Use, String> {
        let mut object = json!({"apiVersion": API_VERSION, "kind": "GpuConfig"});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        GpuConfig::decode(&object).and_then(|config| config.how()).map_err(|error| error.to_string())
    }

    #[test]
    fn sharing_is_read_and_mistakes_are_told_with_their_field() {
        let slicing = |interval: &str| json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}});
        assert_eq!(gpu(&json!({})), Ok(Use::Plain));
        assert_eq!(gpu(&slicing("Long")), Ok(Use::TimeSlicing(Interval::Long)));
        assert_eq!(
            gpu(&json!({"sharing": {"strategy": "TimeSlicing"}})),
            Ok(Use::TimeSlicing(Interval::Default))
        );
        let table = [
            (slicing("long"), "parameters.sharing.timeSlicingConfig.interval: unknown variant `long`"),
            (json!({"sharing": {"strategy": "Magic"}}), "parameters.sharing.strategy: unknown variant"),
            (json!({"sharing": {"strategy": "TimeSlicing", "x": 1}}), "parameters.sharing.x: unknown field"),
            (
                json!({"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}}),
                "parameters.sharing.mpsConfig: does not go with",
            ),
            (
                json!({"sharing": {"strategy": "MPS", "timeSlicingConfig": {}}}),
                "parameters.sharing.timeSlicingConfig: does not go with",
            ),
            (json!({"sharing": {"strategy": "MPS"}}), "parameters.sharing.strategy: MPS is not offered"),
        ];
        for (fields, expected) in table {
            let error = gpu(&fields).unwrap_err();
            assert!(error.starts_with(expected), "{error} should start with {expected}");
        }
    }

    #[test]
    fn a_virtual_machine_gets_the_way_that_every_kernel_has_unless_it_asks() {
        let vfio = |iommu: &Value| {
            let object = json!({"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": iommu});
            VfioDeviceConfig::decode(&object).map(|config| config.how()).map_err(|error| error.to_string())
        };
        let usage = |prefer_iommufd, api_device| Ok(Use::Vfio(VfioUse { prefer_iommufd, api_device }));
        assert_eq!(vfio(&Value::Null), usage(false, true));
        let asked = json!({"backendPolicy": "PreferIommuFD", "enableAPIDevice": false});
        assert_eq!(vfio(&asked), usage(true, false));
        let error = vfio(&json!({"backendPolicy": "Any"})).unwrap_err();
        assert!(error.starts_with("parameters.iommu.backendPolicy: unknown variant"), "{error}");
    }

    #[test]
    fn intervals_have_the_numbers_of_nvidia_smi() {
        let all = [Interval::Default, Interval::Short, Interval::Medium, Interval::Long];
        assert_eq!(all.map(Interval::number), [0, 1, 2, 3]);
    }
}
