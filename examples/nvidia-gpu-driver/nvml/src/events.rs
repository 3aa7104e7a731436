//! What GPUs report by themselves.

use std::{fmt, time::Duration};

use nvml_wrapper_sys::bindings as sys;

use crate::{
    Device, Library, NvmlError,
    call::{ask, blank, call},
};

/// A set of events to wait for.
pub struct EventSet<'l> {
    library: &'l Library,
    set: sys::nvmlEventSet_t,
}

/// Something that a GPU has reported.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'l> {
    /// Which GPU; none if the library does not say.
    pub device: Option<Device<'l>>,
    /// What happened.
    pub kind: EventKind,
    /// Which GPU instance; none if the whole GPU is meant.
    pub gpu_instance: Option<u32>,
}

/// What happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A critical error, by its number in NVIDIA's list.
    Xid(u64),
    /// An error of memory that could not be corrected.
    UncorrectedError,
    /// Something that was not asked for.
    Other(u64),
}

impl Library {
    /// An empty set.
    ///
    /// # Errors
    /// The call failed.
    pub fn event_set(&self) -> Result<EventSet<'_>, NvmlError> {
        ask!(self.functions, nvmlEventSetCreate()).map(|set| EventSet { library: self, set })
    }
}

impl<'l> EventSet<'l> {
    /// Adds the critical events of a GPU that it can report.
    ///
    /// # Errors
    /// "Not supported" if it can report none.
    pub fn register(&self, device: &Device<'l>) -> Result<(), NvmlError> {
        let supported = ask!(self.library.functions, nvmlDeviceGetSupportedEventTypes(device.handle))?;
        let wanted = u64::from(sys::nvmlEventTypeXidCriticalError | sys::nvmlEventTypeDoubleBitEccError);
        call!(self.library.functions, nvmlDeviceRegisterEvents(device.handle, wanted & supported, self.set))
    }

    /// Waits for the next event; none if nothing happens in this time.
    ///
    /// # Errors
    /// The call failed, such as because a GPU is lost.
    pub fn wait(&self, at_most: Duration) -> Result<Option<Event<'l>>, NvmlError> {
        let mut data = blank::<sys::nvmlEventData_t>();
        let milliseconds = u32::try_from(at_most.as_millis()).unwrap_or(u32::MAX);
        match call!(self.library.functions, nvmlEventSetWait_v2(self.set, &raw mut data, milliseconds)) {
            Err(error) if error.is_timeout() => return Ok(None),
            outcome => outcome?,
        }
        let device =
            (!data.device.is_null()).then_some(Device { library: self.library, handle: data.device });
        Ok(Some(Event {
            device,
            kind: kind(data.eventType, data.eventData),
            // All bits set is "not an instance".
            gpu_instance: Some(data.gpuInstanceId).filter(|id| *id != u32::MAX),
        }))
    }
}

fn kind(kind: u64, data: u64) -> EventKind {
    const XID: u64 = sys::nvmlEventTypeXidCriticalError as u64;
    const UNCORRECTED: u64 = sys::nvmlEventTypeDoubleBitEccError as u64;
    match kind {
        XID => EventKind::Xid(data),
        UNCORRECTED => EventKind::UncorrectedError,
        other => EventKind::Other(other),
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        // Nobody can do anything about it.
        let _ = call!(self.library.functions, nvmlEventSetFree(self.set));
    }
}

impl fmt::Debug for EventSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSet").field("library", &self.library).finish_non_exhaustive()
    }
}
