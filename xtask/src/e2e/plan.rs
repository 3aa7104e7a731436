//! Which scenarios run on which version.

use std::fmt;

use clap::ValueEnum;

use crate::cluster::version::Version;

/// How much is run. Each tier holds the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// The path of one pod, to see that a version works at all.
    Smoke,
    /// Everything once, loops short.
    Gate,
    /// Everything, loops long on the newest version, and all others as in the gate.
    Full,
}

/// One version with its scenarios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) kubernetes: Version,
    pub(crate) tier: Tier,
    /// For all components: `A=true,B=false`; none means those of the version.
    pub(crate) feature_gates: String,
}

/// Turns on the gates that fields of slices depend on and that Kubernetes 1.37 has off, and what they need.
const ALL_ON: &str = "DRADeviceCompatibilityGroups=true,DRAFractionalCapacityRange=true,DRAListTypeAttributes=true,\
                      DRANodeAllocatableResources=true,DRAOptionalNodeOperations=true,\
                      DRAPartitionableDevicesType=true,DRAResourcePoolStatus=true";
/// Turns off those that it has on, and what needs them, and health in the status of pods.
const ALL_OFF: &str = "DRAConsumableCapacity=false,DRADeviceBindingConditions=false,DRADeviceTaintRules=false,\
                       DRADeviceTaints=false,DRAFractionalCapacityRange=false,DRAPartitionableDevices=false,\
                       ResourceHealthStatus=false,ResourceHealthStatusMessage=false";

/// The legs of a run, in order. A run of chosen scenarios (`only`) is for one version: the newest if none is named.
pub(crate) fn legs(
    tier: Tier,
    kubernetes: Option<Version>,
    only: bool,
    feature_gates: Option<&str>,
) -> Vec<Leg> {
    let mut legs = legs_of_tier(tier, kubernetes, only || feature_gates.is_some());
    if let Some(gates) = feature_gates {
        for leg in &mut legs {
            gates.clone_into(&mut leg.feature_gates);
        }
    }
    legs
}

fn legs_of_tier(tier: Tier, kubernetes: Option<Version>, only: bool) -> Vec<Leg> {
    let leg = |kubernetes, tier| Leg { kubernetes, tier, feature_gates: String::new() };
    let gated = |gates: &str| Leg { feature_gates: gates.to_owned(), ..leg(Version::NEWEST, Tier::Smoke) };
    match (tier, kubernetes) {
        (_, Some(version)) => vec![leg(version, tier)],
        (_, None) if only => vec![leg(Version::NEWEST, tier)],
        (Tier::Smoke, None) => vec![leg(Version::NEWEST, tier)],
        (Tier::Gate, None) => {
            vec![leg(Version::NEWEST, tier), gated(ALL_ON), leg(Version::OLDEST, Tier::Smoke)]
        }
        (Tier::Full, None) => {
            // Long loops look for rare trouble of ours, which one version shows as well as four.
            let others = Version::TESTED.into_iter().filter(|version| *version != Version::NEWEST);
            let others = others.map(|version| leg(version, Tier::Gate));
            let newest = [leg(Version::NEWEST, tier), gated(ALL_ON), gated(ALL_OFF)];
            newest.into_iter().chain(others).collect()
        }
    }
}

impl Leg {
    /// A name for a folder.
    pub(crate) fn name(&self) -> String {
        let gates = match self.feature_gates.as_str() {
            "" => "",
            ALL_ON => "-gates-on",
            ALL_OFF => "-gates-off",
            _ => "-gates",
        };
        format!("{}{gates}", self.kubernetes)
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes {}, tier {}", self.kubernetes, self.tier)?;
        if self.feature_gates.is_empty() { Ok(()) } else { write!(f, ", {}", self.feature_gates) }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Smoke => "smoke",
            Self::Gate => "gate",
            Self::Full => "full",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version, tier and gates of the legs.
    fn shown(legs: &[Leg]) -> Vec<(Version, Tier, &str)> {
        legs.iter().map(|leg| (leg.kubernetes, leg.tier, leg.feature_gates.as_str())).collect()
    }

    #[test]
    fn the_gate_runs_the_newest_version_whole_and_others_as_a_smoke_test() {
        let expected = [
            (Version::NEWEST, Tier::Gate, ""),
            (Version::NEWEST, Tier::Smoke, ALL_ON),
            (Version::OLDEST, Tier::Smoke, ""),
        ];
        assert_eq!(shown(&legs(Tier::Gate, None, false, None)), expected);
    }

    #[test]
    fn the_full_tier_runs_all_versions_and_all_gates_on_and_off() {
        let legs = legs(Tier::Full, None, false, None);
        let legs = shown(&legs);
        let newest = [(Tier::Full, ""), (Tier::Smoke, ALL_ON), (Tier::Smoke, ALL_OFF)]
            .map(|(tier, gates)| (Version::NEWEST, tier, gates));
        assert_eq!(legs[..3], newest);
        let others: Vec<_> = legs[3..].iter().map(|(version, ..)| *version).collect();
        assert!(legs[3..].iter().all(|(_, tier, gates)| (*tier, *gates) == (Tier::Gate, "")));
        assert!(
            Version::TESTED.iter().all(|version| *version == Version::NEWEST || others.contains(version))
        );
    }

    #[test]
    fn a_named_version_chosen_scenarios_or_gates_make_one_leg() {
        let oldest = legs(Tier::Full, Some(Version::OLDEST), false, None);
        assert_eq!(shown(&oldest), [(Version::OLDEST, Tier::Full, "")]);
        let chosen = legs(Tier::Gate, None, true, None);
        assert_eq!(shown(&chosen), [(Version::NEWEST, Tier::Gate, "")]);
        let gated = legs(Tier::Gate, None, false, Some("A=true"));
        assert_eq!(shown(&gated), [(Version::NEWEST, Tier::Gate, "A=true")]);
    }
}
