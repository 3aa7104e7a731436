//! Collects claims that the kubelet will not unprepare: their objects are gone, and it has forgotten them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    Claims, Failure, NOBODY_WRITES_FOR, calls::BACKGROUND_PLACE, index::Held, locks::Held as ClaimLock,
    lookup::Gone, record::Record, recover::Recovery, states::Phase, store::Found, undo::How, undo::Then,
};
use crate::{
    claim::{AllocatedDevice, ClaimRef},
    held::UnprepareReason,
    mutex::locked,
    names::ClaimUid,
    plugin::DriverPlugin,
    registration::Registration,
};

/// How often to look.
const EVERY: Duration = Duration::from_secs(600);

/// How long a prepared claim has to be gone, with the kubelet there to unprepare it: the kubelet's own clean-up runs
/// every minute (1.37).
const GONE_FOR: Duration = Duration::from_secs(600);

/// How long work on a claim waits for its devices and a place, and how long a round waits for the work.
const WORK_TIMEOUT: Duration = Duration::from_secs(45);

/// For how long claims have been gone with the kubelet there. Pure: time is given.
#[derive(Debug, Default)]
pub(super) struct GoneClocks {
    /// Which registration the clocks belong to; none while the kubelet is away.
    registration: Option<u64>,
    since: HashMap<ClaimUid, Instant>,
}

impl GoneClocks {
    /// The kubelet is registered for this time, or away. Without it no claim could have been unprepared: the clocks begin
    /// again.
    pub(super) fn registered(&mut self, registration: Option<u64>) {
        if self.registration != registration {
            self.since.clear();
            self.registration = registration;
        }
    }

    /// A claim was seen gone; gives for how long it has been. None while the kubelet is away.
    fn seen_gone(&mut self, claim: &ClaimUid, now: Instant) -> Option<Duration> {
        self.registration?;
        Some(now - *self.since.entry(claim.clone()).or_insert(now))
    }

    /// For how long the claim has been gone, as far as it was seen.
    fn gone_for(&self, claim: &ClaimUid, now: Instant) -> Option<Duration> {
        self.since.get(claim).map(|since| now - *since)
    }

    pub(super) fn forget(&mut self, claim: &ClaimUid) {
        self.since.remove(claim);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }
}

impl<P: DriverPlugin> Claims<P> {
    /// Looks for orphans at start and every ten minutes, and for what writes have left that were interrupted: an instance
    /// that is never alone cannot remove all of it when it starts. Dropped, it begins nothing new.
    pub(crate) async fn collect_orphans(self: Arc<Self>, mut registration: watch::Receiver<Registration>) {
        let follow = async {
            loop {
                let epoch = match *registration.borrow_and_update() {
                    Registration::Registered { epoch } => Some(epoch),
                    _ => None,
                };
                locked(&self.gone).registered(epoch);
                if registration.changed().await.is_err() {
                    return;
                }
            }
        };
        let collect = async {
            let mut recovery = self.recovery.subscribe();
            if recovery.wait_for(|now| *now == Recovery::Done).await.is_err() {
                return;
            }
            loop {
                let next = Instant::now() + EVERY;
                self.collect_round().await;
                self.sweep_temps().await;
                tokio::time::sleep_until(next).await;
            }
        };
        tokio::select! {
            () = follow => {}
            () = collect => {}
        }
    }

    async fn sweep_temps(&self) {
        let swept = self.disk.run(|store, cdi| {
            let records = store.sweep_leftovers(NOBODY_WRITES_FOR);
            cdi.sweep_temps(NOBODY_WRITES_FOR)?;
            Ok(records?)
        });
        if let Err(error) = swept.await {
            tracing::warn!(%error, "what interrupted writes have left could not be removed");
        }
    }

    pub(super) async fn collect_round(self: &Arc<Self>) {
        let uids = match self.disk.run(|store, _| Ok(store.claims()?)).await {
            Ok(uids) => uids,
            Err(error) => {
                return self.told.failed("the records cannot be listed, so no claim is collected", &error);
            }
        };
        // Unprepared after all, by whichever instance.
        locked(&self.gone).since.retain(|uid, _| uids.contains(uid));
        for uid in uids {
            let what = format!("claim {uid}, whose object is gone, could not be collected");
            match self.collect(&uid, Instant::now() + WORK_TIMEOUT).await {
                Ok(()) => self.told.done(&what),
                Err(error) => self.told.failed(&what, &error),
            }
        }
    }

