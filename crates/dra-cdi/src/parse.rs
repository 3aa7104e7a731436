//! Reading a spec back, strictly.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::check::InvalidSpec;
use crate::edits::ContainerEdits;
use crate::name::Kind;
use crate::spec::{Device, Spec};

/// Why bytes are not a spec that this crate wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Not JSON, or not of the form of a CDI file.
    #[error("not a CDI file: {0}")]
    Malformed(String),
    /// The content breaks a rule.
    #[error("the CDI file is not valid: {0}")]
    Invalid(#[from] InvalidSpec),
    /// The version is not the lowest that the content needs, which is the only one that this crate writes.
    #[error("the CDI file says cdiVersion {found:?}, but its content is that of {expected:?}")]
    Version {
        /// What the file says.
        found: String,
        /// What its content needs.
        expected: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    cdi_version: String,
    kind: Kind,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    container_edits: ContainerEdits,
    devices: Vec<Device>,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Spec, ParseError> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| ParseError::Malformed(e.to_string()))?;
    let devices = file.devices.iter().map(|device| (device.name().clone(), device.edits().clone()));
    let spec = Spec::new(file.kind, file.container_edits, devices)?.with_annotations(file.annotations)?;
    let expected = spec.version().as_str();
    if file.cdi_version != expected {
        return Err(ParseError::Version { found: file.cdi_version, expected });
    }
    Ok(spec)
}

/// The kind that the bytes of a CDI file name, whatever else they hold.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct KindOnly {
        kind: String,
    }
    serde_json::from_slice::<KindOnly>(bytes).ok().map(|file| file.kind)
}

/// The kind and the devices that a CDI file in JSON names, whoever wrote it and whatever else it holds.
pub(crate) fn names_in(bytes: &[u8]) -> Option<(String, Vec<String>)> {
    #[derive(Deserialize)]
    struct NamesOnly {
        kind: String,
        #[serde(default)]
        devices: Vec<NameOnly>,
    }
    #[derive(Deserialize)]
    struct NameOnly {
        name: String,
    }
    let file: NamesOnly = serde_json::from_slice(bytes).ok()?;
    Some((file.kind, file.devices.into_iter().map(|device| device.name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"cdiVersion":"0.3.0","kind":"vendor.com/class","devices":[{"name":"dev","containerEdits":{"env":["A=1"]}}]}"#;

    #[test]
    fn a_file_that_we_wrote_is_read_back() {
        let spec = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(spec.kind().to_string(), "vendor.com/class");
        assert_eq!(spec.devices()[0].edits().env[0].value, "1");
        assert_eq!(spec.encode(), format!("{GOOD}\n").into_bytes());
    }

    #[test]
    fn anything_that_we_would_not_write_is_refused() {
        let malformed = [
            ("\"kind\"", "\"Kind\""),
            ("{\"cdi", "{\"extra\":1,\"cdi"),
            ("\"env\":", "\"ENV\":"),
            ("[\"A=1\"]", "[null]"),
            ("[\"A=1\"]", "null"),
            ("[\"A=1\"]", "[\"A\"]"),
            ("\"dev\"", "\"d/ev\""),
            ("vendor.com", "v"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[null]"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"/dev/a\",\"type\":\"x\"}]"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"/dev/a\",\"type\":\"u\"}]"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"/dev/a\",\"major\":-1,\"minor\":0}]"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"/dev/a\",\"fileMode\":\"0660\"}]"),
            ("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"/dev/a\",\"permissions\":\"none\"}]"),
            ("\"env\":[\"A=1\"]", "\"hooks\":[{\"hookName\":\"preStart\",\"path\":\"/bin/true\"}]"),
            (
                "\"env\":[\"A=1\"]",
                "\"hooks\":[{\"hookName\":\"prestart\",\"path\":\"/bin/true\",\"timeout\":0}]",
            ),
            ("\"env\":[\"A=1\"]", "\"intelRdt\":{\"enableCMT\":true}"),
            ("\"env\":[\"A=1\"]", "\"mounts\":[{\"containerPath\":\"/a\"}]"),
            ("}]}", "}]"),
        ];
        for (from, to) in malformed {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            assert!(matches!(parse(text.as_bytes()), Err(ParseError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn broken_rules_and_other_versions_are_told_apart() {
        let relative = GOOD.replace("\"env\":[\"A=1\"]", "\"deviceNodes\":[{\"path\":\"dev/a\"}]");
        let Err(ParseError::Invalid(invalid)) = parse(relative.as_bytes()) else { panic!("{relative}") };
        assert_eq!(invalid.field, "devices[0].containerEdits.deviceNodes[0].path");
        let newer = parse(GOOD.replace("0.3.0", "1.1.0").as_bytes()).unwrap_err();
        assert_eq!(newer, ParseError::Version { found: "1.1.0".to_owned(), expected: "0.3.0" });
    }
}
