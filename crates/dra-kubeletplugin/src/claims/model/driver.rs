//! The driver of the model: moody, slow, forgetful, and watched.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{hardware::exclude_each_other, world::World};
use crate::{
    Adopt, AdoptedClaim, AllocatedClaim, ClaimRef, ContainerEdits, DeviceMetadata, DriverPlugin, HeldClaim,
    PluginError, PrepareContext, Prepared, claim::DeviceRef, names::ClaimUid,
};

pub(super) struct Driver {
    pub(super) world: Arc<World>,
    /// The instance that it belongs to.
    pub(super) process: u64,
    /// When that began to undo what an earlier boot left.
    pub(super) recovering_since: Arc<OnceLock<Instant>>,
}

/// What a call of the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Succeeds,
    Fails,
    Panics,
    /// Answers for fewer devices than there are.
    Forgets,
}

impl DriverPlugin for Driver {
    type State = u64;

    async fn prepare(
        &self,
        claim: &AllocatedClaim,
        cx: &PrepareContext<u64>,
    ) -> Result<Prepared<u64>, PluginError> {
        let _work = self.start(claim.uid(), format!("prepare of {}", claim.claim_ref()), |world| {
            world.check_prepare(claim, self.recovering_for());
            let mut state = world.state();
            let boot = state.boot;
            state.books.prepare_called(claim.uid(), boot);
            let over = state.checkpoint.has(claim.uid());
            state.hardware.prepare(claim, over)
        });
        let obeys = self.world.dice.one_in(2);
        for _ in 0..self.world.dice.below(3) {
            let cancelled = tokio::time::timeout(self.pause(), cx.cancelled()).await.is_ok();
            if cancelled && obeys {
                return Err(PluginError::new("not wanted any more"));
            }
            if self.world.dice.one_in(2) {
                let state = self.world.dice.below(1000);
                self.world.state().hardware.may_store(claim.uid(), state);
                // Some drivers bound their steps, and drop what takes longer.
                let limit =
                    if self.world.dice.one_in(3) { Duration::ZERO } else { Duration::from_secs(3600) };
                match tokio::time::timeout(limit, cx.save(&state)).await {
                    Ok(saved) => {
                        saved?;
                        self.world.state().hardware.has_stored(claim.uid(), state);
                    }
                    Err(_) if self.world.dice.one_in(2) => {
                        return Err(PluginError::new("saving takes too long"));
                    }
                    Err(_) => {}
                }
            }
        }
        let mood = self.mood();
        self.end(mood)?;
        let state = self.world.dice.below(1000);
        {
            let mut world = self.world.state();
            world.hardware.may_store(claim.uid(), state);
            world.books.prepare_completed(claim.uid());
        }
        let answered = claim.devices().iter().skip(usize::from(mood == Mood::Forgets));
        Ok(answered.fold(Prepared::new(state), |prepared, device| {
            // One device needs nothing in the container, so some claims have no CDI file.
            let edits = ContainerEdits::new();
            let name = device.device().as_str();
            let prepared =
                prepared.device(device, if name == "gpu-2" { edits } else { edits.env("GPU", name) });
            // One has metadata; in some claims it stands beside others.
            if name == "gpu-1" { prepared.metadata(device, DeviceMetadata::new()) } else { prepared }
        }))
    }

    async fn unprepare(&self, held: &HeldClaim<u64>) -> Result<(), PluginError> {
        self.undo("unprepare", held).await
    }

    async fn rollback(&self, held: &HeldClaim<u64>) -> Result<(), PluginError> {
        self.undo("rollback", held).await
    }

    async fn unprepare_unknown(&self, claim: &ClaimRef) -> Result<(), PluginError> {
        let _work = self.start(&claim.uid, format!("unprepare of {claim}, which is unknown"), |world| {
            world.check_unknown(claim);
            let used = world.state().hardware.uses(&claim.uid);
            used.then(|| format!("{claim} is called unknown, and it uses devices")).into_iter().collect()
        });
        self.end(self.mood())
    }

