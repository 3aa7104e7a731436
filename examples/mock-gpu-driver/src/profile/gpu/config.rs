//! How a GPU is to be shared: the opaque configuration that users write into claims and administrators into classes.

use std::{fmt, num::NonZeroU32};

use dra_kubeletplugin::DeviceConfig;
use serde::Deserialize;

/// `GpuConfig` of the group `gpu.resource.example.com`, as the Go example driver has it.
///
/// ```yaml
/// apiVersion: gpu.resource.example.com/v1alpha1
/// kind: GpuConfig
/// sharing:
///   strategy: TimeSlicing
///   timeSlicingConfig:
///     interval: Long
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct GpuConfig {
    pub(crate) sharing: Sharing,
}

impl DeviceConfig for GpuConfig {
    const API_VERSION: &'static str = "gpu.resource.example.com/v1alpha1";
    const KIND: &'static str = "GpuConfig";
}

/// How users of a GPU share it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenSharing")]
pub(crate) enum Sharing {
    /// They take turns.
    TimeSlicing(Interval),
    /// Each gets a part of it; there are so many.
    SpacePartitioning(NonZeroU32),
}

impl Default for Sharing {
    fn default() -> Self {
        Self::TimeSlicing(Interval::default())
    }
}

/// How long a turn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Interval {
    #[default]
    Default,
    Short,
    Medium,
    Long,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl TryFrom<String> for Interval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = [Self::Default, Self::Short, Self::Medium, Self::Long];
        known.into_iter().find(|interval| interval.to_string() == text).ok_or_else(|| {
            format!("unknown time-slice interval {text:?}, expected Default, Short, Medium or Long")
        })
    }
}

/// The object as it is written. What is left out or null has its default.
#[derive(Deserialize)]
struct Written {
    sharing: Option<Sharing>,
}

impl From<Written> for GpuConfig {
    fn from(written: Written) -> Self {
        Self { sharing: written.sharing.unwrap_or_default() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSharing {
    strategy: Strategy,
    time_slicing_config: Option<WrittenTimeSlicing>,
    space_partitioning_config: Option<WrittenSpacePartitioning>,
}

#[derive(Deserialize)]
enum Strategy {
    TimeSlicing,
    SpacePartitioning,
}

#[derive(Default, Deserialize)]
struct WrittenTimeSlicing {
    interval: Option<Interval>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSpacePartitioning {
    partition_count: Option<NonZeroU32>,
}

impl TryFrom<WrittenSharing> for Sharing {
    type Error = &'static str;

    /// # Errors
    /// It has settings of the other strategy: whoever wrote them meant something that would not happen.
    fn try_from(written: WrittenSharing) -> Result<Self, Self::Error> {
        match (written.strategy, written.time_slicing_config, written.space_partitioning_config) {
            (Strategy::TimeSlicing, settings, None) => {
                Ok(Self::TimeSlicing(settings.unwrap_or_default().interval.unwrap_or_default()))
            }
            (Strategy::SpacePartitioning, None, settings) => {
                let count = settings.unwrap_or_default().partition_count;
                Ok(Self::SpacePartitioning(count.unwrap_or(NonZeroU32::MIN)))
            }
            (Strategy::TimeSlicing, ..) => {
                Err("spacePartitioningConfig needs the strategy SpacePartitioning")
            }
            (Strategy::SpacePartitioning, ..) => Err("timeSlicingConfig needs the strategy TimeSlicing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(sharing: &Value) -> Result<Sharing, String> {
        let written = json!({"apiVersion": GpuConfig::API_VERSION, "kind": "GpuConfig", "sharing": sharing});
        GpuConfig::decode(&written).map(|config| config.sharing).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let bare = json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"});
        assert_eq!(GpuConfig::decode(&bare), Ok(GpuConfig::default()));
        let count = |count| Sharing::SpacePartitioning(NonZeroU32::new(count).unwrap());
        let table = [
            (json!(null), Sharing::TimeSlicing(Interval::Default)),
            (json!({"strategy": "TimeSlicing"}), Sharing::TimeSlicing(Interval::Default)),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
                Sharing::TimeSlicing(Interval::Default),
            ),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"},
                       "spacePartitioningConfig": null}),
                Sharing::TimeSlicing(Interval::Long),
            ),
            (json!({"strategy": "SpacePartitioning"}), count(1)),
            (
                json!({"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}}),
                count(10),
            ),
        ];
        for (written, expected) in table {
            assert_eq!(read(&written), Ok(expected), "{written}");
        }
    }

    #[test]
    fn mistakes_are_told_with_the_path_of_the_field() {
        let table = [
            (json!({}), "parameters.sharing: missing field `strategy`"),
            (
                json!({"strategy": "Guessing"}),
                "parameters.sharing.strategy: unknown variant `Guessing`, expected `TimeSlicing` or `SpacePartitioning`",
            ),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Endless"}}),
                "parameters.sharing.timeSlicingConfig.interval: unknown time-slice interval \"Endless\", expected Default, \
                 Short, Medium or Long",
            ),
            (
                json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"intervall": "Long"}}),
                "parameters.sharing.timeSlicingConfig.intervall: unknown field",
            ),
            (
                json!({"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 0}}),
                "parameters.sharing.spacePartitioningConfig.partitionCount: invalid value: integer `0`, expected a \
                 nonzero u32",
            ),
            (
                json!({"strategy": "TimeSlicing", "spacePartitioningConfig": {"partitionCount": 2}}),
                "parameters.sharing: spacePartitioningConfig needs the strategy SpacePartitioning",
            ),
            (
                json!({"strategy": "SpacePartitioning", "timeSlicingConfig": {}}),
                "parameters.sharing: timeSlicingConfig needs the strategy TimeSlicing",
            ),
        ];
        for (written, expected) in table {
            assert_eq!(read(&written).unwrap_err(), expected, "{written}");
        }
        let other = json!({"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "NetConfig"});
        assert_eq!(
            GpuConfig::decode(&other).unwrap_err().to_string(),
            "parameters.kind: must be \"GpuConfig\", not \"NetConfig\""
        );
    }
}
