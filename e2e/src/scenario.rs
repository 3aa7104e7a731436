//! What a scenario is, and which are chosen.

use std::{fmt, pin::Pin, time::Duration};

use anyhow::Result;
use clap::ValueEnum;

use crate::context::Context;

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

type Running<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One named scenario.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) tier: Tier,
    pub(crate) deadline: Duration,
    pub(crate) run: for<'a> fn(&'a Context) -> Running<'a>,
}

impl Scenario {
    /// A scenario of the gate that may take two minutes: `Scenario::new("it_works", |cx| Box::pin(it_works(cx)))`.
    pub(crate) fn new(name: &'static str, run: for<'a> fn(&'a Context) -> Running<'a>) -> Self {
        Self { name, tier: Tier::Gate, deadline: Duration::from_secs(120), run }
    }

    /// Runs it in another tier.
    pub(crate) fn tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
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

/// Those of the tier and of the ones before it, in order, that have `only` in their name.
pub(crate) fn choose(all: Vec<Scenario>, tier: Tier, only: Option<&str>) -> Vec<Scenario> {
    all.into_iter()
        .filter(|scenario| scenario.tier <= tier)
        .filter(|scenario| only.is_none_or(|text| scenario.name.contains(text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tier: Tier, only: Option<&str>) -> Vec<&'static str> {
        let scenario = |name, tier| Scenario::new(name, |_| Box::pin(async { Ok(()) })).tier(tier);
        let all = vec![
            scenario("a_smoke", Tier::Smoke),
            scenario("b_gate", Tier::Gate),
            scenario("b_full", Tier::Full),
        ];
        choose(all, tier, only).iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn a_tier_holds_the_tiers_before_it() {
        assert_eq!(names(Tier::Smoke, None), ["a_smoke"]);
        assert_eq!(names(Tier::Gate, None), ["a_smoke", "b_gate"]);
        assert_eq!(names(Tier::Full, None), ["a_smoke", "b_gate", "b_full"]);
    }

    #[test]
    fn a_part_of_the_name_chooses_within_the_tier() {
        assert_eq!(names(Tier::Full, Some("b_")), ["b_gate", "b_full"]);
        assert_eq!(names(Tier::Gate, Some("b_")), ["b_gate"]);
        assert!(names(Tier::Full, Some("c")).is_empty());
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
