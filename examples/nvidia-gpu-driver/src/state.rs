//! What has to be undone when a claim ends. The SDK keeps it durable.

use nvidia_nvml::Placement;
use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, MigProfile, mig_device_name};

/// Written before anything is done, so it may name what was never done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct State {
    /// Partitions that are made for the claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) made: Vec<Partition>,
    /// UUIDs of GPUs whose time slice is set for the claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) time_sliced: Vec<TimeSliced>,
    /// What containers were given, once they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) given: Vec<Given>,
}

/// A device as containers were given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Given {
    /// Name of the device.
    pub(crate) device: String,
    /// UUID of its GPU.
    pub(crate) gpu: String,
    /// Digest of the edits.
    pub(crate) edits: String,
}

/// A partition, by what it is and where: its number and UUID are not known before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Partition {
    /// Name of the device.
    pub(crate) device: String,
    /// UUID of the GPU.
    pub(crate) parent: String,
    /// Number of the profile.
    pub(crate) profile_id: u32,
    /// First memory slice.
    pub(crate) start: u32,
}

impl Partition {
    /// The one of this shape at this place.
    pub(crate) fn new(gpu: &Gpu, profile: &MigProfile, placement: Placement) -> Self {
        let (profile_id, start) = (profile.shape.id, placement.start);
        let device = mig_device_name(gpu.minor, &profile.name, profile_id, start);
        Self { device, parent: gpu.uuid.clone(), profile_id, start }
    }
}

/// A GPU whose time slice was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimeSliced {
    /// Name of the device.
    pub(crate) device: String,
    /// Its UUID.
    pub(crate) uuid: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_another_version_is_read_as_far_as_it_is_known() {
        let text =
            r#"{"made":[{"device":"d","parent":"GPU-1","profileId":19,"start":2,"size":1}],"later":true}"#;
        let state: State = serde_json::from_str(text).unwrap();
        let partition =
            Partition { device: "d".to_owned(), parent: "GPU-1".to_owned(), profile_id: 19, start: 2 };
        assert_eq!(state, State { made: vec![partition], ..State::default() });
        assert_eq!(serde_json::to_string(&State::default()).unwrap(), "{}");
    }
}
