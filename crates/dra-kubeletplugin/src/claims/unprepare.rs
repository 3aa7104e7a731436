//! Unprepares one claim on the kubelet's word.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Claims, Failure,
    board::RunningMark,
    calls::driver_point,
    deadlines::Deadlines,
    locks::Held,
    undo::{How, Then},
};
use crate::{claim::ClaimRef, held::UnprepareReason, plugin::DriverPlugin};

impl<P: DriverPlugin> Claims<P> {
    /// Unprepares a claim from its record. Needs no API server; a claim without a record is a success. Once begun, the
    /// work goes on without its caller.
    pub(crate) async fn unprepare(
        self: &Arc<Self>,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let deadlines = Deadlines::until(deadline, Instant::now());
        let calls = self.board.get(&claim.uid);
        calls.announce_unprepare();
        let held = self.lock_claim(&claim.uid, deadlines.wait).await?;
        let work = Arc::clone(self).unprepare_locked(held, claim.clone(), deadlines.wait);
        self.answered(&calls, deadlines, self.calls.work("unprepare", work)).await
    }

    /// Owns the claim's lock to its end.
    async fn unprepare_locked(
        self: Arc<Self>,
        _held: Held,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let current = self.find(&claim, Then::Forget, deadline).await?;
        if !current.found.is_nothing() {
            let stored = self.of_this_boot(current.found);
            return self.undo(&stored, &claim, How::forget(UnprepareReason::Unprepare, deadline)).await;
        }
        if current.undone {
            return Ok(());
        }
        self.unprepare_unknown(claim, deadline).await
    }

    async fn unprepare_unknown(&self, claim: ClaimRef, deadline: Instant) -> Result<(), Failure> {
        let uid = claim.uid.clone();
        let mut place = self.calls.place(deadline).await?;
        driver_point("driver.before-unprepare-unknown")?;
        let _running = RunningMark::new(self.board.get(&uid), "unprepare_unknown");
        let called = self.calls.call(&mut place, "unprepare_unknown", |plugin| async move {
            plugin.unprepare_unknown(&claim).await
        });
        called.await?;
        self.forget(Arc::clone(&self.disk.store), &uid, None).await
    }
}
