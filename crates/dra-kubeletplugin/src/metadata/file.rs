//! The content of a metadata file. Pure.

mod wire;

use dra_resourceslice::DriverName;

use self::wire::{GROUP, KIND, VERSIONS};
use super::DeviceMetadata;
use crate::claim::{ClaimRef, DeviceRef};

/// What a metadata file says: of one claim, usually of one request (kind `DeviceMetadata`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClaimMetadata {
    /// The claim.
    pub claim: ClaimRef,
    /// Counts the changes of the file; 1 is as prepared.
    pub generation: i64,
    /// The claim's name within the pod, if it is made from a template.
    pub pod_claim_name: Option<String>,
    /// The requests that it tells of.
    pub requests: Vec<RequestMetadata>,
}

/// The devices that answer a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RequestMetadata {
    /// The request as the allocation names it: `gpu`, or `gpu/large` if one of several alternatives was chosen.
    pub name: String,
    /// Its devices, in the order of the allocation.
    pub devices: Vec<DescribedDevice>,
}

/// A device, and what is said of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DescribedDevice {
    /// The driver of the device.
    pub driver: DriverName,
    /// Pool and name of the device.
    pub device: DeviceRef,
    /// What its driver says of it.
    pub metadata: DeviceMetadata,
}

/// Bytes that are no metadata, or none that this version can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedMetadata {
    /// There is no object.
    #[error("there is no metadata in it")]
    Empty,
    /// Only objects of versions that are not known.
    #[error("it has only the versions {}, known are {GROUP}/{}", .0.join(", "), VERSIONS.join(", "))]
    UnknownVersions(Vec<String>),
    /// An object is not as it must be.
    #[error("object {object}: {reason}")]
    Object {
        /// Which one, counted from 1.
        object: usize,
        /// What is wrong with it.
        reason: String,
    },
}

impl DescribedDevice {
    /// Says something of a device.
    #[must_use]
    pub fn new(driver: DriverName, device: DeviceRef, metadata: DeviceMetadata) -> Self {
        Self { driver, device, metadata }
    }
}

impl RequestMetadata {
    /// Names a request and its devices.
    #[must_use]
    pub fn new(name: impl Into<String>, devices: Vec<DescribedDevice>) -> Self {
        Self { name: name.into(), devices }
    }
}

impl ClaimMetadata {
    /// Of a claim that was just prepared.
    #[must_use]
    pub fn new(claim: ClaimRef, pod_claim_name: Option<String>, requests: Vec<RequestMetadata>) -> Self {
        Self { claim, generation: 1, pod_claim_name, requests }
    }

    /// The content of a metadata file, in version v1beta1: what the Go helper writes for that version, byte for byte.
    #[must_use]
    pub fn encode(&self) -> String {
        escape_as_go_does(&wire::Object::from(self).to_json())
    }

    /// Reads a metadata file: the first object whose version is known. Those before it are skipped, those behind it not
    /// looked at.
    ///
    /// # Errors
    /// There is none, or it is not as it must be, or what stands before it is no object with a kind and a version.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMetadata> {
        let mut unknown = Vec::new();
        let objects = serde_json::Deserializer::from_slice(bytes).into_iter::<serde_json::Value>();
        for (index, object) in objects.enumerate() {
            let malformed = |reason| MalformedMetadata::Object { object: index + 1, reason };
            let object = object.map_err(|error| malformed(error.to_string()))?;
            let text = |field: &str| match object.get(field).and_then(serde_json::Value::as_str) {
                Some(text) if !text.is_empty() => Ok(text.to_owned()),
                _ => Err(malformed(format!("{field} is missing"))),
            };
            let (kind, version) = (text("kind")?, text("apiVersion")?);
            if !is_known(&version) {
                unknown.push(version);
                continue;
            }
            if kind != KIND {
                return Err(malformed(format!("its kind is {kind:?}, not {KIND:?}")));
            }
            let read = serde_json::from_value::<wire::Object>(object).map_err(|error| error.to_string());
            return read.and_then(Self::try_from).map_err(malformed);
        }
        let none_at_all = unknown.is_empty();
        Err(if none_at_all { MalformedMetadata::Empty } else { MalformedMetadata::UnknownVersions(unknown) })
    }
}

fn is_known(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, version)| group == GROUP && VERSIONS.contains(&version))
}

/// Go escapes what could be taken for HTML or for the end of a line of JavaScript. Outside strings no JSON has these.
fn escape_as_go_does(json: &str) -> String {
    let letters = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    letters.into_iter().fold(format!("{json}\n"), |text, (letter, escape)| text.replace(letter, escape))
}

#[cfg(test)]
mod tests;
