//! Prepares one claim.

use std::{
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_resourceslice::DriverName;
use tokio::{sync::OwnedSemaphorePermit, task::JoinError, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    AnsweredDevice, Claims, Disk, Failure,
    board::RunningMark,
    cdi, file_id,
    locks::Held,
    metadata,
    record::{FORMAT, Record},
    states::{OnPrepare, Phase, on_prepare},
    store::Found,
    unprepare::Then,
};
use crate::{
    claim::{AllocatedClaim, AllocatedDevice, ClaimRef, DeviceRef},
    held::UnprepareReason,
    mutex::locked,
    plugin::{DriverPlugin, PluginError, PrepareContext, SaveState},
    prepared::{Access, Prepared, PreparedDevice},
};

/// A claim that was fetched longer ago than this before its turn came is fetched again.
const FRESH: Duration = Duration::from_secs(2);

impl<P: DriverPlugin> Claims<P> {
    /// Prepares a claim, or answers as before if it is prepared. Dropped before its turn has come, it does nothing;
    /// once begun, the work goes on without its caller.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        claim: ClaimRef,
        deadline: Instant,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let place = self.board.get(&claim.uid);
        let seen = place.unprepares();
        self.wait_recovered(deadline).await?;
        let mut fetched = self.lookup.fetch(&claim).await?;
        let held = self.locks.claim(&claim.uid, deadline).await?;
        let permit = self.driver_permit().await?;
        if fetched.at.elapsed() > FRESH {
            fetched = self.lookup.fetch(&claim).await?;
        }
        if place.unprepares() != seen {
            return Err(Failure::Superseded);
        }
        let turn = Turn { seen, deadline, former_cdi: Vec::new(), _held: held, _permit: permit };
        let work = Arc::clone(self).prepare_locked(turn, fetched.claim).in_current_span();
        tokio::spawn(work).await.map_err(|error| panicked("prepare", error))?
    }

    /// Has the claim's turn to its end.
    async fn prepare_locked(
        self: Arc<Self>,
        mut turn: Turn,
        claim: AllocatedClaim,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let (found, _) = self.find(claim.uid(), Then::Prepare, turn.deadline).await?;
        let stored = match found {
            Found::Nothing => None,
            Found::Stored { phase, record } => Some((phase, *record)),
            Found::Newer { format, .. } => return Err(Failure::Newer { format, known: FORMAT }),
            Found::Damaged { path, .. } => {
                return Err(Failure::Damaged { record: path.display().to_string() });
            }
        };
        let compared = stored.as_ref().map(|(phase, record)| (*phase, record.compare(claim.allocation())));
        if let Some((phase, record)) = stored {
            let reason = match on_prepare(compared) {
                OnPrepare::Replay if self.is_current(&claim, &record).await? => {
                    return self.replay(record).await;
                }
                OnPrepare::Replay | OnPrepare::Complete => {
                    self.validate(&claim)?;
                    return self.prepare_over(turn, claim, record).await;
                }
                OnPrepare::Fresh => None,
                OnPrepare::RollBack => Some(UnprepareReason::Rollback),
                OnPrepare::Reallocate => Some(UnprepareReason::Reallocated),
                OnPrepare::FinishUnprepare => Some(UnprepareReason::Unprepare),
            };
            if let Some(reason) = reason {
                turn.former_cdi = record.told_cdi(&self.kind);
                let then = if claim.devices().is_empty() { Then::Forget } else { Then::Prepare };
                let undone = self.undo(phase, &record, reason, then, turn.deadline).await;
                undone.map_err(|error| Failure::Undo(Box::new(error)))?;
            }
        }
        if claim.devices().is_empty() {
            return Ok(Vec::new());
        }
        self.validate(&claim)?;
        self.prepare_fresh(turn, claim).await
    }

    fn validate(&self, claim: &AllocatedClaim) -> Result<(), Failure> {
        let mut configs = claim.configs().iter().enumerate();
        configs.try_for_each(|(index, config)| {
            self.plugin.validate(config).map_err(|error| Failure::Config { index, error })
        })
    }

    /// Whether the driver says that what a prepared claim was given is still right.
    async fn is_current(&self, claim: &AllocatedClaim, record: &Record) -> Result<bool, Failure> {
        let (plugin, claim) = (Arc::clone(&self.plugin), claim.clone());
        let state: Option<P::State> = record.decoded_state();
        let asked = async move { plugin.is_current(&claim, state.as_ref()).await };
        let asked = tokio::spawn(asked.in_current_span()).await;
        asked.map_err(|error| panicked("is_current", error))?.map_err(Failure::Driver)
    }

    /// Answers as before, with the files as before.
    async fn replay(&self, mut record: Record) -> Result<Vec<AnsweredDevice>, Failure> {
        self.show_status(&record);
        let answer = std::mem::take(&mut record.answer);
        self.restore_files(record).await?;
        Ok(answer)
    }

    /// Puts a prepared claim's files back if they are not as recorded. They were durable before the record was, and if what
    /// put them back since was not, no power cut can show it: the boot after it is another, whose claims begin anew.
    pub(super) async fn restore_files(&self, record: Record) -> Result<(), Failure> {
        let Some(bytes) = record.cdi else { return Ok(()) };
        let (uid, files) = (record.claim.uid, self.disk.metadata.clone());
        let id = file_id(&uid)?;
        let restored = self.disk.run(move |_, cdi| {
            files.ensure(&uid, &record.metadata)?;
            cdi.restore(&id, bytes.as_bytes())?;
            Ok(())
        });
        restored.await
    }

    async fn prepare_fresh(&self, turn: Turn, claim: AllocatedClaim) -> Result<Vec<AnsweredDevice>, Failure> {
        let (_devices, record) = self.take_devices(&turn, &claim).await?;
        let journal = Arc::new(Journal { disk: self.disk.clone(), record: Mutex::new(record) });
        let prepared = self.call_prepare(&turn, claim.clone(), &journal).await;
        let completed = match prepared {
            Ok(prepared) => self.complete(&claim, &journal, prepared).await,
            Err(error) => Err(error),
        };
        match completed {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.roll_back(&journal.record(), error).await),
        }
    }

    /// Lets the driver prepare over what is prepared: by another program, or by itself and not right any more. The claim
    /// has its devices, whatever others hold, and a container may be using them: so there is nothing to admit, and a
    /// failure changes nothing.
    async fn prepare_over(
        &self,
        turn: Turn,
        claim: AllocatedClaim,
        before: Record,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        let refs = claim.devices().iter().map(AllocatedDevice::device_ref);
        let _devices = self.locks.devices(refs, turn.deadline).await?;
        let record = Record { claim: claim.claim_ref().clone(), ..before };
        let journal = Arc::new(Journal { disk: self.disk.clone(), record: Mutex::new(record) });
        let prepared = self.call_prepare(&turn, claim.clone(), &journal).await?;
        let answer = self.complete(&claim, &journal, prepared).await?;
        // From now on it is known what it holds: a share, say.
        let _change = self.changes.read().await;
        let record = Record { allocation: claim.allocation().clone(), ..journal.record() };
        self.memory().insert(&record, Phase::Prepared);
        Ok(answer)
    }

    /// Locks the claim's devices and takes them. If a claim holds one that is only waiting to be collected, that is done
    /// first, without the locks that it needs.
    async fn take_devices(
        &self,
        turn: &Turn,
        claim: &AllocatedClaim,
    ) -> Result<(Vec<Held>, Record), Failure> {
        let refs = || claim.devices().iter().map(AllocatedDevice::device_ref);
        let devices = self.locks.devices(refs(), turn.deadline).await?;
        let held = match self.admit(turn, claim).await {
            Ok(record) => return Ok((devices, record)),
            Err(Failure::Held(held)) => held,
            Err(error) => return Err(error),
        };
        drop(devices);
        // Whoever collects it, we or somebody who is at it already, it may be gone then.
        self.collect_holder(&held.holder).await;
        let devices = self.locks.devices(refs(), turn.deadline).await?;
        match self.admit(turn, claim).await {
            Ok(record) => Ok((devices, record)),
            Err(Failure::Held(held)) => Err(self.held_by(held)),
            Err(error) => Err(error),
        }
    }

    /// Takes the claim's devices, durably, or says who has them.
    async fn admit(&self, turn: &Turn, claim: &AllocatedClaim) -> Result<Record, Failure> {
        let _admission = self.up_to_date(turn.deadline).await?;
        let _change = self.changes.read().await;
        let conflicts = |held: &DeviceRef, wanted: &DeviceRef| self.plugin.conflicts(held, wanted);
        self.memory().admit(claim.claim_ref(), claim.devices(), conflicts)?;
        let record = Record {
            former_cdi: turn.former_cdi.clone(),
            ..Record::started(claim.claim_ref().clone(), claim.allocation().clone())
        };
        match self.disk.write(record.clone()).await {
            Ok(()) => Ok(record),
            Err(error) => {
                match self.load(claim.uid()).await {
                    Ok(Found::Nothing) => self.memory().release(claim.uid()),
                    Ok(Found::Stored { phase, record }) if record.is_vacated() => {
                        self.memory().insert(&record, phase);
                    }
                    // A record that is there, only not durably, goes on holding the devices.
                    _ => {}
                }
                Err(error)
            }
        }
    }

    async fn call_prepare(
        &self,
        turn: &Turn,
        claim: AllocatedClaim,
        journal: &Arc<Journal>,
    ) -> Result<Prepared<P::State>, Failure> {
        let cancelled = CancellationToken::new();
        let _running = RunningMark::new(self.board.get(claim.uid()), cancelled.clone(), turn.seen);
        let saver: Arc<dyn SaveState> = Arc::<Journal>::clone(journal);
        let cx =
            PrepareContext { deadline: turn.deadline, cancelled, saver, state: std::marker::PhantomData };
        let plugin = Arc::clone(&self.plugin);
        driver_point("driver.before-prepare")?;
        let call = async move { plugin.prepare(&claim, &cx).await };
        let called = tokio::spawn(call.in_current_span()).await;
        driver_point("driver.after-prepare")?;
        called.map_err(|error| panicked("prepare", error))?.map_err(Failure::Driver)
    }

    /// Metadata, then the CDI file that shows it to containers, then the record: whoever finds the record finds the files.
    async fn complete(
        &self,
        claim: &AllocatedClaim,
        journal: &Journal,
        prepared: Prepared<P::State>,
    ) -> Result<Vec<AnsweredDevice>, Failure> {
        // The roll-back of what fails from here on gets the final state.
        let state = serde_json::to_value(&prepared.state);
        journal.update(|record| record.state = state.as_ref().ok().cloned());
        state.map_err(|error| Failure::Internal(format!("the driver's state is no JSON: {error}")))?;
        let (kind, claim) = (self.kind.clone(), claim.clone());
        let status = status_entries(&self.driver, &prepared.devices)?;
        let metadata = metadata::files(&self.driver, &claim, &prepared.devices)?;
        let files = self.disk.metadata.clone();
        let host_path = |request: &str| files.path_of(claim.uid(), request);
        let mounts = metadata::mounts(&self.driver, &claim, &metadata, host_path)?;
        let record = Record { metadata, status, ..journal.record() };
        let shown = record.clone();
        let _change = self.changes.read().await;
        let answer = self.disk.run(move |store, cdi| {
            let devices = resolved(prepared.devices);
            let (former, foreign) = (&record.former_cdi, record.foreign_cdi.as_deref());
            let answer = cdi::answer(&kind, &claim, devices, &mounts, former, foreign)?;
            files.ensure(claim.uid(), &record.metadata)?;
            let id = file_id(claim.uid())?;
            if let Some(bytes) = &answer.cdi
                && !crate::fault::skips("cdi-write")
            {
                cdi.ensure(&id, bytes.as_bytes())?;
            }
            let devices = answer.devices.clone();
            store.write(&Record {
                completed: true,
                adopted: false,
                allocation: claim.allocation().clone(),
                answer: answer.devices,
                cdi: answer.cdi,
                ..record
            })?;
            Ok(devices)
        });
        let answer = answer.await?;
        self.memory().set_phase(&shown.claim.uid, Phase::Prepared);
        self.show_status(&shown);
        Ok(answer)
    }

    /// Has the claim's status say what the record does; nobody waits for it.
    pub(super) fn show_status(&self, record: &Record) {
        if let Some(status) = &record.status {
            self.status.set(&record.claim, status.clone());
        }
    }

    /// Undoes what a failed prepare has begun; gives the error for the kubelet.
    async fn roll_back(&self, record: &Record, first: Failure) -> Failure {
        // If the last record is there, only not durably, it must not say prepared once the driver has undone it.
        let phase = match self.load(&record.claim.uid).await {
            Ok(Found::Stored { phase, .. }) => phase,
            _ => Phase::Started,
        };
        match self.undo_locked(phase, record, UnprepareReason::Rollback, Then::Prepare).await {
            Ok(()) => first,
            Err(rollback) => {
                tracing::error!(claim = %record.claim, error = %rollback, "roll-back failed; the devices stay held");
                Failure::Rollback { first: Box::new(first), rollback: Box::new(rollback) }
            }
        }
    }

    async fn wait_recovered(&self, deadline: Instant) -> Result<(), Failure> {
        let mut recovered = self.recovered.subscribe();
        let waited = tokio::time::timeout_at(deadline, recovered.wait_for(|done| *done)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Failure::Stopping),
            Err(_) => Err(Failure::Recovering),
        }
    }
}

