//! Configuration that users write into claims and administrators into device classes, for this driver alone to read.
//!
//! The API server stores it unread (`opaque.parameters`), so the driver is the first to find a mistake: prepare reports
//! it, and a validating webhook can report it earlier with the same decoder.

mod strict;

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::claim::{AllocatedClaim, AllocatedDevice};

pub(crate) use strict::Entries;

/// A type of configuration, told by `apiVersion` and `kind` of its objects. The type itself has neither field.
///
/// ```
/// use dra_kubeletplugin::DeviceConfig;
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct GpuConfig {
///     time_slice: String,
/// }
///
/// impl DeviceConfig for GpuConfig {
///     const API_VERSION: &'static str = "gpu.example.com/v1";
///     const KIND: &'static str = "GpuConfig";
/// }
///
/// let written = serde_json::json!({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "timeSlise": "long"});
/// let error = GpuConfig::decode(&written).err().map(|e| e.to_string());
/// assert_eq!(error.as_deref(), Some("parameters: missing field `timeSlice`"));
/// ```
pub trait DeviceConfig: DeserializeOwned {
    /// Group and version, such as `gpu.example.com/v1`.
    const API_VERSION: &'static str;
    /// Kind, such as `GpuConfig`.
    const KIND: &'static str;

    /// Reads what a user wrote, and takes nothing that it does not understand.
    ///
    /// # Errors
    ///
    /// Not this type, an unknown or missing field, or a value of the wrong type; with the path of the field.
    fn decode(parameters: &Value) -> Result<Self, ConfigError> {
        let mut unknown = None;
        let config = read::<Self>(parameters, |path| {
            unknown.get_or_insert(path);
        })?;
        match unknown {
            Some(field) => Err(ConfigError { field, reason: "unknown field".to_owned() }),
            None => Ok(config),
        }
    }

    /// Reads what was stored earlier, perhaps by a later version: fields that it does not understand are skipped.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), but for unknown fields.
    fn decode_stored(parameters: &Value) -> Result<Self, ConfigError> {
        read(parameters, |_| {})
    }
}

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct ConfigError {
    /// Path of the field, from `parameters` on: `parameters.sharing.strategy`. Put the path of the configuration in
    /// front of it, such as `spec.devices.config[0].opaque.` in a claim.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl ConfigError {
    /// A mistake that the driver has found in a value, at a path such as `sharing.strategy`.
    pub fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { field: field(path), reason: reason.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// A configuration that a claim or its device class carries for this driver
/// (`status.allocation.devices.config[]` of the claim).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpaqueConfig {
    pub(crate) source: ConfigSource,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<String>,
    pub(crate) parameters: Value,
}

/// Who wrote a configuration; what a claim says goes before what its class says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConfigSource {
    /// The administrator, in the `DeviceClass`.
    #[serde(rename = "FromClass")]
    Class,
    /// The user, in the claim.
    #[serde(rename = "FromClaim")]
    Claim,
}

impl OpaqueConfig {
    /// Who wrote it.
    #[must_use]
    pub fn source(&self) -> ConfigSource {
        self.source
    }

    /// The requests that it is for; none means all.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// The driver's own object, as it was written.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// Whether its `apiVersion` and `kind` are those of `T`.
    #[must_use]
    pub fn is<T: DeviceConfig>(&self) -> bool {
        self.parameters["apiVersion"] == T::API_VERSION && self.parameters["kind"] == T::KIND
    }

    /// Whether it is meant for this device: by the full name of the request or by its base.
    #[must_use]
    pub fn applies_to(&self, device: &AllocatedDevice) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| name == device.request() || name == device.base_request())
    }
}

impl AllocatedClaim {
    /// The configurations for a device, the one that counts most last: claim after class, later after earlier.
    pub fn configs_of<'a>(
        &'a self,
        device: &'a AllocatedDevice,
    ) -> impl Iterator<Item = &'a OpaqueConfig> + 'a {
        let of = move |source| {
            self.configs().iter().filter(move |config| config.source == source && config.applies_to(device))
        };
        of(ConfigSource::Class).chain(of(ConfigSource::Claim))
    }

    /// The configuration of a device for a driver with one type of it: the one that counts most, read strictly. All
    /// that apply have to be of this type, so that no misspelt kind goes unnoticed; a driver with several types goes
    /// through [`configs_of`](Self::configs_of).
    ///
    /// # Errors
    ///
    /// A configuration that applies is not of this type or has a mistake.
    pub fn config<T: DeviceConfig>(&self, device: &AllocatedDevice) -> Result<Option<T>, ConfigError> {
        let mut last = None;
        for config in self.configs_of(device) {
            last = Some(T::decode(&config.parameters)?);
        }
        Ok(last)
    }
}

