//! The record of a claim as bytes on disk. Pure.
//!
//! ```text
//! dra-claim-record <format> <started|prepared> <length of the payload>\n
//! <payload: JSON>
//! \nsha256:<64 hex digits over everything before "\nsha256:">\n
//! ```
//!
//! The check sum covers the header, so that no flipped bit turns one state into another.

use std::collections::{BTreeMap, BTreeSet};

use dra_cdi::Kind;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::states::Same;
use crate::{
    claim::{Allocation, ClaimRef, DeviceRef},
    digest::sha256_hex,
};

/// The format that this version writes. Formats up to this one are read.
pub(crate) const FORMAT: u32 = 1;

const MAGIC: &str = "dra-claim-record";
const SUM: &str = "\nsha256:";
const SUM_LEN: usize = SUM.len() + 64 + 1;

/// What is kept about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Whether prepare had completed when the record was written; in the header.
    #[serde(skip)]
    pub(crate) completed: bool,
    pub(crate) claim: ClaimRef,
    /// What the claim was given of this driver.
    pub(crate) allocation: Allocation,
    /// What the kubelet was answered; empty until prepare has completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answer: Vec<AnsweredDevice>,
    /// The CDI file, byte for byte; none if no device has edits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cdi: Option<String>,
    /// Names of CDI devices that the claim had with an earlier allocation. Kubelets before 1.37 go on asking for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) former_cdi: Vec<String>,
    /// Whether another program has prepared the claim: it has devices, but no requests and no answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) adopted: bool,
    /// Name of the CDI file that the other program wrote; kept once the claim is our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) foreign_cdi: Option<String>,
    /// The metadata files, by base request; none if the driver says nothing of its devices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    /// What the claim's status says of the devices: entries of `status.devices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<serde_json::Value>,
    /// The driver's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<serde_json::Value>,
    /// Fields of a later version, kept when the record is written anew.
    #[serde(flatten)]
    pub(crate) unknown: serde_json::Map<String, serde_json::Value>,
}

/// A device as the kubelet was told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnsweredDevice {
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cdi_ids: Vec<String>,
}

/// What bytes on disk turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Record(Box<Record>),
    /// Written by a later version, intact: what this version understands of it, if anything. Enough to unprepare the
    /// claim, not to answer for it.
    Newer {
        format: u32,
        record: Option<Box<Record>>,
    },
    /// Cut, changed, or no record at all.
    Damaged {
        why: String,
    },
}

impl Record {
    /// A claim that the driver is about to prepare.
    pub(crate) fn started(claim: ClaimRef, allocation: Allocation) -> Self {
        Self {
            completed: false,
            claim,
            allocation,
            answer: Vec::new(),
            cdi: None,
            former_cdi: Vec::new(),
            adopted: false,
            foreign_cdi: None,
            metadata: BTreeMap::new(),
            status: None,
            state: None,
            unknown: serde_json::Map::new(),
        }
    }

    /// The driver's state; none if there is none, or it does not fit this version of the driver.
    pub(crate) fn decoded_state<S: DeserializeOwned>(&self) -> Option<S> {
        let decoded = serde_json::from_value(self.state.clone()?);
        decoded.inspect_err(|error| tracing::warn!(claim = %self.claim, %error, "the stored state does not fit this version of the driver; going on without it")).ok()
    }

    /// What is left of the claim when its devices are gone and it is about to get others: the names that the kubelet may
    /// go on asking for.
    pub(crate) fn vacated(&self, kind: &Kind) -> Self {
        Self {
            former_cdi: self.told_cdi(kind),
            unknown: self.unknown.clone(),
            ..Self::started(self.claim.clone(), Allocation::default())
        }
    }

    /// Whether it is such a rest: the driver has nothing to undo.
    pub(crate) fn is_vacated(&self) -> bool {
        !self.completed && self.allocation.results.is_empty() && !self.former_cdi.is_empty()
    }

    /// Whether the claim was prepared with what it has been given now.
    pub(crate) fn compare(&self, allocation: &Allocation) -> Same {
        let devices = |allocation: &Allocation| -> BTreeSet<DeviceRef> {
            allocation.results.iter().map(|result| result.device_ref().clone()).collect()
        };
        if self.adopted && devices(&self.allocation) == devices(allocation) {
            Same::DevicesOnly
        } else if !self.adopted && self.allocation == *allocation {
            Same::Allocation
        } else {
            Same::No
        }
    }

