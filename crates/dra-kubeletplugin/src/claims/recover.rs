//! What a start does about what earlier processes left.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Claims, Failure,
    states::Phase,
    store::Found,
    undo::{How, Then},
};
use crate::{claim::ClaimRef, names::ClaimUid, plugin::DriverPlugin};

/// How long undos of an earlier boot hold up prepares. One that takes longer goes on, and its record holds its devices.
const HOLD_UP: Duration = Duration::from_secs(30);

/// How long to wait before what could not be done is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Pods are waiting for it.
const ADOPT_AGAIN: Duration = Duration::from_secs(5);

/// How long to wait for the lock of a claim. Whoever holds it undoes the claim too, or needs it as it is.
pub(super) const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// How long work on a claim waits for its devices and a place.
const WORK_TIMEOUT: Duration = Duration::from_secs(45);

/// Undos at once. Each has some lock files open; the driver's own bound is `max_parallel`.
const AT_ONCE: usize = 16;

/// What prepares wait for after a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Claims of an earlier boot are being undone.
    Undoing,
    /// It is not known yet what another program has prepared; with the last error.
    Adopting(Option<String>),
    Done,
}

/// Whether a call for the claim is at work: it does what has to be done, or fails itself.
fn is_at_work(error: &Failure) -> bool {
    matches!(error, Failure::Busy | Failure::StillRunning { .. })
}

impl<P: DriverPlugin> Claims<P> {
    /// Undoes what an earlier boot left, then lets prepares in; makes CDI and metadata files what the records say. What
    /// fails is tried again every minute. Dropped, it begins nothing new; work that has begun goes on.
    pub(crate) async fn recover(self: Arc<Self>) {
        let mut undone = self.undo_older_boots().await;
        self.recovery.send_replace(Recovery::Adopting(None));
        while let Err(error) = self.adopt_all().await {
            self.recovery.send_replace(Recovery::Adopting(Some(error.to_string())));
            self.told.failed("claims of another program cannot be adopted, so none are prepared", &error);
            sleep(ADOPT_AGAIN).await;
        }
        self.recovery.send_replace(Recovery::Done);
        let mut healed = self.heal_files().await;
        while !(undone && healed) {
            sleep(RETRY).await;
            undone = undone || self.undo_older_boots().await;
            healed = healed || self.heal_files().await;
        }
    }

    /// Waits until prepares may begin.
    pub(super) async fn recovered(&self, deadline: Instant) -> Result<(), Failure> {
        let mut recovery = self.recovery.subscribe();
        match timeout_at(deadline, recovery.wait_for(|now| *now == Recovery::Done)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(_)) => return Err(Failure::Stopping),
            Err(_) => {}
        }
        let now = recovery.borrow().clone();
        Err(match now {
            Recovery::Adopting(last) => {
                Failure::Adopting { last: last.unwrap_or_else(|| "no answer yet".to_owned()) }
            }
            Recovery::Undoing | Recovery::Done => Failure::Recovering,
        })
    }

    /// Undoes all that earlier boots have left, each claim by itself. Says whether nothing is left.
    async fn undo_older_boots(self: &Arc<Self>) -> bool {
        let limit = Instant::now() + HOLD_UP;
        let (mut done, mut claims) = (true, BTreeSet::new());
        for store in self.disk.older.clone() {
            match self.disk.run(move |_, _| Ok(store.claims()?)).await {
                Ok(uids) => claims.extend(uids),
                Err(error) => {
                    done = false;
                    self.told.failed("records of an earlier boot cannot be listed", &error);
                }
            }
        }
        let undo = |uid: &ClaimUid| {
            let (this, uid) = (Arc::clone(self), uid.clone());
            async move { (this.undo_rebooted(&uid, limit).await, uid) }
        };
        let mut left = claims.clone();
        let mut undos = stream::iter(claims.iter().map(undo)).buffer_unordered(AT_ONCE);
        while let Ok(Some((undone, uid))) = timeout_at(limit, undos.next()).await {
            left.remove(&uid);
            if let Err(error) = undone {
                done = false;
                if is_at_work(&error) {
                    continue;
                }
                self.told.failed(&format!("claim {uid} of an earlier boot could not be undone"), &error);
            }
        }
        drop(undos);
        for uid in &left {
            let error = Failure::NotUndoneWithin(HOLD_UP);
            self.told.failed(&format!("claim {uid} of an earlier boot could not be undone"), &error);
        }
        for store in self.disk.older.clone() {
            // The next start tries again.
            let _ = self.disk.run(move |_, _| Ok(store.remove_if_empty()?)).await;
        }
        done && left.is_empty()
    }

    async fn undo_rebooted(self: &Arc<Self>, uid: &ClaimUid, limit: Instant) -> Result<(), Failure> {
        let held = self.lock_claim(uid, Instant::now() + CLAIM_TIMEOUT).await?;
        let (this, claim) = (Arc::clone(self), ClaimRef::new("", "", uid.clone()));
        let work = async move {
            let _held = held;
            let deadline = Instant::now() + WORK_TIMEOUT;
            let how = How { place_until: Some(limit), then: Then::Prepare, ..How::reboot(deadline) };
            this.undo_older(&claim, how).await
        };
        self.calls.work("unprepare", work).await.map(drop)
    }

    /// Writes CDI and metadata files that were removed, and removes those without a record: the kubelet does not prepare
    /// running pods again, so nothing else would. Each claim by itself. Says whether all is as recorded.
    async fn heal_files(self: &Arc<Self>) -> bool {
        let metadata = self.disk.metadata.clone();
        let list = self.disk.run(move |store, cdi| {
            let listed = cdi.list()?;
            let mut files: BTreeSet<ClaimUid> =
                listed.iter().filter_map(|file| file.as_str().parse().ok()).collect();
            files.extend(metadata.claims()?);
            Ok((files, store.claims()?))
        });
        let (files, recorded) = match list.await {
            Ok(listed) => listed,
            Err(error) => {
                self.told.failed("the files of prepared claims cannot be checked", &error);
                return false;
            }
        };
        // One of a damaged record tells which devices it holds.
        let intact = self.memory().is_intact();
        let stray = files.into_iter().filter(|uid| intact && !recorded.contains(uid));
        let mut healed = true;
        for uid in recorded.iter().cloned().chain(stray) {
            if let Err(error) = self.heal(&uid).await {
                healed = false;
                if is_at_work(&error) {
                    continue;
                }
                self.told.failed(&format!("the files of claim {uid} could not be repaired"), &error);
            }
        }
        healed
    }

    async fn heal(self: &Arc<Self>, uid: &ClaimUid) -> Result<(), Failure> {
        let held = self.lock_claim(uid, Instant::now() + CLAIM_TIMEOUT).await?;
        let (this, uid) = (Arc::clone(self), uid.clone());
        let work = async move {
            let _held = held;
            match this.load(&uid).await? {
                Found::Stored { phase: Phase::Prepared, record } => {
                    // An earlier process may have died before it was written.
                    this.show_status(&record);
                    this.restore_files(*record).await
                }
                Found::Nothing => this.remove_files(uid).await,
                _ => Ok(()),
            }
        };
        self.calls.work("heal", work).await
    }
}
