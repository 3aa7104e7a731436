//! Publishing: a task that keeps the cluster's slices equal to the wish.

mod api;
mod bucket;
mod cache;
mod learned;
mod owner;
mod pool_task;
mod preflight;
mod relist;
mod retry;
mod status;
mod sync;
mod taints;
mod task;
mod watch;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::watch as channel, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use status::{PoolState, PoolStatus, SliceStatus, SliceWrites};
pub use taints::DeviceTaints;

use crate::{DriverResources, Feature, PoolName, Problem, PublishError, Scope};

/// What a publisher may write now.
///
/// A pod that is scheduled onto a slice before the kubelet has registered the driver fails its first prepare, and
/// the kubelet tries again only after 60 to 90 s. So node-local slices are created only while registered. And of
/// several publishers of one scope only one may write, or they would undo each other's work. No change of the gate
/// deletes anything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Gate {
    /// Nothing is written, because another publisher of the same scope has the turn. The wish is still compared with
    /// what is there: once the other one has published the same, this one's tickets are served too.
    ///
    /// A plan in progress stops between two writes; [`SliceStatus::standby_since`] tells when it has. A write under way
    /// has ended after [`Publisher::LONGEST_WRITE`] in any case. Leaving this state, a publisher lists afresh
    /// before it plans.
    Standby,
    /// No slices are created; those that exist are kept right.
    Closed,
    /// Slices are created.
    Open {
        /// The number of the registration. A new one refills the budget for slices that others break, and what was
        /// refused is tried again.
        epoch: u64,
    },
}

impl Gate {
    /// A gate that is open, for the registration of this number.
    #[must_use]
    pub fn open(epoch: u64) -> Self {
        Self::Open { epoch }
    }

    /// A gate that stays open, for publishers without a kubelet.
    #[must_use]
    pub fn always_open() -> channel::Receiver<Self> {
        channel::channel(Self::open(0)).1
    }

    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    pub(crate) fn is_standby(self) -> bool {
        self == Self::Standby
    }
}

/// Keeps the slices of one scope equal to the wish, until it is stopped or dropped.
///
/// It works from a watch and writes only what differs: nothing in the steady state. A slice that others delete or change
/// is right again within two seconds, from a budget: a whole pool three times at once, then once per 30 s. A desired
/// state that keeps changing is written thirty times at once, then once per 3 s. The API server need not be there at the start.
///
/// Nothing is given up. What fails is tried again after half a second, then after as long again as it has lasted, up to
/// 30 s; what the API server refuses after 5 s at first and up to 5 minutes. What the API server asks for with
/// `Retry-After` holds for every content.
///
/// Requests while nothing changes: one watch per 40 to 60 s, so some 72 an hour and node.
///
/// Dropping it stops the task without waiting. The slices stay.
#[derive(Debug)]
pub struct Publisher {
    wishes: channel::Sender<Wish>,
    status: channel::Receiver<SliceStatus>,
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// A wish and its number; number 0 is "none yet".
#[derive(Clone, Debug, Default)]
struct Wish {
    number: u64,
    /// Rises with each change of the taints.
    revision: u64,
    resources: Arc<DriverResources>,
    /// Taints that are set beside the wish.
    taints: Arc<taints::Beside>,
}

/// The callback for errors.
type OnError = Arc<dyn Fn(&PublishError) + Send + Sync>;

impl Publisher {
    /// The longest time that a write may take. Each is given up after 5 s at first, and after up to this time if the API
    /// server is slower.
    pub const LONGEST_WRITE: Duration = api::LONGEST;

