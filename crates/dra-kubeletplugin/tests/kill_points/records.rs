//! Records, read without the plugin's own reader.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::node::read_if_there;

/// How far a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Started,
    Prepared,
    Unpreparing,
}

/// The record of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) boot: String,
    pub(crate) uid: String,
    pub(crate) phase: Phase,
    pub(crate) devices: Vec<String>,
    /// The CDI file that the claim has to have.
    pub(crate) cdi: Option<String>,
    /// The metadata files that it has to have: content by base request.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Whether another program has prepared the claim, and it is not completed yet.
    pub(crate) adopted: bool,
    /// The CDI file that the other program wrote.
    pub(crate) foreign_cdi: Option<String>,
}

impl Record {
    /// Reads `claims/<boot>/<claim UID>.<json|unpreparing>`, which must be whole if it is there.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        Some(Self::parse(path, &read_if_there(path)?))
    }

    fn parse(path: &Path, text: &str) -> Self {
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let (stem, extension) = path.file_name().unwrap().to_str().unwrap().rsplit_once('.').unwrap();
        let (header, rest) = text.split_once('\n').unwrap_or_else(|| panic!("{}: {text}", path.display()));
        let [_, _, state, length] = header.split(' ').collect::<Vec<_>>()[..] else { panic!("{header}") };
        let payload: Value = serde_json::from_str(&rest[..length.parse().unwrap()]).unwrap();
        let phase = match (extension, state) {
            ("unpreparing", _) => Phase::Unpreparing,
            ("json", "prepared") => Phase::Prepared,
            ("json", "started") => Phase::Started,
            other => panic!("{}: {other:?}", path.display()),
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let results = payload["allocation"]["results"].as_array().unwrap();
        let metadata = payload.get("metadata").and_then(Value::as_object).into_iter().flatten();
        assert_eq!(payload["claim"]["uid"], stem, "{}", path.display());
        Self {
            boot: folder.to_owned(),
            uid: stem.to_owned(),
            phase,
            devices: results.iter().map(|result| text(&result["device"])).collect(),
            cdi: payload.get("cdi").map(text),
            metadata: metadata.map(|(request, content)| (request.clone(), text(content))).collect(),
            adopted: payload.get("adopted").is_some_and(|adopted| adopted.as_bool().unwrap()),
            foreign_cdi: payload.get("foreignCdi").map(text),
        }
    }
}