/// The right to work on a claim, and for whom.
struct Turn {
    /// Unprepares that had asked when the call came.
    seen: u64,
    deadline: Instant,
    /// Names of CDI devices that the kubelet was told for an earlier allocation.
    former_cdi: Vec<String>,
    _held: Held,
    _permit: OwnedSemaphorePermit,
}

/// The record of a running prepare.
struct Journal {
    disk: Disk,
    record: Mutex<Record>,
}

impl Journal {
    fn record(&self) -> Record {
        locked(&self.record).clone()
    }

    fn update(&self, change: impl FnOnce(&mut Record)) {
        change(&mut locked(&self.record));
    }
}

impl SaveState for Journal {
    fn save(
        &self,
        state: serde_json::Value,
    ) -> Pin<Box<dyn Future<Output = Result<(), PluginError>> + Send + '_>> {
        Box::pin(async move {
            let record = Record { state: Some(state), ..self.record() };
            self.disk.write(record.clone()).await.map_err(|error| PluginError::new(error.to_string()))?;
            self.update(|kept| *kept = record);
            Ok(())
        })
    }
}

impl Disk {
    pub(super) async fn write(&self, record: Record) -> Result<(), Failure> {
        self.run(move |store, _| Ok(store.write(&record)?)).await
    }
}

