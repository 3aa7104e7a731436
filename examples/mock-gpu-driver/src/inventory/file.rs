//! Reads an inventory file. It is strict, so that a slip of the pen is not a device without the field that was meant.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dra_kubeletplugin::{
    Device, DeviceHealth, Pool, Quantity,
    k8s_openapi::api::resource::v1 as api,
    resourceslice::{CounterSet, Slice},
};
use serde::{Deserialize, de::DeserializeOwned};

use super::Inventory;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileSlice {
    #[serde(default)]
    devices: Vec<api::Device>,
    #[serde(default)]
    shared_counters: Vec<api::CounterSet>,
    /// By the device's name; the others are healthy.
    #[serde(default)]
    health: BTreeMap<String, FileHealth>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileHealth {
    status: FileStatus,
    #[serde(default)]
    message: String,
}

/// As the status of a pod spells it.
#[derive(Deserialize)]
enum FileStatus {
    Healthy,
    Unhealthy,
    Unknown,
}

pub(super) fn read(text: &str) -> anyhow::Result<Inventory> {
    let listed: Vec<FileSlice> = strict(text)?;
    let mut places = BTreeMap::new();
    let mut health = BTreeMap::new();
    let mut slices = Vec::new();
    for (index, mut slice) in listed.into_iter().enumerate() {
        let devices: Vec<Device> = slice.devices.iter().map(Device::try_from).collect::<Result<_, _>>()?;
        for device in &devices {
            let place = places.len();
            let twin = places.insert(device.name().clone(), place);
            ensure!(twin.is_none(), "[{index}].devices: there are two devices {}", device.name());
            let listed = slice.health.remove(device.name().as_str()).map(DeviceHealth::from);
            health.insert(device.name().clone(), listed.unwrap_or_else(DeviceHealth::healthy));
        }
        if let Some(unknown) = slice.health.keys().next() {
            bail!("[{index}].health: there is no device {unknown:?} in this slice");
        }
        slices.push(match (devices.is_empty(), slice.shared_counters.is_empty()) {
            (_, true) => Slice::new(devices),
            (true, false) => Slice::counters(counter_sets(&slice.shared_counters)?),
            (false, false) => {
                bail!("[{index}] has devices and sharedCounters; the API takes them in slices of their own")
            }
        });
    }
    Ok(Inventory { places, health, pool: Pool::from_slices(slices) })
}

impl From<FileHealth> for DeviceHealth {
    fn from(listed: FileHealth) -> Self {
        match listed.status {
            FileStatus::Healthy => Self::healthy().message(listed.message),
            FileStatus::Unhealthy => Self::unhealthy(listed.message),
            FileStatus::Unknown => Self::unknown(listed.message),
        }
    }
}

fn counter_sets(sets: &[api::CounterSet]) -> anyhow::Result<Vec<CounterSet>> {
    sets.iter()
        .map(|set| counter_set(set).with_context(|| format!("counter set {:?} in sharedCounters", set.name)))
        .collect()
}

fn counter_set(set: &api::CounterSet) -> anyhow::Result<CounterSet> {
    let mut model = CounterSet::new(&set.name)?;
    for (name, counter) in &set.counters {
        model = model.counter(name, Quantity::try_from(&counter.value)?)?;
    }
    Ok(model)
}

/// Reads JSON in which every field is known. Errors begin with the path of the field.
fn strict<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let mut unknown = Vec::new();
    match serde_ignored::deserialize(tracked, |path| unknown.push(field(&path.to_string()))) {
        Ok(_) if !unknown.is_empty() => bail!("{}: unknown field", unknown[0]),
        Ok(read) => {
            json.end()?;
            Ok(read)
        }
        Err(error) => {
            let path = track.path().to_string();
            let error: serde_json::Error = error;
            Err(error).with_context(|| if path == "." { "the file".to_owned() } else { path })
        }
    }
}

