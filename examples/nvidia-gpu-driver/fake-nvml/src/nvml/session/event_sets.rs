//! Which events were registered for, and which of them were delivered.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::super::border::Handle;
use super::super::code::Code;
use super::call::Call;
use super::handles::Target;
use super::reached::{GpuRef, place};
use super::{machine, session};
use crate::machine::PciAddress;
use crate::{Event, Machine};

/// How often a call that waits looks whether something happened.
const LOOK: Duration = Duration::from_millis(10);

/// The sets that were created and not freed.
pub(super) struct EventSets {
    sets: BTreeMap<u64, Vec<Registration>>,
    created: u64,
}

/// One GPU in a set.
struct Registration {
    address: PciAddress,
    types: u64,
    /// How many of the GPU's events are delivered, or were there before.
    seen: usize,
    /// Whether its loss was told.
    told_lost: bool,
}

/// What a set has to tell.
#[derive(Debug, PartialEq)]
enum News {
    Event(PciAddress, Event),
    Lost,
    None,
}

impl EventSets {
    pub(super) const fn new() -> Self {
        Self { sets: BTreeMap::new(), created: 0 }
    }
}

pub(crate) fn create_event_set() -> Handle {
    let mut session = session();
    session.event_sets.created += 1;
    let number = session.event_sets.created;
    session.event_sets.sets.insert(number, Vec::new());
    session.handles.of(Target::EventSet(number))
}

pub(crate) fn free_event_set(handle: Handle) -> Result<(), Code> {
    let mut session = session();
    let Target::EventSet(number) = session.handles.target(handle)? else {
        return Err(Code::INVALID_ARGUMENT);
    };
    session.event_sets.sets.remove(&number).map(drop).ok_or(Code::INVALID_ARGUMENT)
}

impl GpuRef {
    /// Puts it into a set: what happens on it from now on is delivered.
    pub(crate) fn register(&self, types: u64, set: Handle) -> Result<(), Code> {
        let registration =
            Registration { address: self.address, types, seen: self.events.len(), told_lost: false };
        with_set(set, |set| {
            set.retain(|other| other.address != registration.address);
            set.push(registration);
        })
    }
}

impl Call {
    /// The next event of a set and the GPU on which it happened.
    pub(crate) fn wait(&self, set: Handle, at_most: Duration) -> Result<(Handle, Event), Code> {
        let end = Instant::now() + at_most;
        loop {
            let machine = machine()?;
            match with_set(set, |set| news(set, &machine))? {
                News::Event(address, event) => {
                    return Ok((session().handles.of(Target::Gpu(address)), event));
                }
                News::Lost => return Err(Code::GPU_IS_LOST),
                News::None => {}
            }
            // A fault that came while this waits touches it too.
            self.suffer(|machine| Some(&machine.faults))?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Code::TIMEOUT);
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

fn with_set<T>(handle: Handle, act: impl FnOnce(&mut Vec<Registration>) -> T) -> Result<T, Code> {
    let mut session = session();
    let Target::EventSet(number) = session.handles.target(handle)? else {
        return Err(Code::INVALID_ARGUMENT);
    };
    session.event_sets.sets.get_mut(&number).map(act).ok_or(Code::INVALID_ARGUMENT)
}

/// The first thing that was not told yet: events before losses, so that a GPU which is lost hides no other.
fn news(set: &mut [Registration], machine: &Machine) -> News {
    for registration in &mut *set {
        let Some((_, gpu)) = place(machine, registration.address) else {
            continue;
        };
        registration.seen = registration.seen.min(gpu.events.len());
        for event in &gpu.events[registration.seen..] {
            registration.seen += 1;
            if event.kind & registration.types != 0 {
                return News::Event(registration.address, event.clone());
            }
        }
    }
    for registration in set {
        let lost = place(machine, registration.address).is_none_or(|(_, gpu)| gpu.lost);
        if lost && !registration.told_lost {
            registration.told_lost = true;
            return News::Lost;
        }
        registration.told_lost &= lost;
    }
    News::None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpu, Model};

    fn registration(gpu: &Gpu, types: u64) -> Registration {
        let address = gpu.pci_address().expect("an address");
        Registration { address, types, seen: gpu.events.len(), told_lost: false }
    }

    #[test]
    fn each_event_that_was_asked_for_is_told_once_and_in_order() {
        let mut machine = Machine::new([0, 1].map(|number| Gpu::new(Model::L4, number)));
        machine.gpus[0].events.push(Event::xid(1));
        let mut set = vec![registration(&machine.gpus[0], 8), registration(&machine.gpus[1], 8)];
        assert_eq!(news(&mut set, &machine), News::None, "it was there before");
        machine.gpus[1].events.extend([Event::double_bit_error(), Event::xid(2), Event::xid(3)]);
        let address = set[1].address;
        assert_eq!(news(&mut set, &machine), News::Event(address, Event::xid(2)));
        assert_eq!(news(&mut set, &machine), News::Event(address, Event::xid(3)));
        assert_eq!(news(&mut set, &machine), News::None);
    }

    #[test]
    fn a_loss_is_told_once_after_the_events_of_others_and_again_after_it_came_back() {
        let mut machine = Machine::new([0, 1].map(|number| Gpu::new(Model::L4, number)));
        let mut set = vec![registration(&machine.gpus[0], 8), registration(&machine.gpus[1], 8)];
        machine.gpus[0].lost = true;
        machine.gpus[1].events.push(Event::xid(2));
        let address = set[1].address;
        assert_eq!(news(&mut set, &machine), News::Event(address, Event::xid(2)));
        assert_eq!(news(&mut set, &machine), News::Lost);
        assert_eq!(news(&mut set, &machine), News::None);
        machine.gpus[0].lost = false;
        assert_eq!(news(&mut set, &machine), News::None);
        machine.gpus[0].lost = true;
        assert_eq!(news(&mut set, &machine), News::Lost);
    }

    #[test]
    fn a_list_that_became_shorter_tells_what_is_added_to_it() {
        let mut machine = Machine::new([Gpu::new(Model::L4, 0)]);
        machine.gpus[0].events.extend([Event::xid(1), Event::xid(2)]);
        let mut set = vec![registration(&machine.gpus[0], 8)];
        machine.gpus[0].events.clear();
        assert_eq!(news(&mut set, &machine), News::None);
        machine.gpus[0].events.push(Event::xid(3));
        let address = set[0].address;
        assert_eq!(news(&mut set, &machine), News::Event(address, Event::xid(3)));
    }
}
