//! A claim as the driver sees it: parsed once from the API object, reduced to the results of this driver.

mod received;

use std::{collections::BTreeMap, fmt};

use dra_resourceslice::{DeviceName, DriverName, PoolName};
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, DeviceToleration, ResourceClaim,
};
use serde::{Deserialize, Serialize};

use crate::{
    config::{ConfigError, ConfigSource, OpaqueConfig},
    names::ClaimUid,
};

pub(crate) use received::{ReceiveError, Received};

/// Which claim: the UID decides, namespace and name say where to look it up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClaimRef {
    /// Namespace of the claim object.
    pub namespace: String,
    /// Name of the claim object; a later claim may have the same.
    pub name: String,
    /// UID of the claim object.
    pub uid: ClaimUid,
}

impl ClaimRef {
    /// Names a claim.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, uid: ClaimUid) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid }
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// A device of this driver: pool and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceRef {
    /// Pool that the device was published in.
    pub pool: PoolName,
    /// Name of the device within the pool.
    pub device: DeviceName,
}

impl DeviceRef {
    /// Names a device.
    #[must_use]
    pub fn new(pool: PoolName, device: DeviceName) -> Self {
        Self { pool, device }
    }
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.device)
    }
}

/// One allocation result: this device answers that request
/// (`status.allocation.devices.results[]` of the claim).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocatedDevice {
    request: String,
    #[serde(flatten)]
    device: DeviceRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share_id: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    admin_access: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    consumed_capacity: BTreeMap<String, String>,
}

impl AllocatedDevice {
    /// A device of a claim that another program has prepared: which request it answers is not known.
    pub(crate) fn adopted(device: DeviceRef, share_id: Option<String>, admin_access: bool) -> Self {
        Self { request: String::new(), device, share_id, admin_access, consumed_capacity: BTreeMap::new() }
    }

    /// The request as the result names it: `gpu`, or `gpu/large` if one of several alternatives was chosen.
    #[must_use]
    pub fn request(&self) -> &str {
        &self.request
    }

    /// The request without the chosen alternative; the kubelet and containers know only this.
    #[must_use]
    pub fn base_request(&self) -> &str {
        self.request.split_once('/').map_or(self.request.as_str(), |(base, _)| base)
    }

    /// The chosen alternative of a `firstAvailable` request.
    #[must_use]
    pub fn subrequest(&self) -> Option<&str> {
        self.request.split_once('/').map(|(_, sub)| sub)
    }

    /// Pool and name of the device.
    #[must_use]
    pub fn device_ref(&self) -> &DeviceRef {
        &self.device
    }

    /// Pool of the device.
    #[must_use]
    pub fn pool(&self) -> &PoolName {
        &self.device.pool
    }

    /// Name of the device within its pool.
    #[must_use]
    pub fn device(&self) -> &DeviceName {
        &self.device.device
    }

    /// Which share of a device that several claims may use at once; a lower-case UUID.
    #[must_use]
    pub fn share_id(&self) -> Option<&str> {
        self.share_id.as_deref()
    }

    /// Whether the claim only watches or manages the device, beside whoever uses it.
    #[must_use]
    pub fn admin_access(&self) -> bool {
        self.admin_access
    }

    /// How much of each capacity this result takes from a shared device, as quantities such as `10Gi`.
    #[must_use]
    pub fn consumed_capacity(&self) -> &BTreeMap<String, String> {
        &self.consumed_capacity
    }
}

/// What a claim was given of this driver. Equal allocations of one claim need no new work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    pub(crate) results: Vec<AllocatedDevice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) configs: Vec<OpaqueConfig>,
}

/// A claim that has been allocated and still is the one that the kubelet asked for.
#[derive(Clone, Debug)]
pub struct AllocatedClaim {
    claim: ClaimRef,
    allocation: Allocation,
    /// Where the results of this driver stand among those of the object.
    indices: Vec<usize>,
    object: ResourceClaim,
}

impl AllocatedClaim {
    /// Judges what the API server has under the claim's name and keeps what belongs to `driver`.
    pub(crate) fn parse(
        driver: &DriverName,
        claim: &ClaimRef,
        object: ResourceClaim,
    ) -> Result<Self, ClaimError> {
        // Checked first: a claim that was made again is usually not allocated yet, and that is not the point.
        let found = object.metadata.uid.as_deref().unwrap_or_default();
        if found != claim.uid.as_str() {
            return Err(ClaimError::Replaced { found: found.to_owned() });
        }
        let allocation = object.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.ok_or(ClaimError::NotAllocated)?.devices.as_ref();
        let results = devices.and_then(|d| d.results.as_deref()).unwrap_or_default();
        let configs = devices.and_then(|d| d.config.as_deref()).unwrap_or_default();
        let ours = || results.iter().enumerate().filter(|(_, result)| result.driver == driver.as_str());
        let indices = ours().map(|(index, _)| index).collect();
        let allocation = Allocation {
            results: ours().map(|(index, result)| parse_result(index, result)).collect::<Result<_, _>>()?,
            configs: configs.iter().filter_map(|config| parse_config(driver, config)).collect(),
        };
        reject_duplicates(&allocation.results)?;
        Ok(Self { claim: claim.clone(), allocation, indices, object })
    }

    /// Namespace, name and UID.
    #[must_use]
    pub fn claim_ref(&self) -> &ClaimRef {
        &self.claim
    }

