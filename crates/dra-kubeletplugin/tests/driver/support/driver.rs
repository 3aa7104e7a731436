//! The driver: it notes its calls and does what a test tells it to.

use std::sync::{Arc, Mutex, MutexGuard};

use dra_kubeletplugin::{
    Adopt, AdoptedClaim, AllocatedClaim, BackgroundError, ClaimRef, ContainerEdits, DriverPlugin, HeldClaim,
    PluginError, PrepareContext, Prepared,
};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};

use super::soon;

/// The driver's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note(pub(crate) String);

pub(crate) type Answer = Result<Prepared<Note>, PluginError>;

type OnPrepare =
    Arc<dyn for<'a> Fn(&'a AllocatedClaim, &'a PrepareContext<Note>) -> BoxFuture<'a, Answer> + Send + Sync>;

type OnBackground = Arc<dyn Fn(&BackgroundError) + Send + Sync>;

/// A driver; all clones are the same.
///
/// Each call is a line of its log, such as `prepare one: gpu-0` or `unprepare one: gpu-0 (Unprepare)`.
#[derive(Clone)]
pub(crate) struct TestDriver {
    log: watch::Sender<Vec<String>>,
    background: watch::Sender<Vec<String>>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    on_prepare: Option<OnPrepare>,
    fail_unprepare: Option<String>,
    fail_rollback: Option<String>,
    fail_unknown: Option<String>,
    /// What it says of prepared claims that are not current; they are if there is nothing.
    not_current: Option<Result<(), String>>,
    undo_gate: Option<Arc<Semaphore>>,
    on_background: Option<OnBackground>,
    held: Vec<HeldClaim<Note>>,
    /// What an earlier program has prepared.
    old_books: Vec<AdoptedClaim<Note>>,
}

/// What the driver does unless told otherwise: an environment variable for each device.
pub(crate) fn usual(claim: &AllocatedClaim) -> Prepared<Note> {
    let note = Note(format!("prepared {}", claim.claim_ref().name));
    claim.devices().iter().fold(Prepared::new(note), |prepared, device| {
        prepared.device(device, ContainerEdits::new().env("DEVICE", device.device().as_str()))
    })
}

/// An error of the driver.
pub(crate) fn fail(text: &str) -> Answer {
    Err(PluginError::new(text))
}

impl TestDriver {
    pub(crate) fn new() -> Self {
        Self { log: watch::Sender::default(), background: watch::Sender::default(), inner: Arc::default() }
    }

    /// Prepares as `work` does from now on.
    pub(crate) fn on_prepare<F>(&self, work: F)
    where
        F: for<'a> Fn(&'a AllocatedClaim, &'a PrepareContext<Note>) -> BoxFuture<'a, Answer>
            + Send
            + Sync
            + 'static,
    {
        self.inner().on_prepare = Some(Arc::new(work));
    }

    /// Lets prepares wait for a permit each, cancelled or not, and then prepare as usual.
    pub(crate) fn hold_up_prepare(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        let permits = Arc::clone(&gate);
        self.on_prepare(move |claim, _| {
            let permits = Arc::clone(&permits);
            Box::pin(async move {
                permits.acquire().await.expect("open").forget();
                Ok(usual(claim))
            })
        });
        gate
    }

    /// Prepares as usual again.
    pub(crate) fn prepare_as_usual(&self) {
        self.inner().on_prepare = None;
    }

    /// Answers unprepare with this error, or with success again.
    pub(crate) fn fail_unprepare(&self, error: Option<&str>) {
        self.inner().fail_unprepare = error.map(str::to_owned);
    }

    /// Answers rollback with this error, or with success again.
    pub(crate) fn fail_rollback(&self, error: Option<&str>) {
        self.inner().fail_rollback = error.map(str::to_owned);
    }

    /// Lets unprepare and rollback wait for a permit each.
    pub(crate) fn hold_up_undo(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.inner().undo_gate = Some(Arc::clone(&gate));
        gate
    }

    /// Does this with each error of the background.
    pub(crate) fn on_background(&self, work: impl Fn(&BackgroundError) + Send + Sync + 'static) {
        self.inner().on_background = Some(Arc::new(work));
    }

    /// The errors of the background so far.
    pub(crate) fn background_errors(&self) -> Vec<String> {
        self.background.borrow().clone()
    }

    /// Answers `unprepare_unknown` with this error, or with success again.
    pub(crate) fn fail_unknown(&self, error: Option<&str>) {
        self.inner().fail_unknown = error.map(str::to_owned);
    }

