//! Calls of the driver, and the work around them.
//!
//! Work owns the locks of its claim and runs to its end in a task of its own: a caller that goes away, or a plugin that
//! stops, leaves it its locks until its record is durable. Each call of the driver within it is a further task, so that a
//! panic is that claim's error, and has a place: at most `max_parallel` calls run at once, whatever they come from.
//!
//! A place is taken after every lock, so that nothing waits for a lock with a place in its hands.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;

use super::Failure;

/// How long the driver may take to answer a question. It is asked again later; meanwhile its place is free.
pub(super) const QUESTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a call of the background counts against `max_parallel`. It may run longer, and keeps its locks.
pub(super) const BACKGROUND_PLACE: Duration = Duration::from_secs(30);

/// Calls one driver.
pub(super) struct DriverCalls<P> {
    plugin: Arc<P>,
    places: Arc<Semaphore>,
    /// Those of `adopt`: while it hangs, all other calls go on.
    adopt_places: Arc<Semaphore>,
    max_parallel: usize,
    work: TaskTracker,
}

/// The right to keep the driver busy with one call after another.
#[derive(Debug)]
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    /// Until when a call may keep it.
    until: Option<Instant>,
}

impl Place {
    /// For a call that may keep it only until then, and goes on without.
    pub(super) fn kept_until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }
}

impl<P: Send + Sync + 'static> DriverCalls<P> {
    pub(super) fn new(plugin: Arc<P>, max_parallel: usize) -> Self {
        let max_parallel = max_parallel.max(1);
        Self {
            plugin,
            places: Arc::new(Semaphore::new(max_parallel)),
            adopt_places: Arc::new(Semaphore::new(max_parallel)),
            max_parallel,
            work: TaskTracker::new(),
        }
    }

    /// What has all work that runs.
    pub(super) fn tracker(&self) -> TaskTracker {
        self.work.clone()
    }

    /// Starts work that runs to its end, whatever becomes of the future that waits for it.
    pub(super) fn work<T: Send + 'static, W>(
        &self,
        title: &'static str,
        work: W,
    ) -> impl Future<Output = Result<T, Failure>> + Send + use<P, T, W>
    where
        W: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let done = self.work.spawn(work.in_current_span());
        async move { done.await.map_err(|error| panicked(title, error))? }
    }

    /// Waits for a place. The caller has all the locks that the call needs.
    pub(super) async fn place(&self, deadline: Instant) -> Result<Place, Failure> {
        self.place_in(&self.places, deadline).await
    }

    async fn place_in(&self, places: &Arc<Semaphore>, deadline: Instant) -> Result<Place, Failure> {
        match timeout_at(deadline, Arc::clone(places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Place { permit: Some(permit), until: None }),
            Ok(Err(_)) => Err(Failure::Stopping),
            Err(_) => Err(Failure::NoPlace { calls: self.max_parallel }),
        }
    }

    /// Calls the driver, and waits for as long as it takes.
    pub(super) async fn call<T, F>(
        &self,
        place: &mut Place,
        name: &'static str,
        call: impl FnOnce(Arc<P>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, crate::PluginError>> + Send + 'static,
    {
        let mut called = tokio::spawn(call(Arc::clone(&self.plugin)).in_current_span());
        let done = match place.until {
            None => called.await,
            Some(until) => {
                if let Ok(done) = timeout_at(until, &mut called).await {
                    done
                } else {
                    tracing::warn!(call = name, "the driver takes long; its place is free for other calls");
                    place.permit = None;
                    called.await
                }
            }
        };
        done.map_err(|error| panicked(name, error))?.map_err(Failure::Driver)
    }

    /// Asks the driver something that changes nothing. A question that takes too long is dropped.
    pub(super) async fn ask<T, F>(
        &self,
        name: &'static str,
        deadline: Instant,
        question: impl FnOnce(Arc<P>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, crate::PluginError>> + Send + 'static,
    {
        let place = self.place(deadline).await?;
        self.ask_at(place, name, question).await
    }

    /// Asks which claims another program has prepared.
    pub(super) async fn ask_adopt<T, F>(
        &self,
        deadline: Instant,
        question: impl FnOnce(Arc<P>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, crate::PluginError>> + Send + 'static,
    {
        let place = self.place_in(&self.adopt_places, deadline).await?;
        self.ask_at(place, "adopt", question).await
    }

    async fn ask_at<T, F>(
        &self,
        _place: Place,
        name: &'static str,
        question: impl FnOnce(Arc<P>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, crate::PluginError>> + Send + 'static,
    {
        let asked = tokio::spawn(question(Arc::clone(&self.plugin)).in_current_span());
        match timeout(QUESTION_TIMEOUT, AbortOnDropHandle::new(asked)).await {
            Ok(answer) => answer.map_err(|error| panicked(name, error))?.map_err(Failure::Driver),
            Err(_) => Err(Failure::NoAnswer { call: name, after: QUESTION_TIMEOUT }),
        }
    }

    /// Asks the driver something that it answers at once.
    pub(super) fn plugin(&self) -> &P {
        &self.plugin
    }
}

/// A task ended without an answer.
fn panicked(call: &'static str, error: JoinError) -> Failure {
    let Ok(payload) = error.try_into_panic() else { return Failure::Stopping };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Failure::Panic { call, message: text.unwrap_or_else(|| "no message".to_owned()) }
}

/// A point at a call of the driver, for the tests that kill the process there.
pub(super) fn driver_point(name: &'static str) -> Result<(), Failure> {
    crate::fault::point(name).map_err(|error| Failure::Internal(error.to_string()))
}
