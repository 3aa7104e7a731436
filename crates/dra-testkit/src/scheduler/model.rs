//! Slices, claims and classes as the allocator reads them.
//!
//! They are read from the JSON of the API's objects, so that fields work which the chosen version of `k8s-openapi` does not
//! have, and so that each value is parsed once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelector;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

use super::error::SchedulerError;
use crate::api::quantity;

/// One device, named by driver, pool and device.
pub(super) type DeviceKey = (String, String, String);

/// Reads an API object.
///
/// # Errors
/// If it has something that the API server would not have stored.
pub(super) fn read<T: de::DeserializeOwned>(
    object: &impl Serialize,
    place: &str,
) -> Result<T, SchedulerError> {
    let read = serde_json::to_value(object).and_then(serde_json::from_value);
    read.map_err(|error| SchedulerError::Unreadable { place: place.to_owned(), reason: error.to_string() })
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
}

/// A ResourceSlice.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Slice {
    pub(super) metadata: Metadata,
    pub(super) spec: SliceSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SliceSpec {
    pub(super) driver: String,
    pub(super) pool: PoolOfSlice,
    #[serde(flatten)]
    pub(super) place: Place,
    #[serde(default)]
    pub(super) per_device_node_selection: bool,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    #[serde(default)]
    pub(super) shared_counters: Vec<CounterSet>,
    #[serde(default)]
    pub(super) skip_node_operations: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolOfSlice {
    pub(super) name: String,
    #[serde(default)]
    pub(super) generation: i64,
    pub(super) resource_slice_count: i64,
}

/// Where devices can be used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Place {
    pub(super) node_name: Option<String>,
    pub(super) all_nodes: bool,
    pub(super) node_selector: Option<NodeSelector>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) place: Place,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    pub(super) capacity: BTreeMap<String, Capacity>,
    #[serde(default)]
    pub(super) allow_multiple_allocations: bool,
    #[serde(default)]
    pub(super) binds_to_node: bool,
    #[serde(default)]
    pub(super) binding_conditions: Vec<String>,
    #[serde(default)]
    pub(super) binding_failure_conditions: Vec<String>,
    #[serde(default)]
    pub(super) consumes_counters: Vec<CounterConsumption>,
    #[serde(default)]
    pub(super) taints: Vec<Taint>,
}

impl Device {
    /// The device as selectors see it.
    ///
    /// # Errors
    /// If an attribute has no value.
    pub(super) fn subject(&self, driver: &str) -> Result<dra_cel::Device, dra_cel::SelectorError> {
        let amounts = self.capacity.iter();
        let capacity: BTreeMap<&String, Value> =
            amounts.map(|(name, amount)| (name, json!({"value": amount.value.text}))).collect();
        let device = json!({
            "attributes": self.attributes,
            "capacity": capacity,
            "allowMultipleAllocations": self.allow_multiple_allocations,
        });
        dra_cel::Device::from_json(driver, &device)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Capacity {
    pub(super) value: Amount,
    pub(super) request_policy: Option<RequestPolicy>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestPolicy {
    pub(super) default: Option<Amount>,
    #[serde(default)]
    pub(super) valid_values: Vec<Amount>,
    pub(super) valid_range: Option<ValidRange>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ValidRange {
    pub(super) min: Option<Amount>,
    pub(super) max: Option<Amount>,
    pub(super) step: Option<Amount>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CounterSet {
    pub(super) name: String,
    #[serde(default)]
    pub(super) counters: BTreeMap<String, Counter>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CounterConsumption {
    pub(super) counter_set: String,
    #[serde(default)]
    pub(super) counters: BTreeMap<String, Counter>,
    #[serde(default)]
    pub(super) compatibility_groups: BTreeSet<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Counter {
    pub(super) value: Amount,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Taint {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
    pub(super) effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Toleration {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) value: String,
    pub(super) effect: String,
}

/// A DeviceClass.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Class {
    pub(super) metadata: Metadata,
    pub(super) spec: ClassSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClassSpec {
    pub(super) selectors: Vec<Selector>,
    pub(super) config: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Selector {
    pub(super) cel: Option<CelSelector>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CelSelector {
    pub(super) expression: String,
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) metadata: Metadata,
    pub(super) spec: ClaimSpec,
    pub(super) status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimSpec {
    pub(super) devices: ClaimDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimDevices {
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<Constraint>,
    pub(super) config: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) exactly: Option<Ask>,
    #[serde(default)]
    pub(super) first_available: Vec<Ask>,
}

/// What a request, or one of its alternatives, asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ask {
    pub(super) name: String,
    pub(super) device_class_name: String,
    pub(super) allocation_mode: String,
    pub(super) count: Option<usize>,
    pub(super) admin_access: Option<bool>,
    pub(super) selectors: Vec<Selector>,
    pub(super) tolerations: Vec<Value>,
    pub(super) capacity: AskedCapacity,
    pub(super) derived_attributes: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AskedCapacity {
    pub(super) requests: BTreeMap<String, Amount>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Constraint {
    #[serde(default)]
    pub(super) requests: Vec<String>,
    pub(super) match_attribute: Option<String>,
    pub(super) distinct_attribute: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClaimStatus {
    pub(super) allocation: Allocation,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Allocation {
    pub(super) devices: AllocatedDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AllocatedDevices {
    pub(super) results: Vec<Allocated>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocated {
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    #[serde(default)]
    pub(super) admin_access: bool,
    #[serde(rename = "shareID")]
    pub(super) share_id: Option<String>,
    #[serde(default)]
    pub(super) consumed_capacity: BTreeMap<String, Amount>,
}

/// A quantity: its value in billionths, and how it was written.
#[derive(Debug, Clone)]
pub(super) struct Amount {
    pub(super) nanos: i128,
    pub(super) text: String,
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nanos =
            quantity::nanos(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no quantity")))?;
        Ok(Self { nanos, text })
    }
}