    /// Says of prepared claims that they are not current, or that this is wrong; or that they are current again.
    pub(crate) fn not_current(&self, what: Option<Result<(), &str>>) {
        self.inner().not_current = what.map(|what| what.map_err(str::to_owned));
    }

    /// Another program has prepared this claim.
    pub(crate) fn find_in_old_books(&self, claim: AdoptedClaim<Note>) {
        self.inner().old_books.push(claim);
    }

    /// The calls so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Waits until a call was made.
    pub(crate) async fn wait_for(&self, line: &str) {
        let mut log = self.log.subscribe();
        let called = log.wait_for(|log| log.iter().any(|found| found == line));
        soon(line, called).await.expect("the driver lives");
    }

    /// Waits for an error of the background that contains `text`.
    pub(crate) async fn wait_for_background_error(&self, text: &str) {
        let mut errors = self.background.subscribe();
        let told = errors.wait_for(|errors| errors.iter().any(|error| error.contains(text)));
        soon(text, told).await.expect("the driver lives");
    }

    /// What unprepare or rollback was told last.
    pub(crate) fn last_held(&self) -> HeldClaim<Note> {
        self.inner().held.last().expect("nothing was undone yet").clone()
    }

    /// What unprepare and rollback were told, oldest first.
    pub(crate) fn held(&self) -> Vec<HeldClaim<Note>> {
        self.inner().held.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn note(&self, line: String) {
        self.log.send_modify(|log| log.push(line));
    }

    async fn undo(
        &self,
        call: &str,
        claim: &HeldClaim<Note>,
        error: Option<String>,
    ) -> Result<(), PluginError> {
        let devices: Vec<_> = claim.devices.iter().map(|held| held.device_ref().device.as_str()).collect();
        self.inner().held.push(claim.clone());
        self.note(format!("{call} {}: {} ({:?})", claim.claim.name, devices.join(", "), claim.reason));
        let gate = self.inner().undo_gate.clone();
        if let Some(gate) = gate {
            gate.acquire().await.expect("open").forget();
        }
        error.map_or(Ok(()), |error| Err(PluginError::new(error)))
    }
}

impl DriverPlugin for TestDriver {
    type State = Note;

    async fn prepare(&self, claim: &AllocatedClaim, cx: &PrepareContext<Note>) -> Answer {
        let devices: Vec<_> = claim.devices().iter().map(|device| device.device().as_str()).collect();
        self.note(format!("prepare {}: {}", claim.claim_ref().name, devices.join(", ")));
        let work = self.inner().on_prepare.clone();
        match work {
            Some(work) => work(claim, cx).await,
            None => Ok(usual(claim)),
        }
    }

    async fn is_current(&self, claim: &AllocatedClaim, state: Option<&Note>) -> Result<bool, PluginError> {
        match self.inner().not_current.clone() {
            None => Ok(true),
            Some(Ok(())) => {
                self.note(format!("not current {}: {state:?}", claim.claim_ref().name));
                Ok(false)
            }
            Some(Err(error)) => Err(PluginError::new(error)),
        }
    }

    async fn unprepare(&self, claim: &HeldClaim<Note>) -> Result<(), PluginError> {
        let error = self.inner().fail_unprepare.clone();
        if error.is_none() {
            self.inner().old_books.retain(|old| old.uid != claim.claim.uid);
        }
        self.undo("unprepare", claim, error).await
    }

    async fn rollback(&self, claim: &HeldClaim<Note>) -> Result<(), PluginError> {
        let error = self.inner().fail_rollback.clone();
        self.undo("rollback", claim, error).await
    }

    async fn unprepare_unknown(&self, claim: &ClaimRef) -> Result<(), PluginError> {
        self.note(format!("unknown {}", claim.name));
        let error = self.inner().fail_unknown.clone();
        error.map_or(Ok(()), |error| Err(PluginError::new(error)))
    }

    async fn adopt(&self, which: Adopt<'_>) -> Result<Vec<AdoptedClaim<Note>>, PluginError> {
        let wanted = |old: &&AdoptedClaim<Note>| match which {
            Adopt::Claim(uid) => old.uid == *uid,
            _ => true,
        };
        Ok(self.inner().old_books.iter().filter(wanted).cloned().collect())
    }

    fn on_background_error(&self, error: &BackgroundError) {
        self.background.send_modify(|errors| errors.push(error.to_string()));
        let work = self.inner().on_background.clone();
        if let Some(work) = work {
            work(error);
        }
    }
}