    /// Names of all CDI devices of this kind that the kubelet was ever told for the claim.
    pub(crate) fn told_cdi(&self, kind: &Kind) -> Vec<String> {
        let prefix = format!("{kind}=");
        let ids = self.answer.iter().flat_map(|device| &device.cdi_ids);
        let told = ids.filter_map(|id| id.strip_prefix(&prefix)).map(str::to_owned);
        let all: BTreeSet<String> = told.chain(self.former_cdi.iter().cloned()).collect();
        all.into_iter().collect()
    }

    /// The bytes to write.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let payload = serde_json::to_string(self)?;
        let phase = if self.completed { "prepared" } else { "started" };
        let mut bytes = format!("{MAGIC} {FORMAT} {phase} {}\n{payload}", payload.len()).into_bytes();
        let sum = sha256_hex(&bytes);
        bytes.extend_from_slice(format!("{SUM}{sum}\n").as_bytes());
        Ok(bytes)
    }
}

impl Decoded {
    /// Reads bytes that may be anything.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match decode(bytes) {
            Ok(decoded) => decoded,
            Err(why) => Self::Damaged { why },
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    let split = bytes.len().checked_sub(SUM_LEN).ok_or("too short for a record")?;
    let (body, sum) = bytes.split_at(split);
    if sum != format!("{SUM}{}\n", sha256_hex(body)).as_bytes() {
        return Err("the check sum does not match: cut short or changed".to_owned());
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let (header, payload) = text.split_once('\n').ok_or("no header line")?;
    let [magic, format, phase, length] = header.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("header {header:?} has not four words"));
    };
    if magic != MAGIC {
        return Err(format!("starts with {magic:?}, not with {MAGIC:?}"));
    }
    let format: u32 = format.parse().map_err(|_| format!("format {format:?} is no number"))?;
    if format > FORMAT {
        return Ok(Decoded::Newer { format, record: serde_json::from_str(payload).ok() });
    }
    if length.parse() != Ok(payload.len()) {
        return Err(format!("the header promises {length} bytes of payload, there are {}", payload.len()));
    }
    let mut record: Record = serde_json::from_str(payload).map_err(|error| format!("payload: {error}"))?;
    record.completed = match phase {
        "started" => false,
        "prepared" => true,
        _ => return Err(format!("unknown state {phase:?}")),
    };
    Ok(Decoded::Record(Box::new(record)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Record {
        let payload = json!({
            "claim": {"namespace": "default", "name": "one", "uid": "4ecac36f-1de8-45dc-a28a-b8e0cb5a2a0a"},
            "allocation": {
                "results": [{"request": "gpu", "pool": "node-1", "device": "gpu-0"}],
                "configs": [{"source": "FromClaim", "requests": ["gpu"], "parameters": {"b": 1, "a": [null]}}],
            },
            "answer": [{"request": "gpu", "pool": "node-1", "device": "gpu-0", "cdiIds": ["k8s.gpu/claim=x"]}],
            "cdi": "{\"cdiVersion\":\"0.3.0\"}",
            "state": {"minor": 3},
            "of a later version": true,
        });
        Record { completed: true, ..serde_json::from_value(payload).unwrap() }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written_with_fields_of_later_versions() {
        for completed in [true, false] {
            let record = Record { completed, ..record() };
            let bytes = record.encode().unwrap();
            assert_eq!(Decoded::from_bytes(&bytes), Decoded::Record(Box::new(record.clone())));
            assert!(String::from_utf8(bytes).unwrap().contains("of a later version"));
        }
    }

    #[test]
    fn what_the_kubelet_was_told_once_is_remembered_by_name() {
        let kind: Kind = "k8s.gpu/claim".parse().unwrap();
        let record = Record { former_cdi: vec!["y".into(), "x".into()], ..record() };
        assert_eq!(record.told_cdi(&kind), ["x", "y"]);
        assert_eq!(
            record.told_cdi(&"k8s.nic/claim".parse().unwrap()),
            ["x", "y"],
            "former names have no kind"
        );
    }

    #[test]
    fn a_record_cut_at_any_length_is_damaged() {
        let bytes = record().encode().unwrap();
        for length in 0..bytes.len() {
            assert!(matches!(Decoded::from_bytes(&bytes[..length]), Decoded::Damaged { .. }), "{length}");
        }
    }

    #[test]
    fn a_record_with_any_byte_changed_is_damaged() {
        let bytes = record().encode().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    matches!(Decoded::from_bytes(&changed), Decoded::Damaged { .. }),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn an_intact_record_of_a_later_format_is_told_apart_from_a_damaged_one() {
        let mut body = b"dra-claim-record 2 halfway {}\nnot even JSON".to_vec();
        let sum = sha256_hex(&body);
        body.extend_from_slice(format!("{SUM}{sum}\n").as_bytes());
        assert_eq!(Decoded::from_bytes(&body), Decoded::Newer { format: 2, record: None });
    }
}