    /// UID of the claim.
    #[must_use]
    pub fn uid(&self) -> &ClaimUid {
        &self.claim.uid
    }

    /// The results of this driver, in the order of the allocation. Those of other drivers are not here.
    #[must_use]
    pub fn devices(&self) -> &[AllocatedDevice] {
        &self.allocation.results
    }

    /// The configurations for this driver, in the order of the allocation: later ones go before earlier ones.
    #[must_use]
    pub fn configs(&self) -> &[OpaqueConfig] {
        &self.allocation.configs
    }

    /// The taints of the device that the claim tolerates (`results[].tolerations`). Not recorded: they say why the
    /// scheduler chose the device, and a change of them is no re-allocation. Empty for a device of another claim.
    #[must_use]
    pub fn tolerations(&self, device: &AllocatedDevice) -> &[DeviceToleration] {
        self.result_of(device).and_then(|result| result.tolerations.as_deref()).unwrap_or_default()
    }

    /// Conditions that were true before the scheduler let the pod go to the node (`results[].bindingConditions`), as the
    /// device was published with them. Not recorded, and empty for a device of another claim.
    #[must_use]
    pub fn binding_conditions(&self, device: &AllocatedDevice) -> &[String] {
        self.result_of(device).and_then(|result| result.binding_conditions.as_deref()).unwrap_or_default()
    }

    /// Conditions of which none was true then (`results[].bindingFailureConditions`).
    #[must_use]
    pub fn binding_failure_conditions(&self, device: &AllocatedDevice) -> &[String] {
        let result = self.result_of(device);
        result.and_then(|result| result.binding_failure_conditions.as_deref()).unwrap_or_default()
    }

    /// The whole object, for what this type does not show. What other drivers have written as raw JSON (their
    /// `opaque.parameters`, and `data` of their devices' statuses) stands there as a string with that JSON: Go accepts JSON
    /// that `serde_json` refuses.
    #[must_use]
    pub fn object(&self) -> &ResourceClaim {
        &self.object
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// What the API object says of a device.
    fn result_of(&self, device: &AllocatedDevice) -> Option<&DeviceRequestAllocationResult> {
        let position = self.allocation.results.iter().position(|result| result == device)?;
        let index = *self.indices.get(position)?;
        self.object.status.as_ref()?.allocation.as_ref()?.devices.as_ref()?.results.as_ref()?.get(index)
    }
}

/// Why a claim cannot be prepared as the kubelet asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// Deleted and made again under the same name.
    #[error("claim got replaced: the API server now has UID {found:?} under this name")]
    Replaced {
        /// UID of the claim that has the name now.
        found: String,
    },
    /// Never allocated, or de-allocated since.
    #[error("claim is not allocated: the scheduler has chosen no devices for it")]
    NotAllocated,
    /// The allocation holds something that cannot be right.
    #[error("allocation result {index}, field {field}: {reason}")]
    BadResult {
        /// Position in `status.allocation.devices.results`.
        index: usize,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration for this driver cannot be read.
    #[error(
        "status.allocation.devices.config[{index}].opaque.{mistake}; correct it where it comes from, the claim or its \
         device class"
    )]
    BadConfig {
        /// Position in `status.allocation.devices.config`.
        index: usize,
        /// The field, and what is wrong with it.
        mistake: ConfigError,
    },
    /// One device stands twice in the allocation, without different shares.
    #[error("device {device} stands twice in the allocation")]
    DuplicateDevice {
        /// The device.
        device: DeviceRef,
    },
}

fn parse_result(index: usize, result: &DeviceRequestAllocationResult) -> Result<AllocatedDevice, ClaimError> {
    let bad = |field, reason: String| ClaimError::BadResult { index, field, reason };
    let pool = result.pool.parse().map_err(|e: crate::names::InvalidName| bad("pool", e.to_string()))?;
    let device =
        result.device.parse().map_err(|e: crate::names::InvalidName| bad("device", e.to_string()))?;
    if let Some(share) = &result.share_id
        && share.parse::<ClaimUid>().is_err()
    {
        return Err(bad("shareID", format!("{share:?} is no UUID")));
    }
    let consumed = result.consumed_capacity.iter().flatten();
    Ok(AllocatedDevice {
        request: result.request.clone(),
        device: DeviceRef { pool, device },
        share_id: result.share_id.clone(),
        admin_access: result.admin_access.unwrap_or(false),
        consumed_capacity: consumed.map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect(),
    })
}

fn parse_config(driver: &DriverName, config: &DeviceAllocationConfiguration) -> Option<OpaqueConfig> {
    let opaque = config.opaque.as_ref().filter(|opaque| opaque.driver == driver.as_str())?;
    Some(OpaqueConfig {
        source: if config.source == "FromClass" { ConfigSource::Class } else { ConfigSource::Claim },
        requests: config.requests.clone().unwrap_or_default(),
        parameters: opaque.parameters.0.clone(),
    })
}

fn reject_duplicates(results: &[AllocatedDevice]) -> Result<(), ClaimError> {
    for (index, result) in results.iter().enumerate() {
        let twin = results[..index].iter().find(|other| {
            other.device == result.device
                && other.share_id == result.share_id
                && other.admin_access == result.admin_access
        });
        if twin.is_some() && !result.admin_access {
            return Err(ClaimError::DuplicateDevice { device: result.device.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
