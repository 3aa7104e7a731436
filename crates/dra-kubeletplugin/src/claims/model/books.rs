//! What was asked and answered, and what therefore must be true. Pure.
//!
//! The books are balanced whenever nothing is going on; what follows from what happened since can then be compared
//! with what there is. Calls that overlap often leave open what comes of them; then the books demand nothing here, and
//! hardware and audit watch alone.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::{claim::Allocation, held::HeldClaim, held::UnprepareReason, names::ClaimUid};

/// Prepared claims are not collected before they have been gone for so long.
const GONE_FOR: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Books {
    /// Counts events, to tell what came first.
    tick: u64,
    balanced: u64,
    /// Whether prepared orphans may have been collected since.
    swept: bool,
    /// Whether a process has died since.
    died: bool,
    /// The last boot in which a read of a record failed.
    unread: Option<u64>,
    /// Since when the kubelet has each process registered without a gap, in the process's time.
    registered: HashMap<u64, Instant>,
    pages: BTreeMap<ClaimUid, Page>,
}

/// What is known of one claim.
#[derive(Default)]
struct Page {
    calls: Vec<Call>,
    base: Base,
    /// Last change of the claim object, or reboot.
    disturbed: u64,
    reallocated: bool,
    /// Since when each process may have known that the claim object is gone.
    gone: HashMap<u64, Instant>,
    /// The driver's last prepare, and in which boot; whether one ever succeeded.
    prepare: u64,
    prepare_boot: u64,
    completed: bool,
    last_undo: u64,
    /// When an unprepare last came or ended.
    last_unprepare: u64,
    /// Calls of the driver since the books were balanced, and whether an undo failed.
    driver_calls: u64,
    undo_failed: bool,
    /// The last boot in which the driver was told to undo it because of a reboot.
    tried_in_boot: u64,
}

/// What there was when the books were balanced.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Base {
    #[default]
    Absent,
    /// A prepare failed after the claim had been undone.
    Vacated,
    Prepared(Allocation),
    /// Half-way in or out, or of another boot.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Prepare,
    Unprepare,
}

/// How a call ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Failed,
    /// Nobody waits for the answer any more; the work may go on.
    Lost,
}

struct Call {
    kind: Kind,
    process: u64,
    issued: u64,
    ended: Option<(u64, End)>,
}

/// What must be true of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Demand {
    Nothing,
    Absent,
    Prepared(Allocation),
    /// And the driver has not been called.
    Untouched(Allocation),
}

impl Books {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn page(&mut self, claim: &ClaimUid) -> &mut Page {
        self.pages.entry(claim.clone()).or_default()
    }

    /// The kubelet calls. Gives the call's number.
    pub(super) fn issue(&mut self, claim: &ClaimUid, kind: Kind, process: u64) -> u64 {
        let issued = self.tick();
        let page = self.page(claim);
        page.calls.push(Call { kind, process, issued, ended: None });
        if kind == Kind::Unprepare {
            page.last_unprepare = issued;
        }
        issued
    }

    pub(super) fn end(&mut self, claim: &ClaimUid, number: u64, end: End) {
        let now = self.tick();
        let page = self.page(claim);
        let Some(call) = page.calls.iter_mut().find(|call| call.issued == number) else { return };
        call.ended = Some((now, end));
        if call.kind == Kind::Unprepare {
            page.last_unprepare = now;
        }
    }

    /// A process is gone, and with it all of its calls.
    pub(super) fn died(&mut self, process: u64) {
        self.died = true;
        let now = self.tick();
        let open = |call: &&mut Call| call.process == process && call.ended.is_none();
        for page in self.pages.values_mut() {
            for call in page.calls.iter_mut().filter(open) {
                call.ended = Some((now, End::Lost));
                if call.kind == Kind::Unprepare {
                    page.last_unprepare = now;
                }
            }
            page.gone.remove(&process);
        }
        self.registered.remove(&process);
    }

    /// A process has ended with nothing under way.
    pub(super) fn ended(&mut self, process: u64) {
        self.registered.remove(&process);
        for page in self.pages.values_mut() {
            page.gone.remove(&process);
        }
    }

