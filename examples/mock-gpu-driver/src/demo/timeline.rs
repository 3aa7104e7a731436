//! What happened, for people or as lines of JSON.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use serde::Serialize;

/// Prints events as they come.
pub(crate) struct Timeline {
    start: Instant,
    json: bool,
}

/// One thing that happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    Registered { driver: String, endpoint: PathBuf },
    Published { slice: String, pool: String, generation: i64, devices: Vec<PublishedDevice> },
    Allocated { pod: String, node: String, claim: String, devices: Vec<String> },
    Prepared { claim: String, cdi_device_ids: Vec<String> },
    CdiFile { path: PathBuf, content: serde_json::Value },
    Container { name: String, env: Vec<String>, devices: Vec<String> },
    Unprepared { claim: String },
    NothingLeft { claims: usize, cdi_files: usize, records: usize },
    DriverStopped { exit_code: i32 },
}

/// A device of a slice, in short.
#[derive(Debug, Serialize)]
pub(crate) struct PublishedDevice {
    name: String,
    attributes: BTreeMap<String, String>,
    capacity: BTreeMap<String, String>,
}

impl PublishedDevice {
    pub(crate) fn of(device: &Device) -> Self {
        let attributes = device.attributes.iter().flatten();
        let capacity = device.capacity.iter().flatten();
        Self {
            name: device.name.clone(),
            attributes: attributes.map(|(name, value)| (name.clone(), text_of(value))).collect(),
            capacity: capacity.map(|(name, value)| (name.clone(), value.value.0.clone())).collect(),
        }
    }
}

fn text_of(value: &DeviceAttribute) -> String {
    let text = value.string.clone().or_else(|| value.version.clone());
    let text = text.or_else(|| value.int.map(|int| int.to_string()));
    text.or_else(|| value.bool.map(|bool| bool.to_string())).unwrap_or_default()
}

impl Timeline {
    pub(crate) fn new(json: bool) -> Self {
        Self { start: Instant::now(), json }
    }

    /// Prints one event.
    pub(crate) fn tell(&mut self, event: &Event) {
        let milliseconds = self.start.elapsed().as_millis();
        if self.json {
            println!("{}", json_line(event, milliseconds));
            return;
        }
        let (headline, details) = words(event);
        println!("{:>7.3} s  {headline}", self.start.elapsed().as_secs_f64());
        for line in details {
            println!("            {line}");
        }
    }
}

fn json_line(event: &Event, milliseconds: u128) -> String {
    // The events hold nothing that JSON has no form for.
    let mut value = serde_json::to_value(event).unwrap_or_default();
    value["milliseconds"] = serde_json::json!(u64::try_from(milliseconds).unwrap_or(u64::MAX));
    value.to_string()
}

/// A headline and the lines below it.
fn words(event: &Event) -> (String, Vec<String>) {
    match event {
        Event::Registered { driver, endpoint } => (
            format!("registered: the kubelet knows driver {driver}"),
            vec![format!("calls go to {}", endpoint.display())],
        ),
        Event::Published { slice, pool, generation, devices } => {
            (format!("published: {slice}, pool {pool}, generation {generation}"), table(devices))
        }
        Event::Allocated { pod, node, claim, devices } => (
            format!("allocated: {} for claim {claim} of pod {pod} on {node}", devices.join(", ")),
            Vec::new(),
        ),
        Event::Prepared { claim, cdi_device_ids } => {
            (format!("prepared: claim {claim}"), cdi_device_ids.clone())
        }
        Event::CdiFile { path, content } => {
            let pretty = serde_json::to_string_pretty(content).unwrap_or_default();
            (format!("CDI file: {}", path.display()), pretty.lines().map(str::to_owned).collect())
        }
        Event::Container { name, env, devices } => {
            let nodes =
                if devices.is_empty() { "no device nodes (these GPUs are mocks)" } else { "device nodes:" };
            let lines = env.iter().chain([&nodes.to_owned()]).chain(devices).cloned().collect();
            (format!("container: {name} gets"), lines)
        }
        Event::Unprepared { claim } => (format!("unprepared: claim {claim}"), Vec::new()),
        Event::NothingLeft { .. } => {
            ("nothing left: no claim, no CDI file, no record".to_owned(), Vec::new())
        }
        Event::DriverStopped { exit_code } => {
            (format!("driver stopped with exit code {exit_code}"), Vec::new())
        }
    }
}

/// One line for each device, one column for each attribute and capacity.
fn table(devices: &[PublishedDevice]) -> Vec<String> {
    let Some(first) = devices.first() else { return vec!["no devices".to_owned()] };
    let columns: Vec<&String> = first.attributes.keys().chain(first.capacity.keys()).collect();
    let header = std::iter::once("device".to_owned()).chain(columns.iter().map(ToString::to_string));
    let mut rows: Vec<Vec<String>> = vec![header.collect()];
    for device in devices {
        let cell = |column: &&String| device.attributes.get(*column).or_else(|| device.capacity.get(*column));
        let cells = columns.iter().map(|column| cell(column).cloned().unwrap_or_default());
        rows.push(std::iter::once(device.name.clone()).chain(cells).collect());
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
