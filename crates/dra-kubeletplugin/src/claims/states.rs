//! The states of a claim on this node, and what each call of the kubelet makes of them. Pure.
//!
//! ```text
//! absent ──▶ Started ──▶ Prepared ──▶ Unpreparing ──▶ absent
//!               └── the driver failed or the process died: roll back ──▶ absent
//! ```
//!
//! `Started` is durable before the driver is called, `Prepared` after the CDI file is durable, `Unpreparing` before
//! the driver or the CDI file is touched. A roll-back that fails stays `Started`: the devices stay held.

/// What a record says of its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The driver was asked to prepare; whether it has done so is not known.
    Started,
    /// The driver has prepared the devices and the CDI file is in place.
    Prepared,
    /// The claim is on its way out; whether the driver has been told is not known.
    Unpreparing,
}

/// How what is stored compares to what the claim has been given now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Same {
    /// Nothing that matters has changed.
    Allocation,
    /// The devices are the same; another program has prepared them, and what it answered is not known.
    DevicesOnly,
    /// Other devices, or another configuration.
    No,
}

/// What prepare has to do first about what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnPrepare {
    /// Nothing is stored: go on.
    Fresh,
    /// All is done: unless the driver says that it is not right any more, make sure that the CDI file is there and answer
    /// as before.
    Replay,
    /// Another program has prepared the same devices, and a container may use them: let the driver prepare over it.
    Complete,
    /// An earlier prepare died half-way: roll it back, then go on.
    RollBack,
    /// The claim was allocated anew: unprepare what it had, then go on.
    Reallocate,
    /// An unprepare has begun and cannot be taken back: finish it, then go on.
    FinishUnprepare,
}

/// Decides what prepare does about a stored claim.
pub(crate) fn on_prepare(stored: Option<(Phase, Same)>) -> OnPrepare {
    match stored {
        None => OnPrepare::Fresh,
        Some((Phase::Prepared, Same::Allocation)) => OnPrepare::Replay,
        Some((Phase::Prepared, Same::DevicesOnly)) => OnPrepare::Complete,
        Some((Phase::Prepared, Same::No)) => OnPrepare::Reallocate,
        Some((Phase::Started, _)) => OnPrepare::RollBack,
        Some((Phase::Unpreparing, _)) => OnPrepare::FinishUnprepare,
    }
}

/// Which call of the driver takes a claim out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// `unprepare`: prepare had completed.
    Unprepare,
    /// `rollback`: it had not.
    Rollback,
}

/// Decides how a stored claim is undone.
pub(crate) fn undo(phase: Phase) -> Undo {
    match phase {
        Phase::Prepared | Phase::Unpreparing => Undo::Unprepare,
        Phase::Started => Undo::Rollback,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prepared_claim_with_the_same_allocation_is_replayed() {
        let table = [
            (None, OnPrepare::Fresh),
            (Some((Phase::Prepared, Same::Allocation)), OnPrepare::Replay),
            (Some((Phase::Prepared, Same::DevicesOnly)), OnPrepare::Complete),
            (Some((Phase::Prepared, Same::No)), OnPrepare::Reallocate),
            (Some((Phase::Started, Same::Allocation)), OnPrepare::RollBack),
            (Some((Phase::Started, Same::No)), OnPrepare::RollBack),
            (Some((Phase::Unpreparing, Same::Allocation)), OnPrepare::FinishUnprepare),
            (Some((Phase::Unpreparing, Same::No)), OnPrepare::FinishUnprepare),
        ];
        for (stored, expected) in table {
            assert_eq!(on_prepare(stored), expected, "{stored:?}");
        }
    }

    #[test]
    fn what_never_completed_is_rolled_back() {
        let table = [
            (Phase::Prepared, Undo::Unprepare),
            (Phase::Unpreparing, Undo::Unprepare),
            (Phase::Started, Undo::Rollback),
        ];
        for (phase, expected) in table {
            assert_eq!(undo(phase), expected);
        }
    }
}