/// The entries of `status.devices`, if the driver has anything to say there.
fn status_entries(
    driver: &DriverName,
    devices: &[PreparedDevice],
) -> Result<Option<serde_json::Value>, Failure> {
    let entry = |device: &PreparedDevice| {
        let status = device.status.clone()?;
        Some(status.entry(driver.as_str(), &device.device, device.share_id.as_deref()))
    };
    let entries: Vec<_> = devices.iter().filter_map(entry).collect();
    if entries.is_empty() {
        return Ok(None);
    }
    let value = serde_json::to_value(entries);
    value.map(Some).map_err(|error| Failure::Internal(format!("the devices' status is no JSON: {error}")))
}

/// A point at a call of the driver, for the tests that kill the process there.
pub(super) fn driver_point(name: &'static str) -> Result<(), Failure> {
    crate::fault::point(name).map_err(|error| Failure::Internal(error.to_string()))
}

/// Runtimes do not follow a link in the host path of a device node. Where this process cannot see the node, the driver
/// knows better. Blocks.
fn resolved(mut devices: Vec<PreparedDevice>) -> Vec<PreparedDevice> {
    for device in &mut devices {
        if let Access::Edits(edits) = &mut device.access
            && let Err(error) = dra_cdi::resolve_host_paths(edits, Path::new("/"))
        {
            tracing::debug!(device = %device.device, %error, "taking the host path as it is");
        }
    }
    devices
}

/// A task of the driver ended without an answer.
pub(super) fn panicked(call: &'static str, error: JoinError) -> Failure {
    let Ok(payload) = error.try_into_panic() else { return Failure::Stopping };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Failure::Panic { call, message: text.unwrap_or_else(|| "no message".to_owned()) }
}
