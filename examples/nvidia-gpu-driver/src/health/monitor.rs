//! Waits for what GPUs report by themselves. Waiting blocks, so each open library has a thread for it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use nvidia_nvml::{Device, Event, EventKind, EventSet, Library, NvmlError};
use tokio::sync::{mpsc, watch};

use super::Part;

/// How long one wait takes at most: a library that was replaced is released after it.
const WAIT: Duration = Duration::from_secs(1);
/// Between tries to wait again.
const PAUSE: Duration = Duration::from_secs(5);

/// What a GPU has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A critical error.
    Xid { uuid: String, code: u64, part: Option<Part> },
    /// Memory that could not be corrected.
    UncorrectedError { uuid: String },
    /// Nothing will come of this GPU for this reason; or something will, if there is none.
    Monitored { uuid: String, why_not: Option<String> },
}

/// Waits for reports of these GPUs until nothing else has the library any more, or nothing says which GPUs there are.
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

/// A set of events, and the GPUs in it.
struct Listening<'l> {
    events: EventSet<'l>,
    gpus: Vec<(Device<'l>, String)>,
}

impl Monitor {
    fn is_wanted(&self, library: &Arc<Library>) -> bool {
        Arc::strong_count(library) > 1 && !self.reports.is_closed()
    }

    /// Returns when the library is not wanted any more. The next set is there before the one before it goes, so nothing is
    /// missed between two.
    fn watch(&mut self, library: &Arc<Library>) -> Result<(), NvmlError> {
        let mut listening = self.listen(library)?;
        tracing::info!("waits for what GPUs report");
        while self.is_wanted(library) {
            let is_stale = match listening.events.wait(WAIT) {
                Ok(event) => {
                    if let Some(event) = event {
                        self.event(&event, &listening.gpus);
                    }
                    self.gpus.has_changed().unwrap_or_default()
                }
                Err(error) => {
                    // A GPU that is lost says so for ever. Those that are left are watched from now on.
                    if !error.is_gpu_lost() {
                        tracing::warn!(%error, "waiting for what GPUs report");
                    }
                    thread::sleep(WAIT);
                    true
                }
            };
            if is_stale {
                let next = self.listen(library)?;
                while let Ok(Some(event)) = listening.events.wait(Duration::ZERO) {
                    self.event(&event, &listening.gpus);
                }
                listening = next;
            }
        }
        Ok(())
    }

    fn listen<'l>(&mut self, library: &'l Library) -> Result<Listening<'l>, NvmlError> {
        let (events, mut gpus) = (library.event_set()?, Vec::new());
        let uuids = self.gpus.borrow_and_update().clone();
        for uuid in uuids {
            let registered = library.device_by_uuid(&uuid).and_then(|device| {
                events.register(&device)?;
                Ok(device)
            });
            let why_not = registered.as_ref().err().map(ToString::to_string);
            gpus.extend(registered.ok().map(|device| (device, uuid.clone())));
            self.tell(Report::Monitored { uuid, why_not });
        }
        Ok(Listening { events, gpus })
    }

    fn event(&self, event: &Event<'_>, gpus: &[(Device<'_>, String)]) {
        let registered = event.device.and_then(|device| {
            gpus.iter().find(|(one, _)| one.is_same(&device)).map(|(_, uuid)| uuid.clone())
        });
        let uuid = registered.or_else(|| event.device?.uuid().ok());
        let part = event.gpu_instance.map(|number| part(event.device, number));
        for uuid in concerned(uuid, gpus.iter().map(|(_, uuid)| uuid)) {
            match event.kind {
                EventKind::Xid(code) => self.tell(Report::Xid { uuid, code, part }),
                EventKind::UncorrectedError => self.tell(Report::UncorrectedError { uuid }),
                _ => {}
            }
        }
    }

    fn tell(&self, report: Report) {
        // If nothing listens any more, the thread ends soon.
        let _ = self.reports.send(report);
    }
}

/// The GPUs that an event is about. If NVML cannot say which one it was, it may be each of the set.
fn concerned<'a>(found: Option<String>, all: impl Iterator<Item = &'a String>) -> Vec<String> {
    found.map_or_else(|| all.cloned().collect(), |uuid| vec![uuid])
}

/// Where a GPU instance is, which names the MIG device that a claim has.
fn part(device: Option<Device<'_>>, gpu_instance: u32) -> Part {
    let info = device.and_then(|device| device.gpu_instance(gpu_instance).ok()?.info().ok());
    Part { gpu_instance, place: info.map(|info| (info.profile_id, info.placement.start)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_gpu_that_cannot_be_told_is_about_all_of_the_set() {
        let all = ["GPU-1", "GPU-2"].map(str::to_owned);
        assert_eq!(concerned(None, all.iter()), all);
        assert_eq!(concerned(Some("GPU-2".to_owned()), all.iter()), ["GPU-2"]);
    }
}