    /// Collects one claim if it is time.
    async fn collect(self: &Arc<Self>, uid: &ClaimUid, deadline: Instant) -> Result<(), Failure> {
        let found = self.load(uid).await?;
        let record = match &found {
            Found::Stored { record, .. } => record,
            Found::Nothing => return self.release_phantom(uid).await,
            Found::Newer { .. } | Found::Damaged { .. } => return Ok(()),
        };
        let Some(gone) = self.lookup.gone(&record.claim, &record.allocation.results).await else {
            locked(&self.gone).forget(uid);
            return Ok(());
        };
        // A call at work on it knows more.
        let Ok(held) = self.locks.claim(uid, Instant::now()).await else { return Ok(()) };
        let judged = record.allocation.results.clone();
        let work =
            self.calls.work("unprepare", Arc::clone(self).collect_locked(held, uid.clone(), gone, judged));
        // It goes on if it takes longer.
        timeout_at(deadline, work).await.unwrap_or(Err(Failure::NotUndoneWithin(WORK_TIMEOUT)))
    }

    async fn collect_locked(
        self: Arc<Self>,
        _held: ClaimLock,
        uid: ClaimUid,
        gone: Gone,
        judged: Vec<AllocatedDevice>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + WORK_TIMEOUT;
        let found = self.load(&uid).await?;
        let Found::Stored { phase, record } = &found else { return Ok(()) };
        if record.allocation.results != judged {
            // It was prepared with other devices meanwhile, and these it may have.
            return Ok(());
        }
        if *phase == Phase::Prepared && !self.may_collect_prepared(record, deadline).await {
            return Ok(());
        }
        let claim = record.claim.clone();
        tracing::info!(%claim, "collecting a claim whose object is gone");
        let place_until = Some(Instant::now() + BACKGROUND_PLACE);
        // The kubelet may go on asking for the names of a claim that is prepared here again.
        let then = if gone == Gone::Devices { Then::Prepare } else { Then::Forget };
        let how = How { then, place_until, ..How::forget(UnprepareReason::Orphan, deadline) };
        self.undo(&self.of_this_boot(found), &claim, how).await?;
        Ok(())
    }

    /// Containers may outlive the claim object: while the kubelet is stopped, or after a pod was deleted by force.
    async fn may_collect_prepared(&self, record: &Record, deadline: Instant) -> bool {
        let gone_for = locked(&self.gone).seen_gone(&record.claim.uid, Instant::now());
        if gone_for.is_none_or(|gone_for| gone_for < GONE_FOR) {
            return false;
        }
        let held = self.held_claim(record, UnprepareReason::Orphan);
        let asked = self.calls.ask("in_use", deadline, |plugin| async move { plugin.in_use(&held).await });
        match asked.await {
            Ok(in_use) => !in_use,
            Err(error) => {
                tracing::warn!(claim = %record.claim, %error, "cannot tell whether a claim is still in use");
                false
            }
        }
    }

    /// Memory may hold devices for a claim without a record: another instance has removed it as this one read it.
    async fn release_phantom(&self, uid: &ClaimUid) -> Result<(), Failure> {
        let Ok(_held) = self.locks.claim(uid, Instant::now()).await else { return Ok(()) };
        let _change = self.changes.read().await;
        let nothing = matches!(self.load(uid).await?, Found::Nothing);
        if nothing && self.disk.load_older(uid).await?.is_empty() {
            self.memory().release(uid);
        }
        Ok(())
    }

    /// Collects the holder of a device that another claim wants, if it died before it was prepared or while it was
    /// unprepared, and its object is gone. For a prepared one the clock begins.
    pub(super) async fn collect_holder(self: &Arc<Self>, holder: &ClaimRef, deadline: Instant) {
        // A second claim lock for a moment: it is only tried, never waited for.
        if let Err(error) = self.collect(&holder.uid, deadline).await {
            tracing::warn!(claim = %holder, %error, "the holder of a wanted device could not be collected");
        }
    }

    /// Says more about a holder whose object is gone.
    pub(super) fn held_by(&self, held: Box<Held>) -> Failure {
        match locked(&self.gone).gone_for(&held.holder.uid, Instant::now()) {
            Some(gone_for) => Failure::HeldByGone { held, gone_for, limit: GONE_FOR },
            None => Failure::Held(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clocks_of_gone_claims_run_only_while_the_kubelet_is_registered() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let secs = |seconds: u64| Some(Duration::from_secs(seconds));
        let claim: ClaimUid = "a".parse().unwrap();
        let mut clocks = GoneClocks::default();
        assert_eq!(clocks.seen_gone(&claim, at(0)), None, "the kubelet was never there");
        clocks.registered(Some(1));
        assert_eq!(clocks.seen_gone(&claim, at(10)), secs(0));
        assert_eq!(clocks.seen_gone(&claim, at(40)), secs(30));
        clocks.registered(None);
        assert_eq!(clocks.seen_gone(&claim, at(50)), None);
        clocks.registered(Some(2));
        assert_eq!(clocks.seen_gone(&claim, at(1000)), secs(0), "it was away in between");
        // Lost and found between two looks.
        clocks.registered(Some(3));
        assert_eq!(clocks.seen_gone(&claim, at(1300)), secs(0));
        clocks.forget(&claim);
        assert_eq!(clocks.gone_for(&claim, at(1301)), None);
    }
}