/// Reads parameters from JSON as prepare does, for a webhook: no key may be written twice. Go decoders and `serde_json` take
/// one of the two silently, and not the same one in every program.
///
/// # Errors
///
/// No JSON, a key that is written twice, or nesting deeper than 100 levels; with the path of the field.
pub fn parse_parameters(json: &str) -> Result<Value, ConfigError> {
    strict::read(json)
}

fn read<T: DeviceConfig>(parameters: &Value, mut unknown: impl FnMut(String)) -> Result<T, ConfigError> {
    let Value::Object(fields) = parameters else {
        return Err(ConfigError::new("", "must be a JSON object"));
    };
    for (name, expected) in [("apiVersion", T::API_VERSION), ("kind", T::KIND)] {
        if fields.get(name).and_then(Value::as_str) != Some(expected) {
            let found = fields.get(name).map_or_else(|| "nothing".to_owned(), Value::to_string);
            return Err(ConfigError::new(name, format!("must be {expected:?}, not {found}")));
        }
    }
    let mut fields = fields.clone();
    fields.remove("apiVersion");
    fields.remove("kind");
    let mut track = serde_path_to_error::Track::new();
    let value = Value::Object(fields);
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    match serde_ignored::deserialize(tracked, |path| unknown(field(&spelled(&path)))) {
        Ok(config) => Ok(config),
        Err(error) => {
            let error: serde_json::Error = error;
            let path = track.path().to_string();
            Err(ConfigError::new(if path == "." { "" } else { &path }, error.to_string()))
        }
    }
}

/// Spells the path of an unknown field as `serde_path_to_error` spells those of others: `sharing.steps[0].length`.
fn spelled(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", spelled(parent)),
        Path::Map { parent, key } => match spelled(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            spelled(parent)
        }
    }
}

fn field(path: &str) -> String {
    if path.is_empty() { "parameters".to_owned() } else { format!("parameters.{path}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Config {
        sharing: Sharing,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sharing {
        strategy: Strategy,
        #[serde(default)]
        count: u8,
        #[serde(default)]
        steps: Option<Vec<Step>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Step {}

    #[derive(Debug, PartialEq, Deserialize)]
    enum Strategy {
        TimeSlicing,
        SpacePartitioning,
    }

    impl DeviceConfig for Config {
        const API_VERSION: &'static str = "gpu.example.com/v1";
        const KIND: &'static str = "GpuConfig";
    }

    fn written(fields: Value) -> Value {
        let mut object = json!({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"});
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
            object.extend(fields);
        }
        object
    }

    fn error(parameters: &Value) -> String {
        Config::decode(parameters).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_told_with_the_path_of_the_field() {
        let table = [
            (json!(7), "parameters: must be a JSON object"),
            (
                json!({"kind": "GpuConfig"}),
                "parameters.apiVersion: must be \"gpu.example.com/v1\", not nothing",
            ),
            (
                json!({"apiVersion": "gpu.example.com/v2", "kind": "GpuConfig"}),
                "parameters.apiVersion: must be \"gpu.example.com/v1\", not \"gpu.example.com/v2\"",
            ),
            (written(json!({})), "parameters: missing field `sharing`"),
            (
                written(json!({"sharing": {"strategy": "Guessing"}})),
                "parameters.sharing.strategy: unknown variant `Guessing`, expected `TimeSlicing` or \
                 `SpacePartitioning`",
            ),
            (
                written(json!({"sharing": {"strategy": "TimeSlicing", "count": 300}})),
                "parameters.sharing.count: invalid value: integer `300`, expected u8",
            ),
            (
                written(json!({"sharing": {"strategy": "TimeSlicing", "cuont": 3}})),
                "parameters.sharing.cuont: unknown field",
            ),
            (
                written(json!({"sharing": {"strategy": "TimeSlicing", "steps": [{}, {"length": 1}]}})),
                "parameters.sharing.steps[1].length: unknown field",
            ),
            (
                written(json!({"sharing": {"strategy": "TimeSlicing", "steps": [{}, 7]}})),
                "parameters.sharing.steps[1]: invalid type: integer `7`, expected struct Step",
            ),
            (written(json!({"sharing": {"strategy": "TimeSlicing"}, "x": 1})), "parameters.x: unknown field"),
        ];
        for (parameters, expected) in table {
            assert_eq!(error(&parameters), expected, "{parameters}");
        }
    }

    #[test]
    fn what_was_stored_may_have_fields_of_a_later_version() {
        let stored = written(json!({"sharing": {"strategy": "SpacePartitioning", "later": 3}}));
        let expected =
            Config { sharing: Sharing { strategy: Strategy::SpacePartitioning, count: 0, steps: None } };
        assert_eq!(Config::decode_stored(&stored), Ok(expected));
        assert!(Config::decode_stored(&json!({"kind": "GpuConfig"})).is_err());
    }
}
