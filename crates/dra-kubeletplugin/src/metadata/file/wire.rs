//! The fields of a metadata file, in the order and under the conditions in which the Go helper writes them.

use std::collections::BTreeMap;

use dra_resourceslice::{AttributeValue, QualifiedName};
use k8s_openapi::api::resource::v1::NetworkDeviceData;
use serde::{Deserialize, Serialize};

use super::{ClaimMetadata, DescribedDevice, DeviceMetadata, RequestMetadata};
use crate::claim::{ClaimRef, DeviceRef};

pub(super) const GROUP: &str = "metadata.resource.k8s.io";
pub(super) const KIND: &str = "DeviceMetadata";

/// The version that is written.
pub(super) const VERSION: &str = "v1beta1";

/// The versions that are read. They have the same fields.
pub(super) const VERSIONS: [&str; 2] = [VERSION, "v1alpha1"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    kind: String,
    api_version: String,
    metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod_claim_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests: Option<Vec<Request>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ObjectMeta {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    uid: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    generation: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Device>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    driver: String,
    pool: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<BTreeMap<String, Attribute>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_data: Option<Network>,
}

/// One of these.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Attribute {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    int: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bool: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    string: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ints: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bools: Option<Vec<bool>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strings: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    versions: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ips: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hardware_address: Option<String>,
}

impl Object {
    /// Indented by two spaces, as Go does.
    #[expect(clippy::expect_used, reason = "see the message")]
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are strings, and nothing is written but memory")
    }
}

impl From<&ClaimMetadata> for Object {
    fn from(metadata: &ClaimMetadata) -> Self {
        let ClaimMetadata { claim, generation, pod_claim_name, requests } = metadata;
        let requests: Vec<Request> = requests.iter().map(Request::from).collect();
        Self {
            kind: KIND.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            metadata: ObjectMeta {
                name: claim.name.clone(),
                namespace: claim.namespace.clone(),
                uid: claim.uid.to_string(),
                generation: *generation,
            },
            pod_claim_name: pod_claim_name.clone(),
            requests: Some(requests).filter(|requests| !requests.is_empty()),
        }
    }
}

impl TryFrom<Object> for ClaimMetadata {
    type Error = String;

    fn try_from(object: Object) -> Result<Self, String> {
        let uid = object.metadata.uid.parse().map_err(|error| format!("metadata.uid: {error}"))?;
        let requests = object.requests.into_iter().flatten().map(RequestMetadata::try_from);
        Ok(Self {
            claim: ClaimRef::new(object.metadata.namespace, object.metadata.name, uid),
            generation: object.metadata.generation,
            pod_claim_name: object.pod_claim_name,
            requests: requests.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&RequestMetadata> for Request {
    fn from(request: &RequestMetadata) -> Self {
        let devices: Vec<Device> = request.devices.iter().map(Device::from).collect();
        Self { name: request.name.clone(), devices: Some(devices).filter(|devices| !devices.is_empty()) }
    }
}

impl TryFrom<Request> for RequestMetadata {
    type Error = String;

    fn try_from(request: Request) -> Result<Self, String> {
        let devices = request.devices.into_iter().flatten().map(DescribedDevice::try_from);
        let devices = devices.collect::<Result<_, _>>();
        let devices = devices.map_err(|error| format!("request {:?}, {error}", request.name))?;
        Ok(Self { name: request.name, devices })
    }
}

impl From<&DescribedDevice> for Device {
    fn from(described: &DescribedDevice) -> Self {
        let DescribedDevice { driver, device, metadata } = described;
        let attributes = metadata.attributes.iter();
        let attributes: BTreeMap<_, _> =
            attributes.map(|(name, value)| (name.to_string(), Attribute::from(value))).collect();
        Self {
            driver: driver.to_string(),
            pool: device.pool.to_string(),
            name: device.device.to_string(),
            attributes: Some(attributes).filter(|attributes| !attributes.is_empty()),
            network_data: metadata.network.as_ref().map(Network::from),
        }
    }
}

impl TryFrom<Device> for DescribedDevice {
    type Error = String;

    fn try_from(device: Device) -> Result<Self, String> {
        let name = device.name;
        let fail = |error: &dyn std::fmt::Display| format!("device {name:?}: {error}");
        let mut attributes = BTreeMap::new();
        for (attribute, value) in device.attributes.into_iter().flatten() {
            let value = value.value().map_err(|error| fail(&format!("attribute {attribute:?}: {error}")))?;
            let attribute = QualifiedName::new(attribute).map_err(|error| fail(&error))?;
            attributes.extend(value.map(|value| (attribute, value)));
        }
        let network = device.network_data.map(NetworkDeviceData::from);
        Ok(Self {
            driver: device.driver.parse().map_err(|error: crate::names::InvalidName| fail(&error))?,
            device: DeviceRef::new(
                device.pool.parse().map_err(|error: crate::names::InvalidName| fail(&error))?,
                name.parse().map_err(|error: crate::names::InvalidName| fail(&error))?,
            ),
            metadata: DeviceMetadata { attributes, network },
        })
    }
}

impl From<&AttributeValue> for Attribute {
    fn from(value: &AttributeValue) -> Self {
        let mut attribute = Self::default();
        match value.clone() {
            AttributeValue::Bool(value) => attribute.bool = Some(value),
            AttributeValue::Int(value) => attribute.int = Some(value),
            AttributeValue::String(value) => attribute.string = Some(value),
            AttributeValue::Version(value) => attribute.version = Some(value),
            AttributeValue::Bools(list) => attribute.bools = Some(list),
            AttributeValue::Ints(list) => attribute.ints = Some(list),
            AttributeValue::Strings(list) => attribute.strings = Some(list),
            AttributeValue::Versions(list) => attribute.versions = Some(list),
            // A form that this crate does not know yet: said of no other field.
            _ => {}
        }
        attribute
    }
}

impl Attribute {
    /// None of a form that is not known yet, as Kubernetes may add some to a version that it has released.
    fn value(self) -> Result<Option<AttributeValue>, String> {
        let values = [
            self.int.map(AttributeValue::Int),
            self.bool.map(AttributeValue::Bool),
            self.string.map(AttributeValue::String),
            self.version.map(AttributeValue::Version),
            self.ints.map(AttributeValue::Ints),
            self.bools.map(AttributeValue::Bools),
            self.strings.map(AttributeValue::Strings),
            self.versions.map(AttributeValue::Versions),
        ];
        let mut values = values.into_iter().flatten();
        let value = values.next();
        match values.count() {
            0 => Ok(value),
            more => Err(format!("it has {} values, one is possible", more + 1)),
        }
    }
}

impl From<&NetworkDeviceData> for Network {
    fn from(network: &NetworkDeviceData) -> Self {
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Self {
            interface_name: said(&network.interface_name),
            ips: network.ips.clone().filter(|ips| !ips.is_empty()),
            hardware_address: said(&network.hardware_address),
        }
    }
}

impl From<Network> for NetworkDeviceData {
    fn from(network: Network) -> Self {
        let Network { interface_name, ips, hardware_address } = network;
        Self { hardware_address, interface_name, ips }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
