//! The record of a running prepare, in which the driver saves its state on the way.

use std::{pin::Pin, sync::Arc};

use tokio::{runtime::Handle, sync::Mutex};
use tracing::Instrument as _;

use super::{Disk, Failure, record::Record};
use crate::plugin::{PluginError, SaveState};

/// Writes the record of one prepare until it is closed. A save is work of its own: a driver that drops it half-way, by a
/// timeout for example, neither stops it nor lets it come after a later write.
pub(super) struct Journal(Arc<Shared>);

struct Shared {
    disk: Disk,
    runtime: Handle,
    /// Locked for as long as a save takes.
    state: Mutex<State>,
}

struct State {
    record: Record,
    closed: bool,
}

/// The driver's side of a journal.
struct Saver(Arc<Shared>);

impl Journal {
    /// Begins with a record that is written.
    pub(super) fn new(disk: Disk, record: Record) -> Self {
        let state = Mutex::new(State { record, closed: false });
        Self(Arc::new(Shared { disk, runtime: Handle::current(), state }))
    }

    pub(super) fn saver(&self) -> Arc<dyn SaveState> {
        Arc::new(Saver(Arc::clone(&self.0)))
    }

    /// Waits for the save that is under way, and lets none begin after that. Gives the record as it was written last.
    pub(super) async fn close(&self) -> Record {
        let mut state = self.0.state.lock().await;
        state.closed = true;
        state.record.clone()
    }
}

impl Shared {
    async fn save(&self, driver_state: serde_json::Value) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(Failure::Superseded);
        }
        let record = Record { state: Some(driver_state), ..state.record.clone() };
        self.disk.write(record.clone()).await?;
        state.record = record;
        Ok(())
    }
}

impl SaveState for Saver {
    fn save(
        &self,
        state: serde_json::Value,
    ) -> Pin<Box<dyn Future<Output = Result<(), PluginError>> + Send + '_>> {
        let shared = Arc::clone(&self.0);
        // On the plugin's runtime, whichever one the driver is on.
        let saved = self.0.runtime.spawn(async move { shared.save(state).await }.in_current_span());
        Box::pin(async move {
            match saved.await {
                Ok(saved) => saved.map_err(|error| PluginError::new(error.to_string())),
                Err(error) => Err(PluginError::new(format!("the state was not saved: {error}"))),
            }
        })
    }
}
