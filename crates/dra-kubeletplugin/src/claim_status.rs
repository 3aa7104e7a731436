//! What a claim's status says of its devices: `status.devices` of the ResourceClaim (KEP-4817), for people and for other
//! controllers, such as the IP addresses of a network device.

mod condition;
mod queue;
mod writer;

use k8s_openapi::{
    api::resource::v1::{AllocatedDeviceStatus, NetworkDeviceData},
    apimachinery::pkg::{apis::meta::v1::Condition, runtime::RawExtension},
};
use serde::Serialize;

pub(crate) use writer::{StatusWriter, WriterConfig};

/// The API server's limits (Kubernetes 1.34 to 1.37).
const MOST_CONDITIONS: usize = 8;
const LARGEST_DATA: usize = 10 * 1024;
const MOST_IPS: usize = 16;
const LONGEST_INTERFACE: usize = 256;
const LONGEST_HARDWARE_ADDRESS: usize = 128;

/// What the claim's status is to say of one device while it is prepared.
///
/// The SDK writes it by server-side apply once the claim is prepared, tries again for as long as it has to, and takes it
/// back when the claim is unprepared. A container never waits for it. The driver's service account needs `patch` on
/// `resourceclaims/status`, and since Kubernetes 1.36 `associated-node:patch` on `resourceclaims/driver`; for devices that
/// are not tied to one node `arbitrary-node:patch` instead.
///
/// ```
/// use dra_kubeletplugin::DeviceStatus;
///
/// # fn main() -> Result<(), dra_kubeletplugin::InvalidStatus> {
/// let status = DeviceStatus::new().data(&serde_json::json!({"uuid": "gpu-18db0e85", "driverVersion": "1.0.0"}))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct DeviceStatus {
    conditions: Vec<Condition>,
    data: Option<serde_json::Value>,
    network: Option<NetworkDeviceData>,
}

/// A status that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("status of a device, {field}: {problem}")]
pub struct InvalidStatus {
    /// The field, as the API names it.
    pub field: &'static str,
    /// What is wrong, with the limit.
    pub problem: String,
}

impl DeviceStatus {
    /// Says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition; one of the same type is replaced. A message of more than 32 KiB is cut.
    ///
    /// # Errors
    /// There are 8 already; or the API server would refuse its type, status, reason or observed generation.
    pub fn condition(mut self, condition: Condition) -> Result<Self, InvalidStatus> {
        let condition = condition::checked(condition)?;
        self.conditions.retain(|other| other.type_ != condition.type_);
        self.conditions.push(condition);
        at_most("conditions", "conditions", self.conditions.len(), MOST_CONDITIONS)?;
        Ok(self)
    }

    /// Sets data of the driver's own making: an object, at most 10 KiB of JSON as the API server spells it. There `<`, `>`
    /// and `&` take 6 bytes each.
    ///
    /// # Errors
    /// It is no object, too large, or no JSON.
    pub fn data(mut self, data: &impl Serialize) -> Result<Self, InvalidStatus> {
        let invalid = |problem| InvalidStatus { field: "data", problem };
        let value = serde_json::to_value(data).map_err(|error| invalid(format!("it is no JSON: {error}")))?;
        if !value.is_object() {
            return Err(invalid("it must be an object".to_owned()));
        }
        at_most("data", "bytes of JSON", length_at_the_server(&value.to_string()), LARGEST_DATA)?;
        self.data = Some(value);
        Ok(self)
    }

    /// Says how the device takes part in a network.
    ///
    /// # Errors
    /// Too many addresses, one that is not in the form `192.0.2.5/24` or stands twice, or a name that is too long.
    pub fn network(mut self, network: NetworkDeviceData) -> Result<Self, InvalidStatus> {
        if let Some((field, problem)) = network_problem(&network) {
            return Err(InvalidStatus { field, problem });
        }
        self.network = Some(network);
        Ok(self)
    }

    /// The entry of the API for a device.
    pub(crate) fn entry(
        self,
        driver: &str,
        device: &crate::claim::DeviceRef,
        share_id: Option<&str>,
    ) -> AllocatedDeviceStatus {
        AllocatedDeviceStatus {
            conditions: Some(self.conditions).filter(|conditions| !conditions.is_empty()),
            data: self.data.map(RawExtension),
            device: device.device.to_string(),
            driver: driver.to_owned(),
            network_data: self.network,
            pool: device.pool.to_string(),
            share_id: share_id.map(str::to_owned),
        }
    }
}