/// Spells a path of `serde_ignored` (`0.devices.?.1.name`) as `serde_path_to_error` does: `[0].devices[1].name`.
fn field(path: &str) -> String {
    let parts = path.split('.').filter(|part| *part != "?");
    let spelled: String = parts
        .map(|part| if part.parse::<usize>().is_ok() { format!("[{part}]") } else { format!(".{part}") })
        .collect();
    spelled.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITIONS: &str = r#"[
        {"sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]},
        {"devices": [
            {"name": "half-0", "attributes": {"kind": {"string": "half"}}, "capacity": {"memory": {"value": "40Gi"}},
             "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}],
             "taints": [{"key": "worn", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]},
            {"name": "half-1"}]},
        {"devices": [{"name": "whole-1"}]}]"#;

    #[test]
    fn slices_are_read_in_their_order_and_devices_counted_over_all() {
        let inventory = read(PARTITIONS).unwrap();
        for (name, place) in [("half-0", 0), ("half-1", 1), ("whole-1", 2)] {
            assert_eq!(inventory.device(&name.parse().unwrap()).unwrap().name().as_str(), name);
            assert_eq!(inventory.pool().devices().nth(place).unwrap().name().as_str(), name);
        }
        let memory = |quantity| CounterSet::new("gpu-0").unwrap().counter("memory", quantity).unwrap();
        let whole = Slice::new([Device::named("whole-1").unwrap()]);
        let text = format!("{:?}", inventory.pool());
        for part in [
            format!("{:?}", Slice::counters([memory(Quantity::parse("80Gi").unwrap())])),
            format!("{whole:?}"),
        ] {
            assert!(text.contains(&part), "{part} is not in {text}");
        }
    }

    #[test]
    fn devices_are_healthy_unless_something_else_is_said_of_them() {
        let text = r#"[{"devices": [{"name": "a"}, {"name": "b"}], "health": {"b": {"status": "Unhealthy", "message": "hot"}}},
            {"devices": [{"name": "c"}], "health": {"c": {"status": "Unknown"}}}]"#;
        let inventory = read(text).unwrap();
        let health: Vec<_> =
            inventory.health().map(|(name, health)| (name.to_string(), health.clone())).collect();
        let expected = [
            ("a".to_owned(), DeviceHealth::healthy()),
            ("b".to_owned(), DeviceHealth::unhealthy("hot")),
            ("c".to_owned(), DeviceHealth::unknown("")),
        ];
        assert_eq!(health, expected);
    }

    #[test]
    fn mistakes_are_told_with_the_field() {
        let device = |rest: &str| format!(r#"[{{"devices": [{{"name": "a"}}, {{"name": "b"{rest}}}]}}]"#);
        let table = [
            ("{".to_owned(), "expected a sequence"),
            ("[]x".to_owned(), "trailing characters"),
            (r#"[{"device": []}]"#.to_owned(), "[0].device: unknown field"),
            (device(r#", "labels": {}"#), "[0].devices[1].labels: unknown field"),
            (
                device(r#", "attributes": {"model": {"text": "x"}}"#),
                "[0].devices[1].attributes.model.text: unknown field",
            ),
            (device(r#", "attributes": {"model": {"int": "x"}}"#), "[0].devices[1].attributes.model.int: "),
            (device(r#", "attributes": {"model": {}}"#), "attributes[model]: has no value"),
            (device(r#", "capacity": {"memory": {"value": "much"}}"#), "capacity[memory]"),
            (
                device(r#", "taints": [{"key": "k", "effect": "Odd"}]"#),
                "taints[k].effect: \"Odd\" is unknown",
            ),
            (
                r#"[{"devices": [], "health": {"a": {"status": "Odd"}}}]"#.to_owned(),
                "[0].health.a.status: unknown variant `Odd`",
            ),
            (
                r#"[{"devices": [{"name": "a"}], "health": {"b": {"status": "Healthy"}}}]"#.to_owned(),
                "[0].health: there is no device \"b\"",
            ),
            (r#"[{"devices": [{"name": "A!"}]}]"#.to_owned(), "A!"),
            (r#"[{"devices": [{"name": "a"}, {"name": "a"}]}]"#.to_owned(), "there are two devices a"),
            (
                r#"[{"devices": [{"name": "a"}], "sharedCounters": [{"name": "s", "counters": {}}]}]"#
                    .to_owned(),
                "[0] has devices and sharedCounters",
            ),
            (
                r#"[{"sharedCounters": [{"name": "s", "counters": {"c": {"value": "many"}}}]}]"#.to_owned(),
                "counter set \"s\" in sharedCounters",
            ),
        ];
        for (text, expected) in table {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(expected), "{text} gives {error:?}, not {expected:?}");
        }
    }
}
