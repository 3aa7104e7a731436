//! Reads an inventory file.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use dra_kubeletplugin::{
    Device, DeviceHealth, Pool, Quantity,
    k8s_openapi::api::resource::v1 as api,
    resourceslice::{CounterSet, Slice},
};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    Inventory,
    yaml::{Step, place, strict},
};

#[derive(Default, Deserialize)]
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

/// What the items of the list are.
#[derive(Clone, Copy)]
enum Items {
    Devices,
    Slices,
}

/// As much of an item as tells a slice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    devices: Option<IgnoredAny>,
    shared_counters: Option<IgnoredAny>,
    health: Option<IgnoredAny>,
}

impl Item {
    fn is_slice(&self) -> bool {
        self.devices.is_some() || self.shared_counters.is_some() || self.health.is_some()
    }
}

/// Errors name the line and the path of the field.
pub(super) fn read(text: &str) -> anyhow::Result<Inventory> {
    // YAML takes nothing for an empty list, and half of a copied file may be nothing.
    let is_empty = matches!(serde_yaml_ng::from_str::<Option<IgnoredAny>>(text), Ok(None));
    ensure!(!is_empty, "the file is empty; a node without devices is the empty list `[]`");
    let items = Items::of(text);
    let listed = match items {
        Items::Devices => vec![FileSlice { devices: strict(text)?, ..FileSlice::default() }],
        Items::Slices => strict(text)?,
    };
    let mut places = BTreeMap::new();
    let mut health = BTreeMap::new();
    let mut slices = Vec::new();
    for (index, mut slice) in listed.into_iter().enumerate() {
        let mut devices = Vec::new();
        for (number, device) in slice.devices.iter().enumerate() {
            let here = || place(text, &items.path_of(index, number));
            let device = Device::try_from(device).with_context(here)?;
            let twin = places.insert(device.name().clone(), places.len());
            ensure!(twin.is_none(), "{}: there are two devices {}", here(), device.name());
            let listed = slice.health.remove(device.name().as_str()).map(DeviceHealth::from);
            health.insert(device.name().clone(), listed.unwrap_or_else(DeviceHealth::healthy));
            devices.push(device);
        }
        let here = |field: &str| place(text, &[Step::Index(index), Step::Key(field.to_owned())]);
        if let Some(unknown) = slice.health.keys().next() {
            bail!("{}: there is no device {unknown:?} in this slice", here("health"));
        }
        slices.push(match (devices.is_empty(), slice.shared_counters.is_empty()) {
            (_, true) => Slice::new(devices),
            (true, false) => {
                let sets = counter_sets(&slice.shared_counters);
                Slice::counters(sets.with_context(|| here("sharedCounters"))?)
            }
            (false, false) => bail!(
                "{}: the slice has devices too, and the API takes them in slices of their own",
                here("sharedCounters")
            ),
        });
    }
    let pool = match (items, slices.pop()) {
        // The driver cuts a list of devices into slices; only slices are taken as they are written.
        (Items::Devices, Some(listed)) => Pool::new(listed.devices().cloned()),
        (_, last) => Pool::from_slices(slices.into_iter().chain(last)),
    };
    Ok(Inventory { places, health, pool })
}

impl Items {
    /// What cannot be read is told by whoever reads it.
    fn of(text: &str) -> Self {
        let items: Vec<Item> = serde_yaml_ng::from_str(text).unwrap_or_default();
        if items.iter().any(Item::is_slice) { Self::Slices } else { Self::Devices }
    }

    fn path_of(self, slice: usize, device: usize) -> Vec<Step> {
        match self {
            Self::Devices => vec![Step::Index(device)],
            Self::Slices => vec![Step::Index(slice), Step::Key("devices".to_owned()), Step::Index(device)],
        }
    }
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
    sets.iter().map(|set| counter_set(set).with_context(|| format!("counter set {:?}", set.name))).collect()
}

