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
    /// Everything, loops long, on all versions.
    Full,
}

/// One version with its scenarios.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) kubernetes: Version,
    pub(crate) tier: Tier,
}

/// The legs of a run, in order. A run of chosen scenarios (`only`) is for one version: the newest if none is named.
pub(crate) fn legs(tier: Tier, kubernetes: Option<Version>, only: bool) -> Vec<Leg> {
    let leg = |kubernetes, tier| Leg { kubernetes, tier };
    match (tier, kubernetes) {
        (_, Some(version)) => vec![leg(version, tier)],
        (_, None) if only => vec![leg(Version::NEWEST, tier)],
        (Tier::Smoke, None) => vec![leg(Version::NEWEST, tier)],
        (Tier::Gate, None) => vec![leg(Version::NEWEST, tier), leg(Version::OLDEST, Tier::Smoke)],
        (Tier::Full, None) => Version::TESTED.map(|version| leg(version, tier)).into(),
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

    #[test]
    fn the_gate_runs_the_newest_version_whole_and_the_oldest_as_a_smoke_test() {
        let legs = legs(Tier::Gate, None, false);
        let expected = [(Version::NEWEST, Tier::Gate), (Version::OLDEST, Tier::Smoke)];
        assert_eq!(legs, expected.map(|(kubernetes, tier)| Leg { kubernetes, tier }));
    }

    #[test]
    fn the_full_tier_runs_all_versions() {
        let legs = legs(Tier::Full, None, false);
        assert_eq!(legs, Version::TESTED.map(|kubernetes| Leg { kubernetes, tier: Tier::Full }));
    }

    #[test]
    fn a_named_version_or_chosen_scenarios_make_one_leg() {
        assert_eq!(
            legs(Tier::Full, Some(Version::OLDEST), false),
            [Leg { kubernetes: Version::OLDEST, tier: Tier::Full }]
        );
        assert_eq!(legs(Tier::Gate, None, true), [Leg { kubernetes: Version::NEWEST, tier: Tier::Gate }]);
    }
}
