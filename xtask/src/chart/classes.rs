//! The device classes of the NVIDIA driver, which are there twice: in its chart, and in a file for those without helm.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize as _;
use serde_yaml_ng::Value;

const FILE: &str = "examples/nvidia-gpu-driver/deploy/device-classes.yaml";

/// Holds the classes of the rendered chart against those of the file.
///
/// # Errors
/// They are not the same.
pub(super) fn check(root: &Path, rendered: &str) -> Result<()> {
    let file = root.join(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let (alone, of_chart) = (classes(&text)?, classes(rendered)?);
    ensure!(alone.len() == 3, "{FILE} has the classes {alone:?}");
    ensure!(alone == of_chart, "{FILE} has {alone:?}, and the chart {of_chart:?}");
    Ok(())
}

/// What each class is, by its name.
fn classes(text: &str) -> Result<BTreeMap<String, Value>> {
    let mut classes = BTreeMap::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).context("reading device classes")?;
        if object.get("kind").and_then(Value::as_str) == Some("DeviceClass") {
            let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str());
            let name = name.context("a device class without a name")?.to_owned();
            classes.insert(name, object.get("spec").cloned().unwrap_or_default());
        }
    }
    Ok(classes)
}
