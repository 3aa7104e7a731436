//! What happens to a node, drawn at random. Pure.

use std::{fmt, time::Duration};

use super::Part;
use crate::dice::Dice;

/// The longest between the end of one process and the start of the next.
const GAP: Duration = Duration::from_secs(3);

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    KubeletRestarts,
    KubeletDies {
        away: Duration,
    },
    ApiServerIsAway {
        time: Duration,
        /// What happens to the driver in that time.
        meanwhile: Option<Change>,
    },
    Driver(Change),
}

/// One driver process goes, another one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// SIGTERM; after a while another pod's.
    Replaced { gap: Duration },
    /// SIGKILL; after a while another process of the same pod.
    Crashes { gap: Duration },
    /// The new instance starts before the old one ends.
    Updated,
    /// The same, and the old one is killed.
    UpdatedAndKilled,
    /// The new instance ends, and the old one stays.
    TakenBack,
}

impl Event {
    /// Draws one that may happen in this part; `longest` is for outages of the API server.
    pub(super) fn draw(part: Part, longest: Duration, dice: &mut Dice) -> Option<Self> {
        match part {
            Part::Calm => None,
            Part::DriverLives => Some(Self::beside_the_driver(dice, longest, None)),
            Part::Everything if dice.once_in(3) => {
                let meanwhile = dice.once_in(2).then(|| Change::draw(dice));
                Some(Self::beside_the_driver(dice, longest, meanwhile))
            }
            Part::Everything => Some(Self::Driver(Change::draw(dice))),
        }
    }

    fn beside_the_driver(dice: &mut Dice, longest: Duration, meanwhile: Option<Change>) -> Self {
        match dice.between(0, 3) {
            0 => Self::KubeletRestarts,
            1 => Self::KubeletDies { away: below(dice, Duration::from_secs(5)) },
            _ => Self::ApiServerIsAway { time: below(dice, longest), meanwhile },
        }
    }
}

impl Change {
    fn draw(dice: &mut Dice) -> Self {
        match dice.between(0, 5) {
            0 => Self::Replaced { gap: below(dice, GAP) },
            1 => Self::Crashes { gap: below(dice, GAP) },
            2 => Self::Updated,
            3 => Self::UpdatedAndKilled,
            _ => Self::TakenBack,
        }
    }
}

fn below(dice: &mut Dice, longest: Duration) -> Duration {
    let milliseconds = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(dice.between(0, milliseconds))
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeletRestarts => f.write_str("the kubelet restarts"),
            Self::KubeletDies { away } => write!(f, "the kubelet is killed, and away for {away:?}"),
            Self::ApiServerIsAway { time, meanwhile: None } => {
                write!(f, "the API server is away for {time:?}")
            }
            Self::ApiServerIsAway { time, meanwhile: Some(change) } => {
                write!(f, "the API server is away for {time:?}, meanwhile {change}")
            }
            Self::Driver(change) => change.fmt(f),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced { gap } => write!(f, "the driver ends, and another starts {gap:?} later"),
            Self::Crashes { gap } => write!(f, "the driver is killed, and starts again {gap:?} later"),
            Self::Updated => f.write_str("the driver is updated"),
            Self::UpdatedAndKilled => f.write_str("the driver is updated, and the old instance is killed"),
            Self::TakenBack => f.write_str("an update of the driver is taken back"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, mem::discriminant};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(20);

    fn drawn(part: Part) -> Vec<Event> {
        let mut dice = Dice::new(1);
        (0..1_000).filter_map(|_| Event::draw(part, LONGEST, &mut dice)).collect()
    }

    fn touches_the_driver(event: &Event) -> bool {
        matches!(event, Event::Driver(_) | Event::ApiServerIsAway { meanwhile: Some(_), .. })
    }

    #[test]
    fn the_driver_is_touched_only_in_the_last_part() {
        assert_eq!(drawn(Part::Calm), []);
        assert!(!drawn(Part::DriverLives).iter().any(touches_the_driver));
        assert!(drawn(Part::Everything).iter().any(touches_the_driver));
    }

    #[test]
    fn everything_that_can_happen_does() {
        let kinds = |part| drawn(part).iter().map(|event| format!("{:?}", discriminant(event))).collect();
        let (living, all): (BTreeSet<String>, BTreeSet<String>) =
            (kinds(Part::DriverLives), kinds(Part::Everything));
        assert_eq!((living.len(), all.len()), (3, 4));
        let changes: BTreeSet<_> = drawn(Part::Everything)
            .iter()
            .filter_map(|event| match event {
                Event::Driver(change) => Some(format!("{:?}", discriminant(change))),
                _ => None,
            })
            .collect();
        assert_eq!(changes.len(), 5);
    }

    #[test]
    fn the_api_server_is_away_for_the_longest_time_at_most() {
        let longest = drawn(Part::DriverLives).into_iter().filter_map(|event| match event {
            Event::ApiServerIsAway { time, .. } => Some(time),
            _ => None,
        });
        let longest = longest.max().unwrap();
        assert!((LONGEST * 3 / 4..LONGEST).contains(&longest), "{longest:?}");
    }
}
