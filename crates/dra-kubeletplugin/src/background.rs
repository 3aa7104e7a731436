//! Errors of the background on their way to the driver: counted, logged, and handed over one after the other.
//!
//! The driver hears of them on a thread of its own: there it may publish, stop the plugin or wait for anything without
//! keeping a task of the SDK from its work, and a panic ends nothing.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{TrySendError, sync_channel},
    },
    thread,
};

use tokio::runtime;

use crate::{
    error::BackgroundError,
    operations::Metrics,
    plugin::{DriverPlugin, ErrorChain},
};

/// Tells the driver of an error; returns at once.
pub(crate) type TellError = Arc<dyn Fn(BackgroundError) + Send + Sync>;

/// How many errors wait for a driver that is busy with one.
const MOST_WAITING: usize = 256;

/// Starts the thread. It ends once nobody can tell anything any more.
pub(crate) fn hand_errors_to<P: DriverPlugin>(plugin: Arc<P>, metrics: Metrics) -> io::Result<TellError> {
    let (queue, waiting) = sync_channel::<BackgroundError>(MOST_WAITING);
    let runtime = runtime::Handle::current();
    thread::Builder::new().name("dra-background".to_owned()).spawn(move || {
        // So that the driver can start tasks.
        let _entered = runtime.enter();
        for error in waiting {
            if catch_unwind(AssertUnwindSafe(|| plugin.on_background_error(&error))).is_err() {
                tracing::error!("the driver panicked in on_background_error");
            }
        }
    })?;
    Ok(Arc::new(move |error| {
        metrics.background_error(error.class());
        tracing::error!(class = error.class(), error = %ErrorChain(&error), "background work failed");
        if let Err(TrySendError::Full(_)) = queue.try_send(error) {
            tracing::warn!(
                waiting = MOST_WAITING,
                "the driver is still busy with earlier errors; this one is only logged"
            );
        }
    }))
}