/// What the API server would refuse in network data: a field, and what is wrong with it.
pub(crate) fn network_problem(network: &NetworkDeviceData) -> Option<(&'static str, String)> {
    let ips = network.ips.as_deref().unwrap_or_default();
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let (name, hardware) = (length(&network.interface_name), length(&network.hardware_address));
    let counts = [
        ("networkData.ips", "addresses", ips.len(), MOST_IPS),
        ("networkData.interfaceName", "bytes", name, LONGEST_INTERFACE),
        ("networkData.hardwareAddress", "bytes", hardware, LONGEST_HARDWARE_ADDRESS),
    ];
    let too_many = counts
        .into_iter()
        .find_map(|(field, what, count, most)| too_many(what, count, most).map(|problem| (field, problem)));
    too_many.or_else(|| {
        let twice = |(index, ip): &(usize, &String)| ips[..*index].contains(ip);
        let problem =
            match (ips.iter().find(|ip| !is_interface_address(ip)), ips.iter().enumerate().find(twice)) {
                (Some(ip), _) => format!("{ip:?} is no address with its prefix length, such as 192.0.2.5/24"),
                (None, Some((_, ip))) => format!("{ip:?} stands twice"),
                (None, None) => return None,
            };
        Some(("networkData.ips", problem))
    })
}

/// How many bytes JSON has once the API server has written it anew, before it looks at the limit (Kubernetes 1.34 to 1.37):
/// Go escapes letters that mean something in HTML, and two that end lines in JavaScript.
fn length_at_the_server(json: &str) -> usize {
    const ESCAPED: usize = "\\u003c".len();
    let length = |letter: char| match letter {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => ESCAPED,
        letter => letter.len_utf8(),
    };
    json.chars().map(length).sum()
}

fn at_most(field: &'static str, what: &str, count: usize, most: usize) -> Result<(), InvalidStatus> {
    too_many(what, count, most).map_or(Ok(()), |problem| Err(InvalidStatus { field, problem }))
}

fn too_many(what: &str, count: usize, most: usize) -> Option<String> {
    (count > most).then(|| format!("{count} {what}, at most {most} are possible"))
}

/// An address in its shortest form and the length of its network's prefix.
fn is_interface_address(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let Ok(parsed) = address.parse::<std::net::IpAddr>() else { return false };
    let longest = if parsed.is_ipv4() { 32 } else { 128 };
    let fits = prefix.parse::<u8>().is_ok_and(|length| length <= longest && length.to_string() == prefix);
    fits && parsed.to_string() == address
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_is_an_object_of_at_most_ten_kibibytes() {
        let of_length = |length: usize| json!({"a": "x".repeat(length - r#"{"a":""}"#.len())});
        assert!(DeviceStatus::new().data(&of_length(LARGEST_DATA)).is_ok());
        let error = DeviceStatus::new().data(&of_length(LARGEST_DATA + 1)).unwrap_err();
        assert!(error.to_string().contains("10241 bytes of JSON, at most 10240"), "{error}");
        assert_eq!(DeviceStatus::new().data(&json!([1])).unwrap_err().field, "data");
        let escaped = |letter: &str| DeviceStatus::new().data(&json!({"a": letter.repeat(LARGEST_DATA / 6)}));
        for letter in ["<", ">", "&", "\u{2028}", "\u{2029}"] {
            assert!(escaped(letter).unwrap_err().to_string().contains("10244 bytes"), "{letter}");
        }
    }

    #[test]
    fn network_addresses_are_checked_as_the_api_server_does() {
        let network = |ips: &[&str]| NetworkDeviceData {
            ips: Some(ips.iter().map(ToString::to_string).collect()),
            ..NetworkDeviceData::default()
        };
        for good in ["192.0.2.5/24", "2001:db8::1/64", "0.0.0.0/0"] {
            assert!(DeviceStatus::new().network(network(&[good])).is_ok(), "{good}");
        }
        for bad in
            ["192.0.2.5", "192.0.2.5/33", "192.0.2.5/024", "2001:DB8::1/64", "2001:db8:0::1/64", "x/1", ""]
        {
            assert!(DeviceStatus::new().network(network(&[bad])).is_err(), "{bad}");
        }
        assert!(DeviceStatus::new().network(network(&["192.0.2.5/24"; 17])).is_err());
        assert!(DeviceStatus::new().network(network(&["192.0.2.5/24"; 2])).is_err());
        let long =
            NetworkDeviceData { interface_name: Some("n".repeat(257)), ..NetworkDeviceData::default() };
        assert_eq!(DeviceStatus::new().network(long).unwrap_err().field, "networkData.interfaceName");
    }

    #[test]
    fn a_condition_replaces_the_one_of_its_type_and_there_are_at_most_eight() {
        let condition = |kind: &str| -> Condition {
            serde_json::from_value(json!({
                "type": kind, "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap()
        };
        let mut status = DeviceStatus::new();
        for number in 0..8 {
            status = status.condition(condition(&format!("C{number}"))).unwrap();
        }
        let status = status.condition(condition("C3")).unwrap();
        assert_eq!(status.conditions.len(), 8);
        assert!(status.condition(condition("C8")).is_err());
    }
}
