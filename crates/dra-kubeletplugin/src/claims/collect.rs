//! Collects claims that nobody will ask to unprepare: their objects are gone, and the kubelet has forgotten them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    Claims, Failure, NOBODY_WRITES_FOR, index::Held, record::Record, states::Phase, store::Found,
    unprepare::Then,
};
use crate::{
    claim::ClaimRef, error::BackgroundError, held::UnprepareReason, mutex::locked, names::ClaimUid,
    plugin::DriverPlugin, registration::Registration,
};

/// How often to look.
const EVERY: Duration = Duration::from_secs(600);

/// How long a prepared claim has to be gone, with the kubelet there to unprepare it: the kubelet's own clean-up runs
/// every minute (1.37).
const GONE_FOR: Duration = Duration::from_secs(600);

/// For the driver's part in it.
const PATIENCE: Duration = Duration::from_secs(45);

impl<P: DriverPlugin> Claims<P> {
    /// Looks for orphans at start and every ten minutes, and for what writes have left that were interrupted: an instance
    /// that is never alone cannot remove all of it when it starts.
    pub(crate) async fn collect_orphans(self: Arc<Self>, mut registration: watch::Receiver<Registration>) {
        let mut recovered = self.recovered.subscribe();
        if recovered.wait_for(|done| *done).await.is_err() {
            return;
        }
        loop {
            let registered = registration.borrow_and_update().is_registered();
            self.collect_round(registered).await;
            self.sweep_temps().await;
            let next = Instant::now() + EVERY;
            while Instant::now() < next {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    changed = registration.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        // Without the kubelet nobody could have asked: the clocks begin anew.
                        if !registration.borrow_and_update().is_registered() {
                            locked(&self.gone).clear();
                        }
                    }
                }
            }
        }
    }

    async fn sweep_temps(&self) {
        let swept = self.disk.run(|store, cdi| {
            store.sweep_leftovers(NOBODY_WRITES_FOR)?;
            cdi.sweep_temps(NOBODY_WRITES_FOR)?;
            Ok(())
        });
        if let Err(error) = swept.await {
            tracing::warn!(%error, "what interrupted writes have left could not be removed");
        }
    }

    pub(super) async fn collect_round(&self, registered: bool) {
        let Ok(uids) = self.disk.run(|store, _| Ok(store.claims()?)).await else { return };
        // Unprepared after all, by whichever instance.
        locked(&self.gone).retain(|uid, _| uids.contains(uid));
        for uid in uids {
            if let Err(error) = self.collect(&uid, registered).await {
                let message = format!("claim {uid}, whose object is gone, could not be collected: {error}");
                (self.tell)(BackgroundError::Recovery { message });
            }
        }
    }

    /// Collects one claim if it is time.
    async fn collect(&self, uid: &ClaimUid, registered: bool) -> Result<(), Failure> {
        let Found::Stored { record, .. } = self.load(uid).await? else { return Ok(()) };
        if !self.lookup.is_gone(&record.claim).await {
            locked(&self.gone).remove(uid);
            return Ok(());
        }
        // Somebody at work on it knows more.
        let Ok(_held) = self.locks.claim(uid, Instant::now()).await else { return Ok(()) };
        let Found::Stored { phase, record } = self.load(uid).await? else { return Ok(()) };
        if phase == Phase::Prepared && !self.may_collect_prepared(&record, registered).await {
            return Ok(());
        }
        tracing::info!(claim = %record.claim, "collecting a claim whose object is gone");
        self.undo(phase, &record, UnprepareReason::Orphan, Then::Forget, Instant::now() + PATIENCE).await?;
        locked(&self.gone).remove(uid);
        Ok(())
    }

    /// Containers may outlive the claim object: while the kubelet is stopped, or after a pod was deleted by force.
    async fn may_collect_prepared(&self, record: &Record, registered: bool) -> bool {
        let since = *locked(&self.gone).entry(record.claim.uid.clone()).or_insert_with(Instant::now);
        if !registered || since.elapsed() < GONE_FOR {
            return false;
        }
        let plugin = Arc::clone(&self.plugin);
        let held = self.held_claim(record, UnprepareReason::Orphan);
        let asked = tokio::spawn(async move { plugin.in_use(&held).await });
        match asked.await {
            Ok(Ok(in_use)) => !in_use,
            Ok(Err(error)) => {
                tracing::warn!(claim = %record.claim, %error, "cannot tell whether a claim is still in use");
                false
            }
            Err(_) => false,
        }
    }

    /// Collects the holder of a device that another claim wants, if it died before it was prepared or while it was
    /// unprepared, and its object is gone. For a prepared one the clock begins.
    pub(super) async fn collect_holder(&self, holder: &ClaimRef) {
        // A second claim lock for a moment: it is only tried, never waited for.
        if let Err(error) = self.collect(&holder.uid, false).await {
            tracing::warn!(claim = %holder, %error, "the holder of a wanted device could not be collected");
        }
    }

    /// Says more about a holder whose object is gone.
    pub(super) fn held_by(&self, held: Box<Held>) -> Failure {
        match locked(&self.gone).get(&held.holder.uid) {
            Some(since) => Failure::HeldByGone { held, gone_for: since.elapsed(), limit: GONE_FOR },
            None => Failure::Held(held),
        }
    }
}
