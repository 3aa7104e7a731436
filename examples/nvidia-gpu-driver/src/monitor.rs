//! Waits for what GPUs report by themselves. Waiting blocks, so each open library has a thread for it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use nvidia_nvml::{Event, EventKind, EventSet, Library, NvmlError};
use tokio::sync::{mpsc, watch};

/// How long one wait takes at most: a library that was replaced is let go of after it.
const WAIT: Duration = Duration::from_secs(1);
/// Between tries to wait again.
const PAUSE: Duration = Duration::from_secs(5);

/// What a GPU has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A critical error.
    Xid { uuid: String, code: u64, gpu_instance: Option<u32> },
    /// Memory that could not be corrected.
    UncorrectedError { uuid: String },
    /// Nothing will come of this GPU for this reason; or something will, if there is none.
    Monitored { uuid: String, why_not: Option<String> },
}

/// Waits for reports of these GPUs until nobody else has the library any more, or nobody says which GPUs there are.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(
    library: Weak<Library>,
    gpus: watch::Receiver<BTreeSet<String>>,
    reports: mpsc::UnboundedSender<Report>,
) -> std::io::Result<()> {
    let mut monitor = Monitor { gpus, reports };
    thread::Builder::new().name("nvml-events".to_owned()).spawn(move || {
        while let Some(library) = library.upgrade().filter(|library| monitor.is_wanted(library)) {
            if let Err(error) = monitor.watch(&library) {
                tracing::warn!(%error, "waiting for what GPUs report");
                drop(library);
                thread::sleep(PAUSE);
            }
        }
    })?;
    Ok(())
}

struct Monitor {
    gpus: watch::Receiver<BTreeSet<String>>,
    reports: mpsc::UnboundedSender<Report>,
}

impl Monitor {
    fn is_wanted(&self, library: &Arc<Library>) -> bool {
        Arc::strong_count(library) > 1 && !self.reports.is_closed()
    }

    /// Returns when other GPUs are to be watched, or none.
    fn watch(&mut self, library: &Arc<Library>) -> Result<(), NvmlError> {
        let events = library.event_set()?;
        let uuids = self.gpus.borrow_and_update().clone();
        for uuid in uuids {
            let why_not = register(library, &events, &uuid).err().map(|error| error.to_string());
            self.tell(Report::Monitored { uuid, why_not });
        }
        tracing::info!("waits for what GPUs report");
        while self.is_wanted(library) && self.gpus.has_changed().is_ok_and(|changed| !changed) {
            match events.wait(WAIT) {
                Ok(Some(event)) => self.event(&event)?,
                Ok(None) => {}
                // It says so for ever. Those that are left are watched from now on.
                Err(error) if error.is_gpu_lost() => {
                    thread::sleep(WAIT);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn event(&self, event: &Event<'_>) -> Result<(), NvmlError> {
        let Some(device) = event.device else { return Ok(()) };
        let uuid = device.uuid()?;
        match event.kind {
            EventKind::Xid(code) => self.tell(Report::Xid { uuid, code, gpu_instance: event.gpu_instance }),
            EventKind::UncorrectedError => self.tell(Report::UncorrectedError { uuid }),
            _ => {}
        }
        Ok(())
    }

    fn tell(&self, report: Report) {
        // If nobody listens any more, the thread ends soon.
        let _ = self.reports.send(report);
    }
}

fn register<'l>(library: &'l Library, events: &EventSet<'l>, uuid: &str) -> Result<(), NvmlError> {
    events.register(&library.device_by_uuid(uuid)?)
}
