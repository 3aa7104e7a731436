//! What the figures ought to be.

use std::fmt;

use crate::{
    bench::HELD,
    measure::{Measure, Phase, Shape},
    samples::Samples,
    variant::Variant,
};

/// One goal, with what was reached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    pub(crate) unit: Unit,
    /// What was measured, if it was.
    pub(crate) reached: Option<f64>,
}

/// Where it is met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// What a goal's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A multiple of what it is compared with.
    Times,
    Milliseconds,
    Count,
}

impl Goal {
    /// Whether it was reached, if it was measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.reached.map(|reached| match self.bound {
            Bound::AtMost(limit) => reached <= limit,
            Bound::AtLeast(limit) => reached >= limit,
        })
    }
}

impl Unit {
    /// A number with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Times => format!("{value:.2}×"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Count if value.fract() == 0.0 => format!("{value}"),
            Self::Count => format!("{value:.2}"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// All goals.
pub(crate) fn all(samples: &Samples) -> Vec<Goal> {
    let mut goals = speed(samples);
    goals.extend(again(samples));
    goals.extend(state(samples));
    goals.extend(size(samples));
    goals.extend(distance(samples));
    goals
}

fn goal(what: impl Into<String>, bound: Bound, unit: Unit, reached: Option<f64>) -> Goal {
    Goal { what: what.into(), bound, unit, reached }
}

/// Ours as a multiple of another's.
fn times(samples: &Samples, what: &str, measure: Measure, other: Variant, limit: f64) -> Goal {
    let reached = samples.ratio((Variant::Ours, measure), (other, measure));
    goal(format!("{what}, against {}", other.title()), Bound::AtMost(limit), Unit::Times, reached)
}

/// The time for the same claims, as a multiple of another's.
fn time(samples: &Samples, phase: Phase, shape: Shape, other: Variant, limit: f64) -> Goal {
    let rate = Measure::Rate(phase, shape);
    let what = format!("{phase} {shape}, time, against {}", other.title());
    let reached = samples.ratio((other, rate), (Variant::Ours, rate));
    goal(what, Bound::AtMost(limit), Unit::Times, reached)
}

fn ours(samples: &Samples, what: &str, measure: Measure, bound: Bound, unit: Unit) -> Goal {
    goal(what, bound, unit, samples.median(Variant::Ours, measure))
}

fn speed(samples: &Samples) -> Vec<Goal> {
    let single = |phase| Measure::P50(phase, Shape::SINGLE);
    let mut goals: Vec<_> = Shape::ALL
        .into_iter()
        .map(|shape| {
            let rate = Measure::Rate(Phase::Prepare, shape);
            let what = format!("prepare {shape}, claims a second, against {}", Variant::GoDefault.title());
            let reached = samples.ratio((Variant::Ours, rate), (Variant::GoDefault, rate));
            goal(what, Bound::AtLeast(50.0), Unit::Times, reached)
        })
        .collect();
    let durable = Variant::GoFairDurable;
    goals.push(times(samples, "prepare (1,1), p50", single(Phase::Prepare), durable, 0.8));
    goals.push(time(samples, Phase::Prepare, Shape::TEN, durable, 0.5));
    goals.push(time(samples, Phase::Prepare, Shape::HUNDRED, durable, 0.35));
    goals.push(times(samples, "unprepare (1,1), p50", single(Phase::Unprepare), durable, 0.8));
    goals.push(times(samples, "prepare (1,1), p50", single(Phase::Prepare), Variant::GoFair, 1.5));
    goals
}

fn again(samples: &Samples) -> Vec<Goal> {
    let at_most = |limit| Bound::AtMost(limit);
    let single = Measure::P50(Phase::Again, Shape::SINGLE);
    vec![
        times(samples, "prepare again (1,1), p50", single, Variant::GoFair, 1.0),
        ours(
            samples,
            "prepare again, requests for each claim",
            Measure::Requests(Phase::Again),
            at_most(1.0),
            Unit::Count,
        ),
        ours(
            samples,
            "prepare again, syncs for each claim",
            Measure::Syncs(Phase::Again),
            at_most(0.0),
            Unit::Count,
        ),
        ours(
            samples,
            "first batch of ten after two minutes of silence",
            Measure::FirstBatch,
            at_most(10.0),
            Unit::Milliseconds,
        ),
    ]
}

fn state(samples: &Samples) -> Vec<Goal> {
    let [few, many] = HELD;
    let held = |phase, count| (Variant::Ours, Measure::Held(phase, count));
    let mut goals: Vec<_> = [Phase::Prepare, Phase::Unprepare]
        .into_iter()
        .map(|phase| {
            let what = format!("{phase} (1,1), p50 with {many} held claims, against {few}");
            let reached = samples.ratio(held(phase, many), held(phase, few));
            goal(what, Bound::AtMost(1.2), Unit::Times, reached)
        })
        .collect();
    goals.push(ours(
        samples,
        "slices visible after the registration",
        Measure::VisibleAfterRegistration,
        Bound::AtMost(50.0),
        Unit::Milliseconds,
    ));
    goals.push(times(
        samples,
        "slices back after a restart of the kubelet",
        Measure::BackAfterRestart,
        Variant::GoDefault,
        0.15,
    ));
    goals
}

fn size(samples: &Samples) -> Vec<Goal> {
    let fair = Variant::GoFair;
    vec![
        times(samples, "memory at start", Measure::MemoryAtStart, fair, 0.28),
        times(samples, "memory after 100 claims", Measure::MemoryAfter, fair, 0.33),
        times(samples, "size of the program", Measure::Binary, fair, 0.15),
        ours(samples, "threads at start", Measure::ThreadsAtStart, Bound::AtMost(6.0), Unit::Count),
        ours(samples, "threads after all calls", Measure::ThreadsAfter, Bound::AtMost(6.0), Unit::Count),
    ]
}

fn distance(samples: &Samples) -> Vec<Goal> {
    let mut goals = Vec::new();
    for phase in [Phase::Prepare, Phase::Unprepare] {
        for shape in Shape::ALL {
            goals.push(time(samples, phase, shape, Variant::Floor, 1.5));
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(bound: Bound, reached: Option<f64>) -> Option<bool> {
        goal("it", bound, Unit::Times, reached).is_met()
    }

    #[test]
    fn a_goal_is_met_at_its_bound_and_not_beyond() {
        assert_eq!(reached(Bound::AtMost(0.5), Some(0.5)), Some(true));
        assert_eq!(reached(Bound::AtMost(0.5), Some(0.51)), Some(false));
        assert_eq!(reached(Bound::AtLeast(50.0), Some(50.0)), Some(true));
        assert_eq!(reached(Bound::AtLeast(50.0), Some(49.0)), Some(false));
        assert_eq!(reached(Bound::AtLeast(50.0), None), None);
    }

    #[test]
    fn time_is_less_where_the_rate_is_higher() {
        let mut samples = Samples::default();
        let rate = Measure::Rate(Phase::Prepare, Shape::TEN);
        samples.add(Variant::Ours, rate, 2000.0);
        samples.add(Variant::GoFairDurable, rate, 500.0);
        let goal = time(&samples, Phase::Prepare, Shape::TEN, Variant::GoFairDurable, 0.5);
        assert_eq!(goal.reached, Some(0.25));
        assert_eq!(goal.is_met(), Some(true));
    }

    #[test]
    fn without_figures_no_goal_counts_as_met() {
        let goals = all(&Samples::default());
        assert!(goals.len() > 20 && goals.iter().all(|goal| goal.is_met().is_none()));
    }

    #[test]
    fn numbers_are_shown_with_their_unit() {
        assert_eq!(Unit::Times.show(0.346), "0.35×");
        assert_eq!(Unit::Milliseconds.show(7.04), "7.0 ms");
        assert_eq!(Unit::Count.show(6.0), "6");
        assert_eq!(Unit::Count.show(1.5), "1.50");
    }
}