    pub(super) fn swept(&mut self) {
        self.swept = true;
    }

    /// The kubelet has registered the process, or is away from it.
    pub(super) fn registered(&mut self, process: u64, since: Option<Instant>) {
        match since {
            Some(since) => self.registered.insert(process, since),
            None => self.registered.remove(&process),
        };
    }

    pub(super) fn reallocated(&mut self, claim: &ClaimUid) {
        let now = self.tick();
        let page = self.page(claim);
        page.disturbed = now;
        page.reallocated = true;
    }

    /// Whether the claim object was ever given other devices: what is recorded of it may be over.
    pub(super) fn was_reallocated(&self, claim: &ClaimUid) -> bool {
        self.pages.get(claim).is_some_and(|page| page.reallocated)
    }

    /// The claim object is gone or has other devices, or has been when the process starts; `now` is the process's time.
    pub(super) fn gone(&mut self, claim: &ClaimUid, process: u64, now: Instant) {
        let tick = self.tick();
        let page = self.page(claim);
        page.disturbed = tick;
        page.gone.entry(process).or_insert(now);
    }

    pub(super) fn reboot(&mut self) {
        let now = self.tick();
        for page in self.pages.values_mut() {
            page.disturbed = now;
        }
    }

    pub(super) fn prepare_called(&mut self, claim: &ClaimUid, boot: u64) {
        let now = self.tick();
        let page = self.page(claim);
        page.prepare = now;
        page.prepare_boot = boot;
        page.driver_calls += 1;
    }

    /// The driver answers a prepare with success.
    pub(super) fn prepare_completed(&mut self, claim: &ClaimUid) {
        self.page(claim).completed = true;
    }

    /// The driver is asked whether a claim is in use; gives what is wrong with that.
    pub(super) fn asked_in_use(
        &mut self,
        claim: &ClaimUid,
        process: u64,
        now: Instant,
        in_use: bool,
    ) -> Option<String> {
        let (tick, registered) = (self.tick(), self.registered.get(&process).copied());
        let page = self.pages.entry(claim.clone()).or_default();
        let since =
            page.gone.get(&process).zip(registered.as_ref()).map(|(gone, there)| now - *gone.max(there));
        if !in_use {
            page.last_undo = tick;
            self.swept = true;
        }
        let early = since.is_none_or(|since| since < GONE_FOR);
        early.then(|| format!("{claim} is about to be collected, gone with the kubelet there for {since:?}"))
    }

    /// The driver is told to undo; gives what is wrong with that.
    pub(super) fn undo_called(
        &mut self,
        call: &str,
        held: &HeldClaim<u64>,
        gone: bool,
        boot: u64,
    ) -> Option<String> {
        let now = self.tick();
        let page = self.page(&held.claim.uid);
        page.driver_calls += 1;
        let waiting = page.calls.iter().any(|call| call.kind == Kind::Unprepare && call.ended.is_none());
        let on_its_way = waiting || page.last_unprepare > page.prepare || page.last_undo > page.prepare;
        page.last_undo = now;
        if held.reason == UnprepareReason::Reboot {
            page.tried_in_boot = boot;
        }
        let whole = call == "unprepare";
        let allowed = match held.reason {
            UnprepareReason::Unprepare => on_its_way || page.reallocated,
            UnprepareReason::Rollback => !whole,
            UnprepareReason::Reallocated => whole && page.reallocated,
            UnprepareReason::Orphan => gone && (!whole || on_its_way || page.reallocated),
            UnprepareReason::Reboot => page.prepare_boot < boot,
            // Nobody does that here.
            UnprepareReason::Released => false,
        };
        if !allowed {
            return Some(format!("{call} of {} because of {:?}: no cause", held.claim, held.reason));
        }
        if whole && held.reason != UnprepareReason::Reboot && !page.completed {
            return Some(format!("{call} of {}, which was never prepared", held.claim));
        }
        None
    }

