//! What a scenario is, and which are chosen.

use std::{fmt, pin::Pin, time::Duration};

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    chart::{self, Chart, Release},
    context::Context,
};

/// When a scenario runs. Each tier holds the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Tier {
    /// The path of one pod, on versions that only need to be seen to work.
    Smoke,
    /// Before every merge.
    Gate,
    /// Before an issue counts as resolved.
    Full,
}

/// Scenarios that can be run by themselves: those whose names begin with the suite's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// What users are shown: each folder of demos, on the driver that helm has installed.
    Demos,
}

impl Suite {
    fn prefix(self) -> &'static str {
        match self {
            Self::Demos => "demos_",
        }
    }
}

/// A scenario under way.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One named scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) tier: Tier,
    pub(crate) deadline: Duration,
    /// What it wants installed, if anything.
    pub(crate) release: Option<Release>,
    /// The minor version of Kubernetes that it needs.
    pub(crate) since: u32,
    pub(crate) run: for<'a> fn(&'a Context) -> Running<'a>,
}

impl Scenario {
    /// A scenario of the gate that may take two minutes: `Scenario::new("it_works", |cx| Box::pin(it_works(cx)))`.
    pub(crate) fn new(name: &'static str, run: for<'a> fn(&'a Context) -> Running<'a>) -> Self {
        Self { name, tier: Tier::Gate, deadline: Duration::from_secs(120), release: None, since: 0, run }
    }

    /// Runs it in another tier.
    pub(crate) fn tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    /// On the mock driver's chart, installed with these values.
    pub(crate) fn on_chart(self, values: &'static [&'static str]) -> Self {
        self.on(&chart::MOCK, values)
    }

    /// On a chart, installed with these values (as in `--set`). Scenarios with the same values stand together in the list
    /// and share the release: they leave its pods, slices and device classes alone.
    pub(crate) fn on(self, chart: &'static Chart, values: &'static [&'static str]) -> Self {
        Self { release: Some(Release { chart, values }), ..self }
    }

    /// Only on Kubernetes 1.`minor` and later.
    pub(crate) fn since(self, minor: u32) -> Self {
        Self { since: minor, ..self }
    }

    /// Gives it another deadline.
    pub(crate) fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}, {} s)", self.name, self.tier, self.deadline.as_secs())
    }
}

/// Those of the tier and of the ones before it, in order, that are of the suite and have `only` in their name.
pub(crate) fn choose(
    all: Vec<Scenario>,
    tier: Tier,
    suite: Option<Suite>,
    only: Option<&str>,
) -> Vec<Scenario> {
    all.into_iter()
        .filter(|scenario| scenario.tier <= tier)
        .filter(|scenario| suite.is_none_or(|suite| scenario.name.starts_with(suite.prefix())))
        .filter(|scenario| only.is_none_or(|text| scenario.name.contains(text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tier: Tier, suite: Option<Suite>, only: Option<&str>) -> Vec<&'static str> {
        let scenario = |name, tier| Scenario::new(name, |_| Box::pin(async { Ok(()) })).tier(tier);
        let all = vec![
            scenario("a_smoke", Tier::Smoke),
            scenario("b_gate", Tier::Gate),
            scenario("b_full", Tier::Full),
            scenario("demos_full", Tier::Full),
        ];
        choose(all, tier, suite, only).iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn a_tier_holds_the_tiers_before_it() {
        assert_eq!(names(Tier::Smoke, None, None), ["a_smoke"]);
        assert_eq!(names(Tier::Gate, None, None), ["a_smoke", "b_gate"]);
        assert_eq!(names(Tier::Full, None, None), ["a_smoke", "b_gate", "b_full", "demos_full"]);
    }

    #[test]
    fn a_part_of_the_name_chooses_within_the_tier() {
        assert_eq!(names(Tier::Full, None, Some("b_")), ["b_gate", "b_full"]);
        assert_eq!(names(Tier::Gate, None, Some("b_")), ["b_gate"]);
        assert!(names(Tier::Full, None, Some("c")).is_empty());
    }

    #[test]
    fn a_suite_is_chosen_by_the_beginning_of_the_name() {
        assert_eq!(names(Tier::Full, Some(Suite::Demos), None), ["demos_full"]);
        assert!(names(Tier::Gate, Some(Suite::Demos), None).is_empty());
    }

    #[test]
    fn scenarios_that_share_a_release_stand_together() {
        let all = crate::scenarios::all();
        let mut releases: Vec<_> = all.iter().map(|scenario| scenario.release).collect();
        releases.dedup();
        let charts = releases.iter().flatten().count();
        let mut different: Vec<_> = releases.into_iter().flatten().collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(charts, different.len(), "a release is installed, taken away, and installed again");
    }

    #[test]
    fn scenario_names_are_unique() {
        let mut names: Vec<_> = crate::scenarios::all().iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
