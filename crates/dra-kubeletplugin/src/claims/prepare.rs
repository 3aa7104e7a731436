//! Prepares one claim.
//!
//! The claim is fetched, then locked; what is stored of it decides what to do ([`Claims::judge`]); its devices are locked
//! and a place in the driver is awaited; the claim is admitted and the driver called ([`Claims::prepare_fresh`]).

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    AnsweredDevice, Claims, Failure,
    board::{ClaimCallsRef, RunningMark},
    calls::{Place, driver_point},
    complete::Order,
    deadlines::Deadlines,
    index,
    journal::Journal,
    locks::Held,
    lookup::{Fetched, LookupError},
    record::{FORMAT, Record},
    states::{OnPrepare, Phase, on_prepare},
    store::Found,
    undo::{How, Then},
};
use crate::{
    claim::{AllocatedClaim, AllocatedDevice, ClaimRef, DeviceRef},
    held::UnprepareReason,
    lock::LockError,
    mutex::locked,
    names::ClaimUid,
    plugin::{DriverPlugin, PrepareContext},
    prepared::Prepared,
};

/// A claim that was fetched longer ago than this when something is decided by it is fetched again.
const FRESH: Duration = Duration::from_secs(2);

/// For how long that may keep a place in the driver.
const QUICK: Duration = Duration::from_secs(1);

/// The right to work on a claim, and for whom.
struct Turn {
    deadlines: Deadlines,
    /// Cancelled once an unprepare has come for the claim.
    superseded: CancellationToken,
    /// Cancelled once the caller waits no more.
    abandoned: CancellationToken,
    /// Names of CDI devices that the kubelet was given for an earlier allocation.
    former_cdi: Vec<String>,
    _held: Held,
}

/// What is to be done for a claim.
enum Judged {
    /// It is prepared, or there is nothing to prepare.
    Answer(Vec<AnsweredDevice>),
    Fresh,
    /// The driver prepares over what is prepared.
    Over(Box<Record>),
}

/// How a try to prepare ended.
enum Tried {
    Answer(Vec<AnsweredDevice>),
    /// The claim was given other devices meanwhile.
    Changed,
    /// A device is held by another claim.
    Held(Box<index::Held>),
}

impl Turn {
    /// Waits, unless the prepare is not wanted any more.
    async fn wait<T>(&self, wait: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.abandoned.cancelled() => Err(Failure::Abandoned),
            done = unless_superseded(&self.superseded, wait) => done,
        }
    }
}

/// Waits, unless an unprepare has come for the claim.
async fn unless_superseded<T>(
    superseded: &CancellationToken,
    wait: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = superseded.cancelled() => Err(Failure::Superseded),
        done = wait => done,
    }
}