    /// The driver could not undo it.
    pub(super) fn undo_failed(&mut self, claim: &ClaimUid) {
        self.page(claim).undo_failed = true;
    }

    /// Whether the driver has been told in this boot that the claim ended with an earlier one, or there is a cause for that
    /// being late.
    pub(super) fn was_tried(&self, claim: &ClaimUid, boot: u64) -> bool {
        self.unread == Some(boot) || self.pages.get(claim).is_some_and(|page| page.tried_in_boot == boot)
    }

    pub(super) fn failed_to_read(&mut self, boot: u64) {
        self.unread = Some(boot);
    }

    /// Another program has prepared the claim.
    pub(super) fn prepared_before(&mut self, claim: &ClaimUid) {
        let page = self.page(claim);
        page.completed = true;
        page.base = Base::Between;
    }

    /// Whether there is a cause for a claim to be half-way in or out while nothing is going on.
    pub(super) fn may_be_between(&self, claim: &ClaimUid) -> bool {
        let cause = |page: &Page| page.undo_failed || page.base == Base::Between;
        self.died || self.pages.get(claim).is_some_and(cause)
    }

    /// What must be true of the claim now, if the API server has this allocation of it.
    pub(super) fn demand(&self, claim: &ClaimUid, allocation: Option<&Allocation>) -> Demand {
        let Some(page) = self.pages.get(claim) else { return Demand::Absent };
        let undisturbed = page.disturbed <= self.balanced;
        let calls = |kind| page.calls.iter().filter(move |call| call.kind == kind);
        let (prepares, unprepares) = (|| calls(Kind::Prepare), || calls(Kind::Unprepare));
        if let Some(done) = unprepares().rfind(|call| call.is_done()) {
            // One instance lets no prepare outlive an unprepare that came later; two know nothing of each other's queues.
            let outlived = |prepare: &Call| {
                prepare.ended_before(done) || prepare.process == done.process && prepare.issued < done.issued
            };
            if prepares().all(outlived) {
                return Demand::Absent;
            }
        }
        match &page.base {
            Base::Absent if prepares().count() == 0 => return Demand::Absent,
            Base::Prepared(base) if undisturbed && unprepares().count() == 0 => {
                let kept = prepares().count() == 0 && !self.swept;
                if allocation == Some(base) || kept {
                    return Demand::Untouched(base.clone());
                }
            }
            _ => {}
        }
        let (Some(done), Some(allocation)) = (prepares().rfind(|call| call.is_done()), allocation) else {
            return Demand::Nothing;
        };
        let harmless = |call: &Call| {
            call.ended_before(done) || call.kind == Kind::Prepare && call.issued > page.disturbed
        };
        if page.disturbed < done.issued && page.calls.iter().all(harmless) {
            let empty = allocation.results.is_empty();
            return if empty { Demand::Absent } else { Demand::Prepared(allocation.clone()) };
        }
        Demand::Nothing
    }

    /// Whether a prepare of the claim ever succeeded.
    pub(super) fn was_prepared(&self, claim: &ClaimUid) -> bool {
        self.pages.get(claim).is_some_and(|page| page.completed)
    }

    /// Calls of the driver since the books were balanced.
    pub(super) fn driver_calls(&self, claim: &ClaimUid) -> u64 {
        self.pages.get(claim).map_or(0, |page| page.driver_calls)
    }

    /// Nothing is going on: begins a new balance with what there is.
    pub(super) fn balance(&mut self, bases: impl IntoIterator<Item = (ClaimUid, Base)>) {
        self.balanced = self.tick();
        self.swept = false;
        self.died = false;
        for (claim, base) in bases {
            let page = self.page(&claim);
            page.calls.clear();
            page.driver_calls = 0;
            page.undo_failed = false;
            page.base = base;
        }
    }
}

impl Call {
    fn is_done(&self) -> bool {
        matches!(self.ended, Some((_, End::Done)))
    }

    fn ended_before(&self, other: &Self) -> bool {
        self.ended.is_some_and(|(ended, _)| ended < other.issued)
    }
}