    async fn in_use(&self, held: &HeldClaim<u64>) -> Result<bool, PluginError> {
        let now = Instant::now();
        self.end(self.mood())?;
        let in_use = !self.world.state().calm && self.world.dice.one_in(3);
        self.world.note(format!("process {}: {} in use: {in_use}", self.process, held.claim));
        let problem = self.world.state().books.asked_in_use(&held.claim.uid, self.process, now, in_use);
        if let Some(problem) = problem {
            self.world.problem(problem);
        }
        Ok(in_use)
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<u64>>, PluginError> {
        tokio::time::sleep(self.pause()).await;
        self.end(self.mood())?;
        Ok(self.world.state().checkpoint.adopt(which))
    }

    fn conflicts(&self, held: &DeviceRef, wanted: &DeviceRef) -> bool {
        exclude_each_other(held, wanted)
    }
}

impl Driver {
    async fn undo(&self, call: &'static str, held: &HeldClaim<u64>) -> Result<(), PluginError> {
        let title = format!("{call} of {} because of {:?}", held.claim, held.reason);
        let _work = self.start(&held.claim.uid, title, |world| {
            world.check_undo(call, held);
            let recorded = world.recorded();
            let mut state = world.state();
            let unadopted = state.checkpoint.all_but(&recorded);
            let gone = !state.api.has_any_of(&held.claim, &held.devices);
            let boot = state.boot;
            let unlicensed = state.books.undo_called(call, held, gone, boot);
            unlicensed.into_iter().chain(state.hardware.undo(held, |uid| !unadopted.contains(uid))).collect()
        });
        for _ in 0..self.world.dice.below(3) {
            tokio::time::sleep(self.pause()).await;
        }
        let mood = self.mood();
        // A failure may come before or after the work is done.
        if matches!(mood, Mood::Succeeds | Mood::Forgets) || self.world.dice.one_in(3) {
            let problems = {
                let mut state = self.world.state();
                state.checkpoint.remove(&held.claim.uid);
                state.hardware.undone(held)
            };
            for problem in problems {
                self.world.problem(problem);
            }
        }
        if matches!(mood, Mood::Fails | Mood::Panics) {
            self.world.state().books.undo_failed(&held.claim.uid);
        }
        self.end(mood)
    }

    /// Notes a call, complains of it, and marks its devices as worked on until the result is dropped.
    fn start(&self, claim: &ClaimUid, title: String, look: impl FnOnce(&World) -> Vec<String>) -> Work {
        self.world.note(format!("process {}: {title} begins", self.process));
        for problem in look(&self.world) {
            self.world.problem(problem);
        }
        Work { world: Arc::clone(&self.world), claim: claim.clone(), title, process: self.process }
    }

    fn recovering_for(&self) -> Duration {
        self.recovering_since.get().map(Instant::elapsed).unwrap_or_default()
    }

    fn mood(&self) -> Mood {
        if self.world.state().calm {
            return Mood::Succeeds;
        }
        match self.world.dice.below(24) {
            0 | 1 => Mood::Fails,
            2 => Mood::Panics,
            3 => Mood::Forgets,
            _ => Mood::Succeeds,
        }
    }

    #[expect(clippy::unused_self, reason = "reads better at the calls")]
    fn end(&self, mood: Mood) -> Result<(), PluginError> {
        match mood {
            Mood::Succeeds | Mood::Forgets => Ok(()),
            Mood::Fails => Err(PluginError::new("as the dice fell")),
            // Without the panic hook, which would print thousands of them.
            Mood::Panics => std::panic::resume_unwind(Box::new("as the dice fell")),
        }
    }

    fn pause(&self) -> Duration {
        let dice = &self.world.dice;
        Duration::from_millis(match dice.below(100) {
            0 if !self.world.state().calm => 10_000 + dice.below(50_000),
            0..8 => 100 + dice.below(2000),
            8..40 => 1 + dice.below(20),
            _ => 0,
        })
    }
}

/// A call of the driver; it ends when this is dropped, be it by a crash.
struct Work {
    world: Arc<World>,
    claim: ClaimUid,
    title: String,
    process: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.world.state().hardware.end_work(&self.claim);
        self.world.note(format!("process {}: {} ends", self.process, self.title));
    }
}
