//! Errors of the background on their way to the driver: counted, logged, and handed over one after the other.
//!
//! The driver hears of them on a thread that does nothing else, and ends when there is nothing to tell: there it may
//! publish, stop the plugin or wait for anything without keeping a task of the SDK from its work, and a panic ends nothing.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
};

use tokio::runtime;

use crate::{
    error::BackgroundError,
    mutex::locked,
    one_line::OneLine,
    operations::Metrics,
    plugin::{DriverPlugin, ErrorChain},
};

/// Tells the driver of an error; returns at once.
pub(crate) type TellError = Arc<dyn Fn(BackgroundError) + Send + Sync>;

/// How many errors wait for a driver that is busy with one.
const MOST_WAITING: usize = 256;

/// What tells the driver of errors. It has to be called in the runtime in which the driver may start tasks.
pub(crate) fn hand_errors_to<P: DriverPlugin>(plugin: Arc<P>, metrics: Metrics) -> TellError {
    let listener =
        Arc::new(Listener { plugin, runtime: runtime::Handle::current(), queue: Mutex::default() });
    Arc::new(move |error| {
        metrics.background_error(error.class());
        let (class, text) = (error.class(), ErrorChain(&error));
        if error.is_mended() {
            tracing::warn!(class, error = %OneLine(text), "background work goes on with less");
        } else {
            tracing::error!(class, error = %OneLine(text), "background work failed");
        }
        listener.tell(error);
    })
}

/// The driver, and what it is to hear.
struct Listener<P> {
    plugin: Arc<P>,
    runtime: runtime::Handle,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<BackgroundError>,
    /// Whether a thread is telling.
    telling: bool,
}

impl<P: DriverPlugin> Listener<P> {
    fn tell(self: &Arc<Self>, error: BackgroundError) {
        let mut queue = locked(&self.queue);
        if queue.waiting.len() >= MOST_WAITING {
            tracing::warn!(
                waiting = MOST_WAITING,
                "the driver is still busy with earlier errors; this one is only logged"
            );
            return;
        }
        queue.waiting.push_back(error);
        if queue.telling {
            return;
        }
        let listener = Arc::clone(self);
        let thread = thread::Builder::new().name("dra-background".to_owned());
        match thread.spawn(move || listener.tell_all()) {
            Ok(_) => queue.telling = true,
            // It hears of this one with the next.
            Err(error) => tracing::error!(%error, "the driver cannot be told: the system gives no thread"),
        }
    }

    fn tell_all(&self) {
        // So that the driver can start tasks.
        let _entered = self.runtime.enter();
        while let Some(error) = self.next() {
            if catch_unwind(AssertUnwindSafe(|| self.plugin.on_background_error(&error))).is_err() {
                tracing::error!("the driver panicked in on_background_error");
            }
        }
    }

    /// None ends the thread; the next error starts another.
    fn next(&self) -> Option<BackgroundError> {
        let mut queue = locked(&self.queue);
        let next = queue.waiting.pop_front();
        queue.telling = next.is_some();
        next
    }
}
