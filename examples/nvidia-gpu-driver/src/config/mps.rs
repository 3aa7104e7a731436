//! The limits of processes that share devices by MPS.

use std::collections::BTreeMap;

use dra_kubeletplugin::{ConfigError, Quantity};
use serde::Deserialize;
use serde_json::Value;

/// What each process may have; nothing means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct MpsConfig {
    #[serde(rename = "defaultActiveThreadPercentage")]
    active_threads: Option<Percentage>,
    /// Of each device.
    #[serde(rename = "defaultPinnedDeviceMemoryLimit")]
    memory: Option<Mebibytes>,
    /// Of single devices, by UUID or by place in the claim.
    #[serde(rename = "defaultPerDevicePinnedMemoryLimit")]
    memory_by_device: Option<BTreeMap<String, Mebibytes>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u8")]
struct Percentage(u8);

/// At least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
struct Mebibytes(i128);

impl MpsConfig {
    /// What the daemon is told for devices with these UUIDs, which are in the order of the claim.
    ///
    /// # Errors
    /// There is a limit for a device that is not among them.
    pub(crate) fn commands(&self, devices: &[String]) -> Result<Vec<String>, ConfigError> {
        let mut limits = BTreeMap::new();
        if let Some(limit) = self.memory {
            limits.extend(devices.iter().map(|device| (device, limit)));
        }
        // Numbers come first in this order, so that a UUID goes before them.
        for (key, limit) in self.memory_by_device.iter().flatten() {
            let at_place = || key.parse().ok().and_then(|place: usize| devices.get(place));
            let device = devices.iter().find(|device| *device == key).or_else(at_place).ok_or_else(|| {
                let field = format!("sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.{key}");
                ConfigError::new(&field, format!("is no UUID or place, from 0, of a device in {devices:?}"))
            })?;
            limits.insert(device, *limit);
        }
        let threads = self
            .active_threads
            .map(|Percentage(percent)| format!("set_default_active_thread_percentage {percent}"));
        let memory = limits.into_iter().map(|(device, Mebibytes(limit))| {
            format!("set_default_device_pinned_mem_limit {device} {limit}M")
        });
        Ok(threads.into_iter().chain(memory).collect())
    }
}

impl TryFrom<u8> for Percentage {
    type Error = &'static str;

    fn try_from(percent: u8) -> Result<Self, &'static str> {
        if percent <= 100 { Ok(Self(percent)) } else { Err("must be at most 100") }
    }
}

impl TryFrom<Value> for Mebibytes {
    type Error = String;

    /// As the Go driver counts: whole bytes, and of them whole mebibytes.
    fn try_from(written: Value) -> Result<Self, String> {
        const NANOS: i128 = 1_000_000_000;
        let text = match written {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            other => return Err(format!("must be a quantity such as \"8Gi\", not {other}")),
        };
        let nanos = Quantity::parse(&*text).map_err(|error| error.to_string())?.as_nanos();
        match nanos.saturating_add(NANOS - 1) / NANOS / (1 << 20) {
            limit @ 1.. => Ok(Self(limit)),
            _ => Err(format!("must be at least 1Mi, not {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn commands(config: Value, devices: &[&str]) -> Result<Vec<String>, String> {
        let config: MpsConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
        let devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
        config.commands(&devices).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_told_as_the_go_driver_tells_them() {
        let memory =
            |device: &str, limit: &str| format!("set_default_device_pinned_mem_limit {device} {limit}");
        let table = [
            (json!({}), vec![]),
            (
                json!({"defaultActiveThreadPercentage": 50}),
                vec!["set_default_active_thread_percentage 50".to_owned()],
            ),
            (
                json!({"defaultPinnedDeviceMemoryLimit": "1500M"}),
                vec![memory("GPU-a", "1430M"), memory("GPU-b", "1430M")],
            ),
            (
                json!({"defaultPinnedDeviceMemoryLimit": null, "defaultPerDevicePinnedMemoryLimit": null}),
                vec![],
            ),
            (
                json!({"defaultPinnedDeviceMemoryLimit": "2Gi", "defaultPerDevicePinnedMemoryLimit": {"1": 1_048_576}}),
                vec![memory("GPU-a", "1M"), memory("GPU-b", "2048M")],
            ),
            (
                json!({"defaultPerDevicePinnedMemoryLimit": {"GPU-b": "3Gi", "0": "1Gi"}}),
                vec![memory("GPU-b", "3072M")],
            ),
        ];
        for (config, expected) in table {
            assert_eq!(commands(config.clone(), &["GPU-b", "GPU-a"]), Ok(expected), "{config}");
        }
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_refused() {
        let table = [
            (json!({"defaultActiveThreadPercentage": 101}), "must be at most 100"),
            (json!({"defaultActiveThreadPercentage": -1}), "invalid value: integer `-1`"),
            (json!({"defaultPinnedDeviceMemoryLimit": "1023Ki"}), "must be at least 1Mi, not 1023Ki"),
            (json!({"defaultPinnedDeviceMemoryLimit": "-8Gi"}), "must be at least 1Mi, not -8Gi"),
            (json!({"defaultPinnedDeviceMemoryLimit": "much"}), "invalid quantity \"much\""),
            (json!({"defaultPinnedDeviceMemoryLimit": []}), "must be a quantity such as \"8Gi\", not []"),
            (
                json!({"defaultPerDevicePinnedMemoryLimit": {"1": "1Gi"}}),
                "parameters.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.1: is no UUID or place, from 0, of a \
                 device in [\"GPU-a\"]",
            ),
            (json!({"defaultPerDevicePinnedMemoryLimit": {"GPU-b": "1Gi"}}), ".GPU-b: is no UUID"),
        ];
        for (config, expected) in table {
            let error = commands(config, &["GPU-a"]).unwrap_err();
            assert!(error.contains(expected), "{error} should have {expected}");
        }
    }
}
