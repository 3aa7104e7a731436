//! Which scenarios run on which version, and in how many clusters.

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

/// Scenarios that can be run by themselves; which they are is for the `e2e` crate to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// The demos on the driver that helm has installed, each with its assertion.
    Demos,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Demos => "demos",
        })
    }
}

/// One version with its scenarios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) kubernetes: Version,
    pub(crate) tier: Tier,
    /// For all components: `A=true,B=false`; none means those of the version.
    pub(crate) feature_gates: String,
    /// Which of the clusters that share its scenarios.
    pub(crate) share: Share,
}

/// Cluster `number` of the `of` that share the scenarios of a leg, counted from 1. Each takes the next scenario that no
/// other one has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

/// Clusters at once. Scenarios wait for most of their time: for back-offs of the kubelet, or on purpose.
pub(crate) const SIDE_BY_SIDE: usize = 3;

/// Turns on the gates that fields of slices depend on and that Kubernetes 1.37 has off, and what they need.
const ALL_ON: &str = "DRADeviceCompatibilityGroups=true,DRAFractionalCapacityRange=true,DRAListTypeAttributes=true,\
                      DRANodeAllocatableResources=true,DRAOptionalNodeOperations=true,\
                      DRAPartitionableDevicesType=true,DRAResourcePoolStatus=true";
/// What demos need of the newest version that it has off.
const DEMOS_ON: &str = "DRANodeAllocatableResources=true,DRAWorkloadResourceClaims=true,GenericWorkload=true";
/// Turns off those that it has on, and what needs them, and health in the status of pods.
const ALL_OFF: &str = "DRAConsumableCapacity=false,DRADeviceBindingConditions=false,DRADeviceTaintRules=false,\
                       DRADeviceTaints=false,DRAFractionalCapacityRange=false,DRAPartitionableDevices=false,\
                       ResourceHealthStatus=false,ResourceHealthStatusMessage=false";

/// The legs of a run, in order. A run of chosen scenarios (`only`) is for one version: the newest if none is named.
pub(crate) fn legs(
    tier: Tier,
    suite: Option<Suite>,
    kubernetes: Option<Version>,
    only: bool,
    feature_gates: Option<&str>,
) -> Vec<Leg> {
    let mut legs = match suite {
        Some(suite) => legs_of_suite(suite, kubernetes),
        None => legs_of_tier(tier, kubernetes, only || feature_gates.is_some()),
    };
    if let Some(gates) = feature_gates {
        for leg in &mut legs {
            gates.clone_into(&mut leg.feature_gates);
        }
    }
    legs
}

fn legs_of_suite(suite: Suite, kubernetes: Option<Version>) -> Vec<Leg> {
    let versions = kubernetes.map_or_else(|| vec![Version::NEWEST, Version::OLDEST], |version| vec![version]);
    let legs = versions.into_iter().map(|kubernetes| Leg {
        kubernetes,
        tier: Tier::Full,
        feature_gates: match suite {
            Suite::Demos if kubernetes == Version::NEWEST => DEMOS_ON.to_owned(),
            Suite::Demos => String::new(),
        },
        share: Share::WHOLE,
    });
    legs.collect()
}

fn legs_of_tier(tier: Tier, kubernetes: Option<Version>, only: bool) -> Vec<Leg> {
    let leg = |kubernetes, tier| Leg { kubernetes, tier, feature_gates: String::new(), share: Share::WHOLE };
    let shares = |kubernetes, tier| Share::all().map(move |share| Leg { share, ..leg(kubernetes, tier) });
    let gated = |gates: &str| Leg { feature_gates: gates.to_owned(), ..leg(Version::NEWEST, Tier::Smoke) };
    match (tier, kubernetes) {
        (_, version) if only => vec![leg(version.unwrap_or(Version::NEWEST), tier)],
        (Tier::Smoke, version) => vec![leg(version.unwrap_or(Version::NEWEST), tier)],
        (_, Some(version)) => shares(version, tier).collect(),
        (Tier::Gate, None) => {
            let smoke = [gated(ALL_ON), leg(Version::OLDEST, Tier::Smoke)];
            let mut shares: Vec<_> = shares(Version::NEWEST, tier).collect();
            // It takes what is left once the smoke tests are done, so all clusters end at about the same time.
            let last = shares.pop();
            shares.into_iter().chain(smoke).chain(last).collect()
        }
        (Tier::Full, None) => {
            // Long loops look for rare trouble of ours, which one version shows as well as four.
            let others = Version::TESTED.into_iter().filter(|version| *version != Version::NEWEST);
            let others = others.flat_map(|version| shares(version, Tier::Gate));
            let smoke = [gated(ALL_ON), gated(ALL_OFF)];
            shares(Version::NEWEST, tier).chain(smoke).chain(others).collect()
        }
    }
}

