//! What there is to say of one device.

use std::collections::BTreeMap;

use dra_resourceslice::{AttributeValue, Device, InvalidName, QualifiedName, is_semver, limits};
use k8s_openapi::api::resource::v1::NetworkDeviceData;

use crate::claim_status::network_problem;

/// What a container is told of a device: attributes, and how the device takes part in a network.
///
/// ```
/// use dra_kubeletplugin::{AttributeValue, metadata::DeviceMetadata};
///
/// # fn main() -> Result<(), dra_kubeletplugin::metadata::InvalidMetadata> {
/// let metadata = DeviceMetadata::new()
///     .attribute("uuid", "gpu-18db0e85")?
///     .attribute("driverVersion", AttributeValue::version("1.0.0"))?
///     .attribute("resource.k8s.io/pciBusID", "0000:01:00.0")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct DeviceMetadata {
    pub(super) attributes: BTreeMap<QualifiedName, AttributeValue>,
    pub(super) network: Option<NetworkDeviceData>,
}

/// Metadata that readers may refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("metadata of a device, {field}: {problem}")]
pub struct InvalidMetadata {
    /// The field.
    pub field: String,
    /// What is wrong, with the limit.
    pub problem: String,
}

impl DeviceMetadata {
    /// Says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The attributes of a device as they are published. Those that are left out of ResourceSlices, because the API
    /// server would refuse them, are left out here too.
    ///
    /// # Errors
    /// There are more than 32.
    pub fn of_device(device: &Device) -> Result<Self, InvalidMetadata> {
        let published = device.attributes().filter(|(_, value)| value_problem(value).is_none());
        let attributes = published.map(|(name, value)| (name.clone(), value.clone())).collect();
        let metadata = Self { attributes, network: None };
        metadata.check_count()?;
        Ok(metadata)
    }

    /// Sets an attribute; the name is one as in ResourceSlices: `uuid`, or `example.com/uuid`.
    ///
    /// # Errors
    /// The name is none, the value is one that the API server would refuse, or there are 32 already.
    pub fn attribute(
        mut self,
        name: &str,
        value: impl Into<AttributeValue>,
    ) -> Result<Self, InvalidMetadata> {
        let invalid = |problem| InvalidMetadata { field: format!("attributes[{name}]"), problem };
        let key = QualifiedName::new(name).map_err(|error: InvalidName| invalid(error.to_string()))?;
        let value = value.into();
        if let Some(problem) = value_problem(&value) {
            return Err(invalid(problem));
        }
        self.attributes.insert(key, value);
        self.check_count()?;
        Ok(self)
    }

    /// Says how the device takes part in a network.
    ///
    /// # Errors
    /// Too many addresses, one that is not in the form `192.0.2.5/24`, or a name that is too long.
    pub fn network(mut self, network: NetworkDeviceData) -> Result<Self, InvalidMetadata> {
        if let Some((field, problem)) = network_problem(&network) {
            return Err(InvalidMetadata { field: field.to_owned(), problem });
        }
        self.network = Some(network);
        Ok(self)
    }

    /// The attributes by name.
    #[must_use]
    pub fn attributes(&self) -> &BTreeMap<QualifiedName, AttributeValue> {
        &self.attributes
    }

    /// How the device takes part in a network, if anything is said of that.
    #[must_use]
    pub fn network_data(&self) -> Option<&NetworkDeviceData> {
        self.network.as_ref()
    }

    fn check_count(&self) -> Result<(), InvalidMetadata> {
        let (count, most) = (self.attributes.len(), limits::MAX_ATTRIBUTES_AND_CAPACITIES);
        if count <= most {
            return Ok(());
        }
        let problem = format!("there are {count}, at most {most} are possible");
        Err(InvalidMetadata { field: "attributes".to_owned(), problem })
    }
}

/// What the API server would refuse in a value.
fn value_problem(value: &AttributeValue) -> Option<String> {
    if value.value_count() == 0 {
        return Some("a list must not be empty".to_owned());
    }
    let (texts, versions): (&[String], &[String]) = match value {
        AttributeValue::String(text) => (std::slice::from_ref(text), &[]),
        AttributeValue::Strings(texts) => (texts, &[]),
        AttributeValue::Version(version) => (&[], std::slice::from_ref(version)),
        AttributeValue::Versions(versions) => (&[], versions),
        _ => (&[], &[]),
    };
    let most = limits::MAX_ATTRIBUTE_LENGTH;
    if let Some(long) = texts.iter().chain(versions).find(|text| text.len() > most) {
        return Some(format!("{long:?} has {} bytes, at most {most} are possible", long.len()));
    }
    let bad = versions.iter().find(|version| !is_semver(version))?;
    Some(format!("{bad:?} is not a semantic version (MAJOR.MINOR.PATCH, see AttributeValue::version_from)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_would_refuse_is_refused_with_the_field() {
        let long = "x".repeat(65);
        let table: [(&str, AttributeValue, &str); 6] = [
            ("a b", "x".into(), "attributes[a b]: invalid"),
            ("a", long.as_str().into(), "65 bytes, at most 64"),
            ("a", vec!["x".to_owned(), long.clone()].into(), "65 bytes, at most 64"),
            ("a", AttributeValue::version("535"), "is not a semantic version"),
            ("a", AttributeValue::Versions(vec!["1.0.0".into(), "1".into()]), "is not a semantic version"),
            ("a", AttributeValue::Ints(vec![]), "a list must not be empty"),
        ];
        for (name, value, expected) in table {
            let error = DeviceMetadata::new().attribute(name, value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let full = (0..32).try_fold(DeviceMetadata::new(), |all, n| all.attribute(&format!("a{n}"), n));
        let full = full.unwrap().attribute("a3", "replaced").unwrap();
        assert_eq!(full.attributes().len(), 32);
        let error = full.attribute("a32", true).unwrap_err().to_string();
        assert!(error.contains("there are 33, at most 32"), "{error}");
        let network = NetworkDeviceData { ips: Some(vec!["x".to_owned()]), ..NetworkDeviceData::default() };
        assert_eq!(DeviceMetadata::new().network(network).unwrap_err().field, "networkData.ips");
    }

    #[test]
    fn a_device_says_what_is_published_of_it() {
        let device = Device::named("gpu-0")
            .unwrap()
            .try_attribute("uuid", "gpu-18db0e85")
            .unwrap()
            .try_attribute("driverVersion", AttributeValue::version("535"))
            .unwrap();
        let expected = DeviceMetadata::new().attribute("uuid", "gpu-18db0e85").unwrap();
        assert_eq!(DeviceMetadata::of_device(&device), Ok(expected));
    }
}