    /// Starts publishing on the current tokio runtime. Nothing is written before the first wish.
    ///
    /// `on_error` is called from the publisher's task for everything that goes wrong, also for what is tried again
    /// by itself. It should return soon, and it may call [`Publisher::publish`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, as [`tokio::spawn`] does.
    pub fn start(
        client: kube::Client,
        scope: Scope,
        gate: channel::Receiver<Gate>,
        on_error: impl Fn(&PublishError) + Send + Sync + 'static,
    ) -> Self {
        let (wishes, wishes_rx) = channel::channel(Wish::default());
        let (status_tx, status) = channel::channel(SliceStatus::default());
        let stop = CancellationToken::new();
        let api = api::SliceApi::new(client, scope);
        let task = task::Task::new(api, gate, wishes_rx, status_tx, Arc::new(on_error));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            stopped.run_until_cancelled_owned(Box::pin(task.run())).await;
        });
        Self { wishes, status, task, stop: stop.drop_guard() }
    }

    /// Makes this the wish, in place of the one before, and returns at once.
    ///
    /// It is the whole wish: pools that are missing from it are deleted.
    #[allow(clippy::must_use_candidate, reason = "a driver need not wait")]
    pub fn publish(&self, resources: DriverResources) -> Ticket {
        self.wishes().publish(resources)
    }

    /// Publishes from elsewhere: from a task that watches the hardware, say.
    #[must_use]
    pub fn wishes(&self) -> Wishes {
        Wishes { wishes: self.wishes.clone(), status: self.status.clone() }
    }

    /// Deletes all slices of the scope: the wish for nothing.
    #[allow(clippy::must_use_candidate, reason = "a driver need not wait")]
    pub fn remove_all(&self) -> Ticket {
        self.publish(DriverResources::new())
    }

    /// Sets and clears taints of devices, beside the wish.
    #[must_use]
    pub fn taints(&self) -> DeviceTaints {
        DeviceTaints(self.wishes.clone())
    }

    /// What is published, and what is in the way.
    #[must_use]
    pub fn status(&self) -> channel::Receiver<SliceStatus> {
        self.status.clone()
    }

    /// Stops and waits until nothing runs any more. The slices stay; see [`Publisher::remove_all`].
    ///
    /// # Cancel safety
    /// Dropping the future stops the publisher too, only without waiting.
    pub async fn stop(self) {
        drop(self.stop);
        // The task only ends early by a panic in `on_error`, which tokio has reported.
        let _ = self.task.await;
    }
}

/// Makes wishes of a [`Publisher`] that somebody else has. Clones are the same.
#[derive(Clone, Debug)]
pub struct Wishes {
    wishes: channel::Sender<Wish>,
    status: channel::Receiver<SliceStatus>,
}

impl Wishes {
    /// The same as [`Publisher::publish`]. Once the publisher is gone it changes nothing, and the ticket says so.
    #[allow(clippy::must_use_candidate, reason = "a driver need not wait")]
    pub fn publish(&self, resources: DriverResources) -> Ticket {
        let resources = Arc::new(resources);
        let mut number = 0;
        self.wishes.send_modify(|wish| {
            number = wish.number.saturating_add(1);
            wish.number = number;
            wish.resources = resources;
        });
        Ticket { number, status: self.status.clone() }
    }
}

/// Tells when a wish is published.
#[derive(Clone, Debug)]
pub struct Ticket {
    number: u64,
    status: channel::Receiver<SliceStatus>,
}

/// A wish that has been published.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Published {
    /// The highest generation among the pools; 0 without pools.
    pub generation: i64,
    /// The generation of each pool.
    pub generations: BTreeMap<PoolName, i64>,
    /// What was left out because it breaks a rule of the API.
    pub problems: Vec<Problem>,
    /// The features whose fields the API server dropped.
    pub dropped: Vec<Feature>,
}

impl Ticket {
    /// Waits until every pool of the wish has been seen whole in the API, and pools that are no longer wished for
    /// are gone, whoever has written that. It waits for as long as the API server is away, the gate is closed and
    /// slices are missing, or another publisher has the turn and wishes for something else.
    ///
    /// # Errors
    /// - [`PublishError::Invalid`] or [`PublishError::Api`] when a pool is refused; other pools are published. What the API
    ///   server refuses is tried again all the same.
    /// - [`PublishError::Superseded`] when there is a later wish.
    /// - [`PublishError::Stopped`] when the publisher is gone.
    ///
    /// # Cancel safety
    /// The future can be dropped and made again.
    pub async fn published(&mut self) -> Result<Published, PublishError> {
        let number = self.number;
        let decided = |status: &SliceStatus| status.wish > number || status.is_decided(number);
        let status = self.status.wait_for(decided).await.map_err(|_| PublishError::Stopped)?;
        if status.wish > number {
            return Err(PublishError::Superseded);
        }
        let refused = status.pools.values().find(|pool| pool.state == PoolState::Refused);
        if let Some(error) = refused.and_then(|pool| pool.last_error.clone()) {
            return Err(error);
        }
        Ok(Published::of(&status))
    }
}

impl Published {
    fn of(status: &SliceStatus) -> Self {
        let pools = || status.pools.values();
        let mut dropped: Vec<_> = pools().flat_map(|pool| pool.dropped.iter().copied()).collect();
        dropped.sort_unstable();
        dropped.dedup();
        Self {
            generation: pools().map(|pool| pool.generation).max().unwrap_or(0),
            generations: status.pools.iter().map(|(name, pool)| (name.clone(), pool.generation)).collect(),
            problems: pools().flat_map(|pool| pool.problems.iter().cloned()).collect(),
            dropped,
        }
    }
}