impl Leg {
    /// A name for a folder.
    pub(crate) fn name(&self) -> String {
        let share =
            if self.share == Share::WHOLE { String::new() } else { format!("-{}", self.share.number) };
        format!("{}{share}", self.whole())
    }

    /// A name that all clusters of the leg have in common.
    pub(crate) fn whole(&self) -> String {
        let gates = match self.feature_gates.as_str() {
            "" => "",
            ALL_ON => "-gates-on",
            ALL_OFF => "-gates-off",
            _ => "-gates",
        };
        format!("{}{gates}", self.kubernetes)
    }
}

impl Share {
    const WHOLE: Self = Self { number: 1, of: 1 };

    fn all() -> impl Iterator<Item = Self> {
        (1..=SIDE_BY_SIDE).map(|number| Self { number, of: SIDE_BY_SIDE })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes {}, tier {}", self.kubernetes, self.tier)?;
        if self.share != Share::WHOLE {
            write!(f, ", share {}", self.share)?;
        }
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

    /// Version, tier and gates of the legs; each version whole, in all its shares, or not at all.
    fn shown(legs: &[Leg]) -> Vec<(Version, Tier, &str)> {
        for leg in legs {
            let same = |other: &&Leg| Leg { share: leg.share, ..(*other).clone() } == *leg;
            let shares = legs.iter().filter(same).map(|other| other.share.number);
            assert_eq!(shares.collect::<Vec<_>>(), (1..=leg.share.of).collect::<Vec<_>>());
        }
        let first = legs.iter().filter(|leg| leg.share.number == 1);
        first.map(|leg| (leg.kubernetes, leg.tier, leg.feature_gates.as_str())).collect()
    }

    #[test]
    fn the_gate_runs_the_newest_version_whole_and_others_as_a_smoke_test() {
        let expected = [
            (Version::NEWEST, Tier::Gate, ""),
            (Version::NEWEST, Tier::Smoke, ALL_ON),
            (Version::OLDEST, Tier::Smoke, ""),
        ];
        let gate = legs(Tier::Gate, None, None, false, None);
        assert_eq!(shown(&gate), expected);
        let last = gate.last().unwrap();
        assert_eq!(
            (last.kubernetes, last.tier),
            (Version::NEWEST, Tier::Gate),
            "the last cluster has nothing to share"
        );
    }

    #[test]
    fn clusters_of_a_leg_have_a_name_in_common_and_one_of_their_own() {
        for legs in [Tier::Gate, Tier::Full].map(|tier| legs(tier, None, None, false, None)) {
            let mut names: Vec<_> = legs.iter().map(Leg::name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), legs.len());
            let mut wholes: Vec<_> = legs.iter().map(Leg::whole).collect();
            wholes.sort_unstable();
            wholes.dedup();
            assert_eq!(wholes.len(), shown(&legs).len());
        }
    }

    #[test]
    fn the_full_tier_runs_all_versions_and_all_gates_on_and_off() {
        let legs = legs(Tier::Full, None, None, false, None);
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
    fn a_suite_is_run_whole_on_the_newest_and_the_oldest_version() {
        let demos = |version| legs(Tier::Gate, Some(Suite::Demos), version, false, None);
        let newest = (Version::NEWEST, Tier::Full, DEMOS_ON);
        let oldest = (Version::OLDEST, Tier::Full, "");
        assert_eq!(shown(&demos(None)), [newest, oldest]);
        assert_eq!(shown(&demos(Some(Version::OLDEST))), [oldest]);
    }

    #[test]
    fn a_named_version_chosen_scenarios_or_gates_make_one_leg() {
        let oldest = legs(Tier::Full, None, Some(Version::OLDEST), false, None);
        assert_eq!(shown(&oldest), [(Version::OLDEST, Tier::Full, "")]);
        assert_eq!(oldest.len(), SIDE_BY_SIDE);
        let chosen = legs(Tier::Gate, None, None, true, None);
        assert_eq!(shown(&chosen), [(Version::NEWEST, Tier::Gate, "")]);
        assert_eq!(chosen.len(), 1, "not worth two clusters");
        let gated = legs(Tier::Gate, None, None, false, Some("A=true"));
        assert_eq!(shown(&gated), [(Version::NEWEST, Tier::Gate, "A=true")]);
    }
}
