//! What users write for a device: the configurations of the Go driver, `resource.nvidia.com/v1beta1`.

mod mps;

use dra_kubeletplugin::{AllocatedClaim, AllocatedDevice, ConfigError, DeviceConfig, OpaqueConfig};
use serde::Deserialize;

use crate::inventory::Offer;

pub(crate) use mps::MpsConfig;

const API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// How a device is to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    /// As it is.
    #[default]
    Plain,
    /// By several processes in turn.
    TimeSlicing(Interval),
    /// By several processes at once.
    Mps(MpsConfig),
    /// By a virtual machine.
    Vfio(VfioUse),
}

/// How a virtual machine drives a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VfioUse {
    /// By IOMMUFD where the kernel has it.
    pub(crate) prefer_iommufd: bool,
    /// Whether the container gets the node of the kernel's interface too, beside that of the GPU. Off unless asked for, as in
    /// the Go driver.
    pub(crate) api_device: bool,
}

/// For a whole GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct GpuConfig {
    sharing: Option<Sharing>,
}

/// For a MIG device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct MigDeviceConfig {
    sharing: Option<Sharing>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sharing {
    strategy: Strategy,
    time_slicing_config: Option<TimeSlicingConfig>,
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
    Default = 0,
    Short = 1,
    Medium = 2,
    Long = 3,
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
        self as u8
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

/// How a claim wants one of its devices to be used, and which of its configurations says so: the one that counts most. One
/// that is for all requests is passed over where it is of another kind, if it is of the kind of another device of the claim.
///
/// # Errors
/// A configuration is of a kind that does not go with the device, or has a mistake.
pub(crate) fn use_of(
    claim: &AllocatedClaim,
    (device, offer): (&AllocatedDevice, &Offer),
    all: &[(&AllocatedDevice, Offer)],
) -> Result<(Use, Option<usize>), ConfigError> {
    let mut wanted = match offer {
        Offer::Vfio(_) => VfioDeviceConfig::default().how(),
        _ => Use::Plain,
    };
    let mut said_by = None;
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
        said_by = claim.configs().iter().position(|one| std::ptr::eq(one, config));
    }
    if matches!((offer, &wanted), (Offer::NewMig(..), Use::Mps(_))) {
        let reason = "MPS does not go with MIG devices that are made as claims ask for them";
        return Err(ConfigError::new("sharing.strategy", reason));
    }
    Ok((wanted, said_by))
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
        self.sharing.as_ref().map_or(Ok(Use::Plain), Sharing::how)
    }
}

impl MigDeviceConfig {
    fn how(&self) -> Result<Use, ConfigError> {
        let Some(sharing) = &self.sharing else { return Ok(Use::Plain) };
        if sharing.time_slicing_config.is_some() {
            return Err(ConfigError::new("sharing.timeSlicingConfig", "is for whole GPUs"));
        }
        Ok(match sharing.how()? {
            Use::TimeSlicing(_) => Use::Plain,
            usage => usage,
        })
    }
}

impl Sharing {
    fn how(&self) -> Result<Use, ConfigError> {
        match (self.strategy, &self.time_slicing_config, &self.mps_config) {
            (Strategy::TimeSlicing, _, Some(_)) => Err(misplaced("mpsConfig", "TimeSlicing")),
            (Strategy::TimeSlicing, config, None) => {
                let interval = config.as_ref().and_then(|config| config.interval).unwrap_or_default();
                Ok(Use::TimeSlicing(interval))
            }
            (Strategy::Mps, Some(_), _) => Err(misplaced("timeSlicingConfig", "MPS")),
            (Strategy::Mps, None, config) => Ok(Use::Mps(config.clone().unwrap_or_default())),
        }
    }
}

fn misplaced(field: &str, strategy: &str) -> ConfigError {
    ConfigError::new(&format!("sharing.{field}"), format!("does not go with the strategy {strategy}"))
}

impl VfioDeviceConfig {
    /// The way that every kernel has, unless the other one is preferred.
    fn how(&self) -> Use {
        let iommu = self.iommu.as_ref();
        let policy = iommu.and_then(|iommu| iommu.backend_policy).unwrap_or(BackendPolicy::LegacyOnly);
        let api_device = iommu.and_then(|iommu| iommu.enable_api_device).unwrap_or(false);
        Use::Vfio(VfioUse { prefer_iommufd: policy == BackendPolicy::PreferIommuFD, api_device })
    }
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
        assert_eq!(gpu(&json!({"sharing": {"strategy": "MPS"}})), Ok(Use::Mps(MpsConfig::default())));
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
            (
                json!({"sharing": {"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": "1"}}}}),
                "parameters.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.0: must be at least 1Mi",
            ),
            (
                json!({"sharing": {"strategy": "MPS", "mpsConfig": {"multiUser": true}}}),
                "parameters.sharing.mpsConfig.multiUser: unknown field",
            ),
        ];
        for (fields, expected) in table {
            let error = gpu(&fields).unwrap_err();
            assert!(error.starts_with(expected), "{error} should start with {expected}");
        }
    }

    #[test]
    fn a_mig_device_is_shared_by_mps_or_as_it_is() {
        let mig = |sharing: &Value| {
            let object = json!({"apiVersion": API_VERSION, "kind": "MigDeviceConfig", "sharing": sharing});
            MigDeviceConfig::decode(&object)
                .and_then(|config| config.how())
                .map_err(|error| error.to_string())
        };
        assert_eq!(mig(&Value::Null), Ok(Use::Plain));
        assert_eq!(mig(&json!({"strategy": "TimeSlicing"})), Ok(Use::Plain));
        assert_eq!(mig(&json!({"strategy": "MPS", "mpsConfig": {}})), Ok(Use::Mps(MpsConfig::default())));
        let error = mig(&json!({"strategy": "TimeSlicing", "timeSlicingConfig": {}})).unwrap_err();
        assert_eq!(error, "parameters.sharing.timeSlicingConfig: is for whole GPUs");
        let error = mig(&json!({"strategy": "TimeSlicing", "mpsConfig": {}})).unwrap_err();
        assert!(error.starts_with("parameters.sharing.mpsConfig: does not go with"), "{error}");
    }

    #[test]
    fn a_virtual_machine_gets_the_way_that_every_kernel_has_unless_it_asks() {
        let vfio = |iommu: &Value| {
            let object = json!({"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": iommu});
            VfioDeviceConfig::decode(&object).map(|config| config.how()).map_err(|error| error.to_string())
        };
        let usage = |prefer_iommufd, api_device| Ok(Use::Vfio(VfioUse { prefer_iommufd, api_device }));
        assert_eq!(vfio(&Value::Null), usage(false, false), "the Go driver's default");
        let asked = json!({"backendPolicy": "PreferIommuFD", "enableAPIDevice": true});
        assert_eq!(vfio(&asked), usage(true, true));
        let error = vfio(&json!({"backendPolicy": "Any"})).unwrap_err();
        assert!(error.starts_with("parameters.iommu.backendPolicy: unknown variant"), "{error}");
    }

    #[test]
    fn intervals_have_the_numbers_of_nvidia_smi() {
        let all = [Interval::Default, Interval::Short, Interval::Medium, Interval::Long];
        assert_eq!(all.map(Interval::number), [0, 1, 2, 3]);
    }
}