impl<P: DriverPlugin> Claims<P> {
    /// Prepares a claim, or answers as before if it is prepared. Dropped before the driver is called, it does nothing;
    /// after that, the work goes on without its caller.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let deadlines = Deadlines::until(deadline, Instant::now());
        let calls = self.board.get(&claim.uid);
        let superseded = calls.superseded();
        let begin = async {
            self.recovered(deadlines.wait).await?;
            let fetched = self.fetch(&claim, deadlines.wait).await?;
            Ok((fetched, self.lock_claim(&claim.uid, deadlines.wait).await?))
        };
        let (fetched, held) = unless_superseded(&superseded, begin).await?;
        let abandoned = CancellationToken::new();
        let _waiting: DropGuard = abandoned.clone().drop_guard();
        let turn = Turn { deadlines, superseded, abandoned, former_cdi: Vec::new(), _held: held };
        let work = self.calls.work("prepare", Arc::clone(self).prepare_locked(turn, fetched));
        let answer = self.answered(&calls, deadlines, work).await;
        if answer.is_ok() {
            // Whatever was seen before, it is not gone now.
            locked(&self.gone).forget(&claim.uid);
        }
        answer
    }

    /// The outcome of work on a claim, or that the driver is still at it when the caller has to be answered.
    pub(super) async fn answered<T>(
        &self,
        calls: &ClaimCallsRef,
        deadlines: Deadlines,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match timeout_at(deadlines.answer, work).await {
            Ok(done) => done,
            Err(_) => Err(still_at_work(calls)),
        }
    }

    /// Waits for the claim's lock.
    pub(super) async fn lock_claim(&self, uid: &ClaimUid, deadline: Instant) -> Result<Held, Failure> {
        match self.locks.claim(uid, deadline).await {
            Err(LockError::Busy { .. }) => Err(still_at_work(&self.board.get(uid))),
            locked => Ok(locked?),
        }
    }

    async fn fetch(&self, claim: &ClaimRef, deadline: Instant) -> Result<Fetched, Failure> {
        match timeout_at(deadline, self.lookup.fetch(claim)).await {
            Ok(fetched) => Ok(fetched?),
            Err(_) => Err(LookupError::Unavailable { last: "no answer".to_owned() }.into()),
        }
    }

    /// Owns the claim's lock to its end.
    async fn prepare_locked(
        self: Arc<Self>,
        mut turn: Turn,
        fetched: Fetched,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let mut fetched = self.refreshed(&turn, fetched).await?;
        let mut collected = false;
        loop {
            let over = match self.judge(&mut turn, &fetched.claim).await? {
                Judged::Answer(answer) => return Ok(answer),
                Judged::Fresh => None,
                Judged::Over(record) => Some(*record),
            };
            match self.try_prepare(&turn, &mut fetched, over).await? {
                Tried::Answer(answer) => return Ok(answer),
                Tried::Changed => {}
                // A holder that only waits to be collected may be gone after this.
                Tried::Held(held) if !collected => {
                    collected = true;
                    turn.wait(async {
                        self.collect_holder(&held.holder, turn.deadlines.wait).await;
                        Ok(())
                    })
                    .await?;
                }
                Tried::Held(held) => return Err(self.held_by(held)),
            }
        }
    }

    /// The claim as it was no longer than a moment ago. An unprepare does not wait for that: it ends the wait for an API
    /// server that does not answer.
    async fn refreshed(&self, turn: &Turn, fetched: Fetched) -> Result<Fetched, Failure> {
        if fetched.at.elapsed() <= FRESH {
            return Ok(fetched);
        }
        let claim = fetched.claim.claim_ref().clone();
        turn.wait(self.fetch(&claim, turn.deadlines.wait.max(Instant::now() + FRESH))).await
    }

    /// Decides by what is stored of the claim, and undoes what is in its way.
    async fn judge(&self, turn: &mut Turn, claim: &AllocatedClaim) -> Result<Judged, Failure> {
        let found = self.find(claim.claim_ref(), Then::Prepare, turn.deadlines.wait).await?.found;
        let stored = match &found {
            Found::Nothing => None,
            Found::Stored { phase, record } => Some((*phase, record)),
            Found::Newer { format, .. } => return Err(Failure::Newer { format: *format, known: FORMAT }),
            Found::Damaged { path, .. } => {
                return Err(Failure::Damaged { record: path.display().to_string() });
            }
        };
        let decided = on_prepare(stored.map(|(phase, record)| (phase, record.compare(claim.allocation()))));
        let reason = match (decided, stored) {
            (OnPrepare::Fresh, _) | (_, None) => None,
            (OnPrepare::Replay, Some((_, record)))
                if turn.wait(self.is_current(turn, claim, record)).await? =>
            {
                return Ok(Judged::Answer(self.replay((**record).clone()).await?));
            }
            (OnPrepare::Replay | OnPrepare::Complete, Some((_, record))) => {
                self.validate(claim)?;
                return Ok(Judged::Over(record.clone()));
            }
            (OnPrepare::RollBack, _) => Some(UnprepareReason::Rollback),
            (OnPrepare::Reallocate, _) => Some(UnprepareReason::Reallocated),
            (OnPrepare::FinishUnprepare, _) => Some(UnprepareReason::Unprepare),
        };
        let devices = !claim.devices().is_empty();
        if let (Some(reason), Some((_, record))) = (reason, stored) {
            turn.former_cdi = record.told_cdi(&self.kind);
            let then = if devices { Then::Prepare } else { Then::Forget };
            let how = How { then, ..How::forget(reason, turn.deadlines.wait) };
            let (stored, claim) = (self.of_this_boot(found), claim.claim_ref());
            let wrapped = |error| Failure::Undo(Box::new(error));
            let wait = async { self.undo_locks(&stored, claim, how).await.map_err(wrapped) };
            let locks = turn.wait(wait).await?;
            self.undo_with(&stored, claim, how, locks).await.map_err(wrapped)?;
        }
        if !devices {
            return Ok(Judged::Answer(Vec::new()));
        }
        self.validate(claim)?;
        Ok(Judged::Fresh)
    }

    fn validate(&self, claim: &AllocatedClaim) -> Result<(), Failure> {
        let mut configs = claim.configs().iter().enumerate();
        configs.try_for_each(|(index, config)| {
            let valid = self.calls.plugin().validate(config);
            valid.map_err(|error| Failure::Config { index, error })
        })
    }

    /// Whether the driver says that what a prepared claim was given is still right.
    async fn is_current(
        &self,
        turn: &Turn,
        claim: &AllocatedClaim,
        record: &Record,
    ) -> Result<bool, Failure> {
        let claim = claim.clone();
        let state: Option<P::State> = record.decoded_state();
        let question = |plugin: Arc<P>| async move { plugin.is_current(&claim, state.as_ref()).await };
        self.calls.ask("is_current", turn.deadlines.wait, question).await
    }

    /// Answers as before, with the files as before.
    async fn replay(&self, mut record: Record) -> Result<Vec<AnsweredDevice>, Failure> {
        self.show_status(&record);
        let answer = std::mem::take(&mut record.answer);
        self.restore_files(record).await?;
        Ok(answer)
    }

    /// Waits for devices and a place, and prepares if the claim still has these devices then.
    async fn try_prepare(
        &self,
        turn: &Turn,
        fetched: &mut Fetched,
        over: Option<Record>,
    ) -> Result<Tried, Failure> {
        let judged = fetched.claim.clone();
        let refs = judged.devices().iter().map(AllocatedDevice::device_ref);
        let deadline = turn.deadlines.wait;
        let _devices = turn.wait(self.lock_devices(judged.uid(), refs, deadline)).await?;
        let mut place = self.place_for(turn, fetched).await?;
        if fetched.claim.allocation() != judged.allocation() {
            return Ok(Tried::Changed);
        }
        if let Some(before) = over {
            return self.prepare_over(turn, judged, before, &mut place).await.map(Tried::Answer);
        }
        let (mut place, admission) = turn.wait(self.admission_with(place, deadline)).await?;
        let record = match self.admit(turn, &judged).await {
            Ok(record) => record,
            Err(Failure::Held(held)) => return Ok(Tried::Held(held)),
            Err(error) => return Err(error),
        };
        drop(admission);
        if turn.superseded.is_cancelled() {
            // The driver has not been called, so there is nothing that it could undo.
            let names = Some(record.vacated(&self.kind)).filter(Record::is_vacated);
            self.forget(Arc::clone(&self.disk.store), judged.uid(), names).await?;
            return Err(Failure::Superseded);
        }
        self.prepare_fresh(turn, judged, record, &mut place).await.map(Tried::Answer)
    }

    /// Waits for a place, with the claim as it is when the place comes. An API server that takes its time keeps no place
    /// from others.
    async fn place_for(&self, turn: &Turn, fetched: &mut Fetched) -> Result<Place, Failure> {
        let (claim, deadline) = (fetched.claim.claim_ref().clone(), turn.deadlines.wait);
        let limit = || deadline.max(Instant::now() + FRESH);
        loop {
            let place = turn.wait(self.calls.place(deadline)).await?;
            if fetched.at.elapsed() <= FRESH {
                return Ok(place);
            }
            if let Ok(again) = timeout(QUICK, turn.wait(self.fetch(&claim, limit()))).await {
                *fetched = again?;
                return Ok(place);
            }
            drop(place);
            *fetched = turn.wait(self.fetch(&claim, limit())).await?;
        }
    }

    /// Takes the claim's devices, durably, or says which claim has them. The caller has the admission lock.
    async fn admit(&self, turn: &Turn, claim: &AllocatedClaim) -> Result<Record, Failure> {
        let _change = self.changes.read().await;
        let plugin = self.calls.plugin();
        let conflicts = |held: &DeviceRef, wanted: &DeviceRef| plugin.conflicts(held, wanted);
        self.memory().admit(claim.claim_ref(), claim.devices(), conflicts)?;
        let record = Record {
            former_cdi: turn.former_cdi.clone(),
            ..Record::started(claim.claim_ref().clone(), claim.allocation().clone())
        };
        match self.disk.write(record.clone()).await {
            Ok(()) => Ok(record),
            Err(error) => {
                self.remember_after_failure(Arc::clone(&self.disk.store), claim.uid(), None).await;
                Err(error)
            }
        }
    }

    /// Prepares an admitted claim. What fails is undone.
    async fn prepare_fresh(
        &self,
        turn: &Turn,
        claim: AllocatedClaim,
        record: Record,
        place: &mut Place,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let journal = Journal::new(self.disk.clone(), record);
        let (prepared, record) = self.call_prepare(turn, claim.clone(), &journal, place).await;
        let completed = match prepared {
            Ok(prepared) => self.complete(&claim, record, prepared, Order::FilesFirst).await,
            Err(error) => Err((error, record)),
        };
        match completed {
            Ok(record) => Ok(record.answer),
            Err((error, record)) => Err(self.roll_back(record, error, place).await),
        }
    }

    /// Lets the driver prepare over what is prepared: by another program, or by itself and no longer right. The claim has
    /// its devices, whatever others hold, and a container may be using them: so there is nothing to admit, and a failure
    /// changes nothing.
    async fn prepare_over(
        &self,
        turn: &Turn,
        claim: AllocatedClaim,
        before: Record,
        place: &mut Place,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        // What another program has prepared has no files of ours that a container could be using.
        let order = if before.adopted { Order::FilesFirst } else { Order::RecordFirst };
        let record = Record { claim: claim.claim_ref().clone(), ..before };
        let journal = Journal::new(self.disk.clone(), record);
        let (prepared, record) = self.call_prepare(turn, claim.clone(), &journal, place).await;
        let record = match self.complete(&claim, record, prepared?, order).await {
            Ok(record) => record,
            Err((error, _)) => {
                // The record may have been written.
                self.remember_after_failure(Arc::clone(&self.disk.store), claim.uid(), None).await;
                return Err(error);
            }
        };
        // From now on it is known what it holds, such as a share.
        let _change = self.changes.read().await;
        self.memory().insert(&record, Phase::Prepared);
        Ok(record.answer)
    }

    /// Calls the driver; gives its answer, and the record with what it has saved on the way.
    async fn call_prepare(
        &self,
        turn: &Turn,
        claim: AllocatedClaim,
        journal: &Journal,
        place: &mut Place,
    ) -> (Result<Prepared<P::State>, Failure>, Record) {
        let _running = RunningMark::new(self.board.get(claim.uid()), "prepare");
        let cx = PrepareContext {
            deadline: turn.deadlines.answer,
            cancelled: turn.superseded.clone(),
            saver: journal.saver(),
            state: std::marker::PhantomData,
        };
        let called = match driver_point("driver.before-prepare") {
            Ok(()) => {
                let call = |plugin: Arc<P>| async move { plugin.prepare(&claim, &cx).await };
                self.calls.call(place, "prepare", call).await
            }
            Err(error) => Err(error),
        };
        let record = journal.close().await;
        (driver_point("driver.after-prepare").and(called), record)
    }

    /// Undoes what a failed prepare has begun; gives the error for the kubelet.
    async fn roll_back(&self, record: Record, first: Failure, place: &mut Place) -> Failure {
        let claim = record.claim.clone();
        // If the last record is there, only not durably, it must not say prepared once the driver has undone it.
        let phase = match self.load(&claim.uid).await {
            Ok(Found::Stored { phase, .. }) => phase,
            _ => Phase::Started,
        };
        let stored = self.of_this_boot(Found::Stored { phase, record: Box::new(record) });
        let how = How { then: Then::Prepare, ..How::forget(UnprepareReason::Rollback, Instant::now()) };
        match self.undo_locked(&stored, &claim, how, Some(place)).await {
            Ok(()) => first,
            Err(rollback) => {
                tracing::error!(%claim, error = %rollback, "roll-back failed; the devices stay held");
                Failure::Rollback { first: Box::new(first), rollback: Box::new(rollback) }
            }
        }
    }
}

fn still_at_work(calls: &ClaimCallsRef) -> Failure {
    calls.running().map_or(Failure::Busy, |(call, since)| Failure::StillRunning { call, since })
}