fn counter_set(set: &api::CounterSet) -> anyhow::Result<CounterSet> {
    let mut model = CounterSet::new(&set.name)?;
    for (name, counter) in &set.counters {
        model = model.counter(name, Quantity::try_from(&counter.value)?)?;
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use dra_kubeletplugin::{
        DriverResources,
        resourceslice::{Problem, Scope, validate},
    };

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
    fn the_files_that_documents_show_are_read() {
        let between = |text: &'static str, begin, end| -> &'static str {
            let (_, rest) = text.split_once(begin).expect(begin);
            rest.split_once(end).expect(end).0
        };
        let operations = include_str!("../../../../docs/operations.md");
        let file = between(operations, "```yaml\n- devices:\n", "```");
        let inventory = read(&format!("- devices:\n{file}")).unwrap();
        let well = inventory.health().map(|(_, health)| *health == DeviceHealth::healthy());
        assert_eq!(well.collect::<Vec<_>>(), [true, false]);

        let walk = include_str!("../../../../demos/walk-through/README.md");
        let inventory = read(between(walk, "cat > inventory.json <<END\n", "END\n")).unwrap();
        assert_eq!(inventory.health().count(), 2);
    }

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
    fn a_list_of_devices_is_cut_into_slices_and_may_be_written_as_people_write_yaml() {
        let text = "# two GPUs\n- name: a\n  attributes:\n    model: {string: x}\n  capacity:\n    memory:\n      value: 80Gi\n- name: b\n";
        let inventory = read(text).unwrap();
        let model = Device::named("a").unwrap().try_attribute("model", "x").unwrap();
        let model = model.try_capacity("memory", Quantity::parse("80Gi").unwrap()).unwrap();
        let expected = Pool::new([model, Device::named("b").unwrap()]);
        assert_eq!(format!("{:?}", inventory.pool()), format!("{expected:?}"));
        assert_eq!(read("[]").unwrap().health().count(), 0);
        for (count, rest, is_list, problems) in [
            (129, "", true, 0),
            (65, ", taints: [{key: k, effect: NoSchedule}]", true, 0),
            (129, "", false, 1),
            (65, ", taints: [{key: k, effect: NoSchedule}]", false, 1),
        ] {
            let devices: Vec<_> = (0..count).map(|n| format!("- {{name: d{n}{rest}}}")).collect();
            let devices = devices.join("\n");
            let text = if is_list { devices } else { format!("- devices:\n{devices}") };
            let resources =
                DriverResources::new().pool("node-1".parse().unwrap(), read(&text).unwrap().pool().clone());
            let scope = Scope::node("gpu.example.com".parse().unwrap(), "node-1".parse().unwrap());
            let found = validate(&scope, &resources);
            assert_eq!(found.len(), problems, "{count}{rest}: {found:?}");
            let says_how = |problem: &Problem| problem.to_string().contains("Pool::new");
            assert!(found.iter().all(says_how), "{found:?}");
        }
    }

    #[test]
    fn mistakes_are_told_with_line_and_field() {
        let device =
            |rest: &str| format!("[{{\"devices\": [{{\"name\": \"a\"}},\n{{\"name\": \"b\"{rest}}}]}}]");
        let table = [
            ("- name: a\n- {".to_owned(), ": [1]: did not find expected node content"),
            ("- name: a\n---\n- name: b".to_owned(), "more than one document"),
            ("name: a".to_owned(), "line 1: invalid type: map, expected a sequence"),
            (String::new(), "the file is empty"),
            ("# - name: a\n".to_owned(), "the file is empty"),
            ("- name: a\n\n- nam: b".to_owned(), "line 3: [1].nam: unknown field"),
            ("- name: a\n- attributes: {}".to_owned(), "line 2: [1]: "),
            ("- name: a\n- name: a".to_owned(), "line 2: [1]: there are two devices a"),
            ("- name: a\n  bindsToNode: maybe".to_owned(), "line 2: [0].bindsToNode: "),
            (
                "- name: a\n  attributes:\n    example.com/x:\n      text: y".to_owned(),
                "line 4: [0].attributes.example.com/x.text: unknown",
            ),
            (device(", \"labels\": {}"), "line 2: [0].devices[1].labels: unknown field"),
            (
                device(", \"attributes\": {\"model\": {\"text\": \"x\"}}"),
                "line 2: [0].devices[1].attributes.model.text: unknown field",
            ),
            (
                device(", \"attributes\": {\"model\": {\"int\": \"x\"}}"),
                "line 2: [0].devices[1].attributes.model.int: invalid type",
            ),
            (device(", \"attributes\": {\"model\": {}}"), "attributes[model]: has no value"),
            (device(", \"capacity\": {\"memory\": {\"value\": \"much\"}}"), "capacity[memory]"),
            (
                device(", \"taints\": [{\"key\": \"k\", \"effect\": \"Odd\"}]"),
                "taints[k].effect: \"Odd\" is unknown",
            ),
            (
                "- devices: []\n  health:\n    a: {status: Odd}".to_owned(),
                "line 3: [0].health.a.status: unknown variant `Odd`",
            ),
            (
                "- devices: [{name: a}]\n  health:\n    b: {status: Healthy}".to_owned(),
                "line 3: [0].health: there is no device \"b\"",
            ),
            ("- devices:\n  - name: A!".to_owned(), "line 2: [0].devices[0]: "),
            (
                "- devices: [{name: a}]\n- devices: [{name: a}]".to_owned(),
                "line 2: [1].devices[0]: there are two devices a",
            ),
            (
                "- devices: [{name: a}]\n  sharedCounters: [{name: s, counters: {}}]".to_owned(),
                "line 2: [0].sharedCounters: the slice has devices too",
            ),
            (
                "- sharedCounters: [{name: s, counters: {c: {value: many}}}]".to_owned(),
                "line 1: [0].sharedCounters: counter set \"s\"",
            ),
        ];
        for (text, expected) in table {
            let error = read(&text).map(drop).map_err(|error| format!("{error:#}"));
            let is_told = error.as_ref().is_err_and(|error| error.contains(expected));
            assert!(is_told, "{text} gives {error:?}, not {expected:?}");
        }
    }
}
