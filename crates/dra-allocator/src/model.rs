//! Slices, claims and classes as the allocator reads them.
//!
//! They are read from the JSON of the API's objects, so that fields work which the chosen version of `k8s-openapi` does not
//! have, and so that each value is parsed once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelector;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};

use crate::error::AllocationError;
use crate::quantity;

/// One device, named by driver, pool and device.
pub(crate) type DeviceKey = (String, String, String);

/// Reads an API object.
///
/// # Errors
/// If it has something that the API server would not have stored.
pub(crate) fn read<T: de::DeserializeOwned>(
    object: &impl Serialize,
    place: &str,
) -> Result<T, AllocationError> {
    let read = serde_json::to_value(object).and_then(serde_json::from_value);
    read.map_err(|error| AllocationError::Unreadable { place: place.to_owned(), reason: error.to_string() })
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// A ResourceSlice.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Slice {
    pub(crate) metadata: Metadata,
    pub(crate) spec: SliceSpec,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SliceSpec {
    pub(crate) driver: String,
    pub(crate) pool: PoolOfSlice,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(default)]
    pub(crate) per_device_node_selection: bool,
    #[serde(default)]
    pub(crate) devices: Vec<Device>,
    #[serde(default)]
    pub(crate) shared_counters: Vec<CounterSet>,
    #[serde(default)]
    pub(crate) skip_node_operations: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolOfSlice {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) generation: i64,
    pub(crate) resource_slice_count: i64,
}

/// Where devices can be used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Place {
    pub(crate) node_name: Option<String>,
    pub(crate) all_nodes: bool,
    pub(crate) node_selector: Option<NodeSelector>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Device {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    pub(crate) capacity: BTreeMap<String, Capacity>,
    #[serde(default)]
    pub(crate) allow_multiple_allocations: bool,
    #[serde(default)]
    pub(crate) binds_to_node: bool,
    #[serde(default)]
    pub(crate) binding_conditions: Vec<String>,
    #[serde(default)]
    pub(crate) binding_failure_conditions: Vec<String>,
    #[serde(default)]
    pub(crate) consumes_counters: Vec<CounterConsumption>,
    #[serde(default)]
    pub(crate) taints: Vec<Taint>,
}

impl Device {
    /// The device as selectors see it.
    ///
    /// # Errors
    /// If an attribute has no value.
    pub(crate) fn subject(&self, driver: &str) -> Result<dra_cel::Device, dra_cel::SelectorError> {
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
pub(crate) struct Capacity {
    pub(crate) value: Amount,
    pub(crate) request_policy: Option<RequestPolicy>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestPolicy {
    pub(crate) default: Option<Amount>,
    #[serde(default)]
    pub(crate) valid_values: Vec<Amount>,
    pub(crate) valid_range: Option<ValidRange>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ValidRange {
    pub(crate) min: Option<Amount>,
    pub(crate) max: Option<Amount>,
    pub(crate) step: Option<Amount>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CounterSet {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, Counter>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CounterConsumption {
    pub(crate) counter_set: String,
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, Counter>,
    #[serde(default)]
    pub(crate) compatibility_groups: BTreeSet<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Counter {
    pub(crate) value: Amount,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Taint {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) value: String,
    pub(crate) effect: String,
    /// The DeviceTaintRule that gives it, if the slice does not have it.
    #[serde(skip)]
    pub(crate) rule: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

/// A DeviceClass.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Class {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ClassSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClassSpec {
    pub(crate) selectors: Vec<Selector>,
    pub(crate) config: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Selector {
    pub(crate) cel: Option<CelSelector>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CelSelector {
    pub(crate) expression: String,
}

/// A ResourceClaim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Claim {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ClaimSpec,
    pub(crate) status: ClaimStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimSpec {
    pub(crate) devices: ClaimDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimDevices {
    pub(crate) requests: Vec<Request>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) config: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) exactly: Option<Ask>,
    #[serde(default)]
    pub(crate) first_available: Vec<Ask>,
}

/// What a request, or one of its alternatives, asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) device_class_name: String,
    pub(crate) allocation_mode: String,
    pub(crate) count: Option<usize>,
    pub(crate) admin_access: Option<bool>,
    pub(crate) selectors: Vec<Selector>,
    pub(crate) tolerations: Vec<Value>,
    pub(crate) capacity: AskedCapacity,
    pub(crate) derived_attributes: Vec<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AskedCapacity {
    pub(crate) requests: BTreeMap<String, Amount>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Constraint {
    #[serde(default)]
    pub(crate) requests: Vec<String>,
    pub(crate) match_attribute: Option<String>,
    pub(crate) distinct_attribute: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimStatus {
    pub(crate) allocation: Allocation,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Allocation {
    pub(crate) devices: AllocatedDevices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AllocatedDevices {
    pub(crate) results: Vec<Allocated>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Allocated {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(default)]
    pub(crate) admin_access: bool,
    #[serde(rename = "shareID")]
    pub(crate) share_id: Option<String>,
    #[serde(default)]
    pub(crate) consumed_capacity: BTreeMap<String, Amount>,
}

/// A quantity: its value in billionths, and how it was written.
#[derive(Debug, Clone)]
pub(crate) struct Amount {
    pub(crate) nanos: i128,
    pub(crate) text: String,
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nanos =
            quantity::nanos(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no quantity")))?;
        Ok(Self { nanos, text })
    }
}
