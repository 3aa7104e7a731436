//! What is measured.

use std::fmt;

/// What a driver is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Of claims that it has not seen.
    Prepare,
    /// Of claims that are prepared, as after a restart of the kubelet.
    Again,
    Unprepare,
}

/// How it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// Claims in one call.
    pub(crate) per_call: usize,
    /// Calls at once.
    pub(crate) at_once: usize,
}

/// A figure of a driver. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// Time of a call, half of them and 99 of a hundred.
    P50(Phase, Shape),
    P99(Phase, Shape),
    /// Claims a second.
    Rate(Phase, Shape),
    /// Time of half of the calls with one claim while so many claims are prepared.
    Held(Phase, usize),
    /// From the start of the process until the kubelet has registered it.
    Registered,
    /// From the start of the process until its slices are there.
    Visible,
    /// From the one to the other; the slices may be first.
    VisibleAfterRegistration,
    /// From the kubelet's deletion of the slices, at its start, until they are back.
    BackAfterRestart,
    /// Time of a call with ten claims after two minutes without one.
    FirstBatch,
    /// Resident memory once the slices are there, and after the first hundred claims.
    MemoryAtStart,
    MemoryAfter,
    ThreadsAtStart,
    /// After all calls.
    ThreadsAfter,
    /// Size of the program.
    Binary,
    /// Requests to the API server, and syncs of files and folders, for each claim.
    Requests(Phase),
    Syncs(Phase),
}

impl Phase {
    pub(crate) const ALL: [Self; 3] = [Self::Prepare, Self::Again, Self::Unprepare];

    /// Its name in the load generator.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Again => "again",
            Self::Unprepare => "unprepare",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::Again => "prepare again",
            Self::Unprepare => "unprepare",
        })
    }
}

impl Shape {
    pub(crate) const SINGLE: Self = Self { per_call: 1, at_once: 1 };
    pub(crate) const TEN: Self = Self { per_call: 10, at_once: 1 };
    pub(crate) const HUNDRED: Self = Self { per_call: 100, at_once: 1 };
    pub(crate) const SIXTEEN_CALLS: Self = Self { per_call: 1, at_once: 16 };
    pub(crate) const ALL: [Self; 4] = [Self::SINGLE, Self::TEN, Self::HUNDRED, Self::SIXTEEN_CALLS];
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.per_call, self.at_once)
    }
}
